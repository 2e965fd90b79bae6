-- Releases an RLock or an RFencedLock, and wakes all of its waiters as Redisson does.
--
-- KEYS[1]  the lock, as in lock.lua
-- KEYS[2]  exists if the claim has left while one of its requests was under way
-- KEYS[3]  the waiters of an RFairLock of this name
-- ARGV[1]  the claim as a UUID (36)
-- ARGV[2]  the claim in hexadecimal (32): the hash of another library's field
-- ARGV[3]  the channel of the lock
-- ARGV[4]  for how long a late request of the claim is refused, in ms; '' if none is under way
-- replies  {1 if the claim held the lock, else 0; the number of clients that were notified}
local was_there, notified = 0, 0
local count = redis.pcall('HLEN', KEYS[1])
local field = count == 1 and redis.call('HKEYS', KEYS[1])[1] or 'mode'
local is_own = string.sub(field, 1, 36) == ARGV[1]
if field ~= 'mode' and (is_own or string.sub(redis.sha1hex(field), 1, 32) == ARGV[2]) then
    redis.call('DEL', KEYS[1])
    was_there = 1
    local result = redis.pcall('PUBLISH', ARGV[3], '0')
    if type(result) == 'number' then notified = result end
    -- Only the first waiter of an RFairLock is notified, on a channel of its own.
    local first = redis.pcall('LINDEX', KEYS[3], 0)
    if type(first) == 'string' then redis.pcall('PUBLISH', ARGV[3] .. ':' .. first, '0') end
end
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], '', 'PX', ARGV[4]) end
return { was_there, notified }
