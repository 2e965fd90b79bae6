-- Finds the keys that are held RReadWriteLocks. It does not write.
--
-- KEYS     some keys, of any type
-- ARGV     none
-- replies  '1' or '0' for each key
local replies = {}
for i = 1, #KEYS do
    local mode = redis.pcall('HGET', KEYS[i], 'mode')
    replies[i] = (mode == 'read' or mode == 'write') and '1' or '0'
end
return table.concat(replies)
