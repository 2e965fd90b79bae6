-- Who has the lock of the articles. Writes nothing.
--
-- KEYS[1]  the lock
-- replies  the value, '' if there is none; ms until its lease ends
local value = redis.call('GET', KEYS[1])
if not value then return { '', 0 } end
local left = redis.call('PTTL', KEYS[1])
return { value, left < 0 and 1 or left }
