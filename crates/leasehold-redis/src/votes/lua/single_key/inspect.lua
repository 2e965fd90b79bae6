-- Reads the value of a single-key lock. It does not write.
--
-- KEYS[1]  the lock
-- ARGV     none
-- replies  the value, '' if the key does not exist; ms until its lease ends
local value = redis.call('GET', KEYS[1])
if not value then return { '', 0 } end
local left = redis.call('PTTL', KEYS[1])
return { value, left < 0 and 1 or left }
