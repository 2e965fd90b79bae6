-- Keeps claims alive, waiting or held.
--
-- KEYS     the locks of the claims, each by itself
-- ARGV[1]  the claims (22 each)
-- ARGV[2]  no-nonce(11) client(11) epoch(8) server(10) grace(7), as they stand in the records of those that were not missed
--          and whose connection is still the same
-- ARGV[3]  the life of their records in ms: their lease and a day
-- replies  the first claim (22); for each claim one letter: '1' held, '0' not there, '!' a key of its lock cannot be
--          used, 'Q' waits, 'A' waits and should look, 'a' waits and another client has noted that a holder is absent;
--          and for each that waits its position among those who wait (8, 1 is first)
--
-- Most hold, are alone, and have not been missed.
local ids, liveness, life = ARGV[1], ARGV[2], ARGV[3]
local replies, others = {}, {}
for i = 1, #KEYS do
    if redis.pcall('GETRANGE', KEYS[i], '16', '85') == 'H' .. string.sub(ids, 22 * i - 21, 22 * i) .. liveness then
        redis.call('PEXPIRE', KEYS[i], life)
        replies[i] = '1'
    else
        others[#others + 1] = i
    end
end
if #others == 0 then return string.sub(ids, 1, 22) .. table.concat(replies) end
local key
