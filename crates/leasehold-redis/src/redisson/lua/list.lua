-- Finds the keys that are held RLocks or RFencedLocks, of leasehold and of Redisson. It does not
-- write.
--
-- KEYS     some keys, of any type
-- ARGV     none
-- replies  '1' or '0' for each key
local replies = {}
for i = 1, #KEYS do
    local is_single = redis.pcall('HLEN', KEYS[i]) == 1
    local field = is_single and redis.call('HKEYS', KEYS[i])[1] or ''
    local is_lock = string.match(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+')
    replies[i] = is_lock and '1' or '0'
end
return table.concat(replies)
