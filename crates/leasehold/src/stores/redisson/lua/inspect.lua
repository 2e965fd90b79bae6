-- Reads an RLock or an RFencedLock. It does not write.
--
-- KEYS[1]  the lock, as in lock.lua
-- KEYS[2]  the counter of tokens; absent for an RLock
-- ARGV     none
-- replies  {the holder's field, '' if the lock is free; the number of its acquires; the counter of
--          tokens, '0' without one; what the key is instead, '' if it is a lock}
local counter = KEYS[2] and redis.call('GET', KEYS[2]) or '0'
local count = redis.pcall('HLEN', KEYS[1])
if type(count) == 'table' then return { '', '0', counter, redis.call('TYPE', KEYS[1]).ok } end
if count == 0 then return { '', '0', counter, '' } end
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return { '', '0', counter, 'readwrite' } end
local fields = count == 1 and redis.call('HGETALL', KEYS[1]) or { '', '0' }
if not string.match(fields[1], '^.+:%-?%d+') then return { '', '0', counter, 'hash' } end
return { fields[1], fields[2], counter, '' }
