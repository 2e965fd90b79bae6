-- Gives back the permits of a claim, and wakes the waiters as Redisson does.
--
-- KEYS[1]  the free permits, as in semaphore_lock.lua
-- KEYS[2]  exists if the claim has left while one of its requests was under way
-- KEYS[3]  the permits that are held
-- ARGV[1]  the claim as a UUID (36)
-- ARGV[2]  the claim in hexadecimal (32): the hash of another library's permit
-- ARGV[3]  the channel of the semaphore
-- ARGV[4]  for how long a late request of the claim is refused, in ms; '' if none is under way
-- replies  as unlock.lua
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local was_there, notified, removed = 0, 0, 0
local permits = redis.pcall('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
for i = 1, #permits, 2 do
    local is_own = string.sub(permits[i], 1, 36) == ARGV[1]
    if is_own or string.sub(redis.sha1hex(permits[i]), 1, 32) == ARGV[2] then
        removed = removed + redis.call('ZREM', KEYS[3], permits[i])
        if permits[i + 1] + 0 > now_ms then was_there = 1 end
    end
end
if removed > 0 and redis.call('EXISTS', KEYS[1]) == 1 then
    local free = redis.call('INCRBY', KEYS[1], removed)
    local result = redis.pcall('PUBLISH', ARGV[3], free)
    if type(result) == 'number' then notified = result end
end
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], '', 'PX', ARGV[4]) end
return { was_there, notified }
