-- Finds the sorted sets in which a permit is held. It does not write.
--
-- KEYS     some keys, of any type
-- ARGV     none
-- replies  '1' or '0' for each key
local time = redis.call('TIME')
local now_ms = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
local replies = {}
for i = 1, #KEYS do
    local held = redis.pcall('ZCOUNT', KEYS[i], '(' .. now_ms, '+inf')
    replies[i] = type(held) == 'number' and held > 0 and '1' or '0'
end
return table.concat(replies)
