-- Reads the value of a single-key lock. It does not write.
--
-- KEYS[1]  the lock
-- ARGV     none
-- replies  the value; ms until its lease ends, 0 if the key does not exist
local value = redis.call('GET', KEYS[1])
if not value then return { '', 0 } end
return { value, math.max(redis.call('PTTL', KEYS[1]), 1) }
