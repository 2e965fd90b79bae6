-- Takes or renews a single-key lock: SET NX PX with a value that other clients cannot guess.
--
-- KEYS[1]  the lock: a key that other libraries use as well
-- KEYS[2]  the counter of tokens
-- KEYS[3]  the waiting clients of leasehold, as in redlock/lua/vote.lua
-- ARGV[1]  the value: 'leasehold:' client(11) claim(22) token(19) ' kind lease since ...'
-- ARGV[2]  the lease in ms
-- ARGV[3]  the life of the counter in ms; '' if tokens are not counted
-- ARGV[4]  the client (11) and since when it waits in microseconds, if it wants a notification of
--          the release; else ''
-- ARGV[5]  'K' to renew the lock only if the claim holds it: the key does not show whether the
--          claim has lost it; 'R' to take a free lock again as well: the value then ends in ' +'
--          and the number of this renewal; else ''
-- replies  as redlock/lua/vote.lua; with G, instead of ms, the number of the renewal that took the
--          lock again, 0 for the first grant
local sub = string.sub
local key, claim, proposal = KEYS[1], sub(ARGV[1], 22, 43), sub(ARGV[1], 44, 62)
local NO_TOKEN = '0000000000000000000'
local value, last = redis.call('GET', key), NO_TOKEN
local function reply(outcome, held, number)
    return outcome .. 'Y' .. last .. held .. number .. claim
end
local function renewal(of)
    return string.format('%010d', string.match(of, ' %+(%d+)$') or 0)
end
if value and sub(value, 1, 43) ~= sub(ARGV[1], 1, 43) then
    if ARGV[4] ~= '' then
        -- Without the permission to publish, waiters poll.
        redis.pcall('ZADD', KEYS[3], 'NX', sub(ARGV[4], 12), sub(ARGV[4], 1, 11))
        redis.pcall('PEXPIRE', KEYS[3], '60000')
    end
    local is_own = sub(value, 1, 10) == 'leasehold:' and string.match(value, '^%d+ ', 44)
    local held = is_own and sub(value, 44, 62) or NO_TOKEN
    local left = math.max(0, math.min(redis.call('PTTL', key), 9999999999))
    -- The value of another library may be any bytes, and a reply is a text.
    local holder = ARGV[4] == '' and string.match(value, '^[ -~]+$') or ''
    return reply('H', held, string.format('%010d', left)) .. holder
end
if value and sub(value, 44, 62) == proposal then
    redis.call('PEXPIRE', key, ARGV[2])
    -- The counter outlives the lease, for however long the hold is renewed.
    if ARGV[3] ~= '' then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
    return reply('G', proposal, renewal(value))
end
if ARGV[5] == 'K' or ARGV[5] == 'R' and value then
    return reply('L', proposal, '0000000000')
end
if ARGV[3] ~= '' then last = redis.call('GET', KEYS[2]) or NO_TOKEN end
-- The token of a request that a later one of the same claim has overtaken is too low as well.
if value and last < sub(value, 44, 62) then last = sub(value, 44, 62) end
if last < proposal then
    redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
    if ARGV[3] ~= '' then redis.call('SET', KEYS[2], proposal, 'PX', ARGV[3]) end
    last = proposal
    return reply('G', proposal, renewal(ARGV[1]))
end
return reply('L', proposal, '0000000000')
