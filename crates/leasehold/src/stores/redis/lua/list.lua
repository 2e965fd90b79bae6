-- Which of these keys are locks with somebody in line. Writes nothing.
--
-- KEYS     some keys, of whatever type
-- replies  for each '1' or '0'
local DAY = 86400000
local replies = {}
for i = 1, #KEYS do
    local mode = redis.call('TYPE', KEYS[i]).ok == 'string' and redis.call('GETRANGE', KEYS[i], '16', '16')
    local life = mode == 'H' and redis.call('PTTL', KEYS[i])
    replies[i] = (mode == 'W' or mode == 'L' or mode == 'H' and (life > DAY or life == -1)) and '1' or '0'
end
return table.concat(replies)
