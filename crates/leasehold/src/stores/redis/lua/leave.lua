-- Takes a claim out of the line, held or waiting, and hands over to the next.
--
-- KEYS[1]  the lock
-- ARGV[1]  'H' and the claim (22)
-- ARGV[2]  the client that asks; if it is another's claim, its client is told
-- replies  '1' if the claim was there, else '0'; and the claim
local key = KEYS[1]
if redis.call('GETRANGE', key, '16', '38') == ARGV[1] then
    if type(redis.pcall('SETRANGE', key, '16', '~')) == 'table' then
        -- Out of memory: a script may still write after it has written what needs none.
        redis.call('PEXPIRE', key, 86400000)
        redis.call('SETRANGE', key, '16', '~')
    end
    return '1' .. string.sub(ARGV[1], 2)
end
