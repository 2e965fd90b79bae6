-- Renews holders of several RReadWriteLocks. A hold that is gone stays gone.
--
-- KEYS     for each lock: the lock, as in rw_lock.lua; the beginning of the keys of its readers
-- ARGV     for each lock: the claim's field; the lease in ms, '' to leave it as it is; unused
-- replies  '1' for each hold that was renewed, else '0'
local replies = {}
for i = 1, #KEYS / 2 do
    local lock, field, lease = KEYS[2 * i - 1], ARGV[3 * i - 2], ARGV[3 * i - 1]
    local is_held = redis.pcall('HEXISTS', lock, field) == 1
    local is_reader = is_held and redis.call('HGET', lock, 'mode') == 'read'
    local timeout = KEYS[2 * i] .. ':' .. field .. ':rwlock_timeout:1'
    if is_reader then is_held = redis.call('EXISTS', timeout) == 1 end
    if is_held and lease ~= '' then
        if is_reader then redis.call('PEXPIRE', timeout, lease) end
        redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease + 0))
    end
    replies[i] = is_held and '1' or '0'
end
return table.concat(replies)
