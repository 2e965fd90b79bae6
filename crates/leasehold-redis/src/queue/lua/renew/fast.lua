-- Extends the leases of claims, held or waiting.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table.
-- KEYS     the lock of each claim; in a cluster, the other keys of the only lock follow
-- ARGV[1]  the claims' ids
-- ARGV[2]  the fields from nonce to grace, as the records have them if the holder is present and
--          has not reconnected
-- ARGV[3]  the life of the records in ms: their lease and a day
-- replies  the first claim; one letter for each claim; the position (8 digits, from 1) of each
--          waiter. Letters: '1' held, '0' not there, '!' a key of its lock cannot be used, 'Q'
--          waits, 'A' waits and should poll, 'a' waits, and another client has noted that a holder
--          is absent.
--
-- Fast path: the claim holds its lock exclusively, its lease has not ended, no other claim waits,
-- and no absence is noted.
local ids, liveness, life = ARGV[1], ARGV[2], ARGV[3]
local replies, others = {}, {}
for i = 1, #ids / @record.claim:len@ do
    local id = string.sub(ids, @record.claim:len@ * (i - 1) + 1, @record.claim:len@ * i)
    if redis.pcall('GETRANGE', KEYS[i], @record.mode..grace:range@) == 'H' .. id .. liveness
        and redis.call('PTTL', KEYS[i]) > 86400000 then
        redis.call('PEXPIRE', KEYS[i], life)
        replies[i] = '1'
    else
        others[#others + 1] = i
    end
end
if #others == 0 then return string.sub(ids, 1, @record.claim:len@) .. table.concat(replies) end
local key
