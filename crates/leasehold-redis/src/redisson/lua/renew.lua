-- Renews the holds of several RLocks and RFencedLocks. A hold that is gone stays gone.
--
-- KEYS     the locks, as in lock.lua
-- ARGV     for each lock: the claim's field; the lease in ms, '' to leave it as it is; unused
-- replies  '1' for each hold that was renewed, else '0'
local replies = {}
for i = 1, #KEYS do
    local is_held = redis.pcall('HEXISTS', KEYS[i], ARGV[3 * i - 2]) == 1
    if is_held and ARGV[3 * i - 1] ~= '' then redis.call('PEXPIRE', KEYS[i], ARGV[3 * i - 1]) end
    replies[i] = is_held and '1' or '0'
end
return table.concat(replies)
