-- Reads the state of a lock for people. Writes nothing.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table.
-- KEYS[1]  the lock
-- ARGV     none
-- replies  a list: the token of the last grant (16 digits, or nothing), the value of key:ended or
--          nothing, and the records of holders by token and of waiters by position, without those
--          whose lease is over. Each record follows '+' if its client is connected, '-' if the
--          connection is missing, and '?' if that is not known or not checked.
local key
