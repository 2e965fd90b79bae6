-- The line of a name, for people. Writes nothing.
--
-- KEYS[1]  the lock
-- replies  token of the last grant (16, zeros if none), then for each in line, holders by token and then waiters by
--          place, the record; one whose lease is over is left out
local key
