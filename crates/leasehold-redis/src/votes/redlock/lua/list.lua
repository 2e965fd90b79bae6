-- Finds the keys that are held locks on this master. It does not write.
--
-- KEYS     some keys, of any type
-- ARGV     none
-- replies  '1' or '0' for each key
local replies = {}
for i = 1, #KEYS do
    local is_text = redis.call('TYPE', KEYS[i]).ok == 'string'
    local held = is_text and redis.call('GETRANGE', KEYS[i], '19', '19') == 'H'
    local left = held and redis.call('PTTL', KEYS[i])
    replies[i] = (held and (left > 86400000 or left == -1)) and '1' or '0'
end
return table.concat(replies)
