-- Takes the lock of the articles, once more too: SET NX PX with a value that nobody can guess.
--
-- KEYS[1]  the lock: a key that others use as well
-- KEYS[2]  where tokens are counted
-- KEYS[3]  the clients of ours that wait, as in vote.lua
-- ARGV[1]  the value: 'leasehold:' client(11) claim(22) token(19) ' lease since ...'
-- ARGV[2]  the lease in ms
-- ARGV[3]  for how many ms tokens are remembered; '' if they are not counted
-- ARGV[4]  the client (11) and since when it waits in microseconds, if it is to be told when the lock is free; else ''
-- ARGV[5]  'K' to keep it only, if it is held: nothing here tells a lock that was lost from one that was never held; 'R' to take it
--          again as well if it is free: the value ends in ' +' and the number of this renewal then; else ''
-- replies  as vote.lua; with G, instead of ms, the number of the renewal by which it was taken again, 0 if by none
local sub = string.sub
local key, claim, proposal = KEYS[1], sub(ARGV[1], 22, 43), sub(ARGV[1], 44, 62)
local NOBODY = '0000000000000000000'
local value, last = redis.call('GET', key), NOBODY
local function reply(reply_text, held, left) return reply_text .. 'Y' .. last .. held .. left .. claim end
local function renewal(of) return string.format('%010d', string.match(of, ' %+(%d+)$') or 0) end
if value and sub(value, 1, 43) ~= sub(ARGV[1], 1, 43) then
    if ARGV[4] ~= '' then
        -- Without the permission nobody is told, and everybody finds out by asking.
        redis.pcall('ZADD', KEYS[3], 'NX', sub(ARGV[4], 12), sub(ARGV[4], 1, 11))
        redis.pcall('PEXPIRE', KEYS[3], '60000')
    end
    local held = sub(value, 1, 10) == 'leasehold:' and string.match(value, '^%d+ ', 44) and sub(value, 44, 62) or NOBODY
    return reply('H', held, string.format('%010d', math.max(0, math.min(redis.call('PTTL', key), 9999999999))))
end
if value and sub(value, 44, 62) == proposal then
    redis.call('PEXPIRE', key, ARGV[2])
    return reply('G', proposal, renewal(value))
end
if ARGV[5] == 'K' or ARGV[5] == 'R' and value then return reply('L', proposal, '0000000000') end
if ARGV[3] ~= '' then last = redis.call('GET', KEYS[2]) or NOBODY end
-- A request that comes after a later one of the same claim is too low as well.
if value and last < sub(value, 44, 62) then last = sub(value, 44, 62) end
if last < proposal then
    redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
    if ARGV[3] ~= '' then redis.call('SET', KEYS[2], proposal, 'PX', ARGV[3]) end
    last = proposal
    return reply('G', proposal, renewal(ARGV[1]))
end
return reply('L', proposal, '0000000000')
