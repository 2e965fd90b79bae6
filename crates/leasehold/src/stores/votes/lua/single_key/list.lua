-- Finds the keys that are locks held by clients of leasehold. It does not write.
--
-- KEYS     some keys, of any type
-- ARGV     none
-- replies  '1' or '0' for each key
local replies = {}
for i = 1, #KEYS do
    local is_text = redis.call('TYPE', KEYS[i]).ok == 'string'
    local held = is_text and redis.call('GETRANGE', KEYS[i], '0', '9') == 'leasehold:'
    replies[i] = held and '1' or '0'
end
return table.concat(replies)
