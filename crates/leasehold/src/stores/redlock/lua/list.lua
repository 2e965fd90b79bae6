-- Which of these keys are locks that are held here. Writes nothing.
--
-- KEYS     some keys, of whatever type
-- replies  for each '1' or '0'
local replies = {}
for i = 1, #KEYS do
    local held = redis.call('TYPE', KEYS[i]).ok == 'string' and redis.call('GETRANGE', KEYS[i], '19', '19') == 'H'
    local left = held and redis.call('PTTL', KEYS[i])
    replies[i] = (held and (left > 86400000 or left == -1)) and '1' or '0'
end
return table.concat(replies)
