-- Reads an RLock or an RFencedLock. It does not write.
--
-- KEYS[1]  the lock, as in lock.lua
-- KEYS[2]  the waiters of an RFairLock of this name
-- KEYS[3]  the counter of tokens; absent for an RLock
-- ARGV     none
-- replies  {what the key is instead, '' if it is a lock; the counter of tokens, '' without one; the
--          number of permits, '' without one}, and for each holder: its field; the number of its
--          acquires; ms until its lease ends, -1 without an end; its kind, which is 'M' for a mutex
--          and 'Q' for a waiter of an RFairLock
local counter = KEYS[3] and redis.call('GET', KEYS[3]) or ''
local count = redis.pcall('HLEN', KEYS[1])
if type(count) == 'table' then return { redis.call('TYPE', KEYS[1]).ok, counter, '' } end
if count == 0 then return { '', counter, '' } end
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return { 'readwrite', counter, '' } end
local fields = count == 1 and redis.call('HGETALL', KEYS[1]) or { '' }
if not string.match(fields[1], '^.+:%-?%d+') then return { 'hash', counter, '' } end
local left = tostring(redis.call('PTTL', KEYS[1]))
local reply = { '', counter, '', fields[1], fields[2], left, 'M' }
local waiters = redis.pcall('LRANGE', KEYS[2], 0, 999)
for _, waiter in ipairs(waiters) do
    for _, word in ipairs({ waiter, '0', '-1', 'Q' }) do table.insert(reply, word) end
end
return reply
