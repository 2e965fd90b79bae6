-- Which of these keys are locks that somebody with leasehold holds. Writes nothing.
--
-- KEYS     some keys, of whatever type
-- replies  for each '1' or '0'
local replies = {}
for i = 1, #KEYS do
    local held = redis.call('TYPE', KEYS[i]).ok == 'string' and redis.call('GETRANGE', KEYS[i], '0', '9') == 'leasehold:'
    replies[i] = held and '1' or '0'
end
return table.concat(replies)
