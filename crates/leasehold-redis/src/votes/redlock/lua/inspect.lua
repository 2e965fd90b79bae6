-- Reads the record of a lock on one master. It does not write.
--
-- KEYS[1]  the lock, as in vote.lua
-- ARGV     none
-- replies  the record, '' if the key does not exist; ms until the lease ends, 0 if it has ended
local state = redis.call('GET', KEYS[1]) or ''
if string.sub(state, 20, 20) ~= 'H' then return { state, 0 } end
local left = redis.call('PTTL', KEYS[1])
if left == -1 then return { state, 1 } end
return { state, math.max(0, left - 86400000) }
