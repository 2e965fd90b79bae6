-- Votes for a claim: for the first time, again, or to renew its hold.
--
-- KEYS[1]  the lock: leasehold:redlock:{name}
--            last(19) state token(19) claim(22) client(11) ' kind lease since ...'
--            state: '~' free; 'H' held while the key lives for more than a day. So `last` outlives
--            the lock by a day.
-- KEYS[2]  the incarnation of this master
-- KEYS[3]  the waiting clients, each with the time since when it waits. Each is notified once. All
--          masters have the same order, and so notify the same client.
-- ARGV[1]  the new record, with the proposed token as `last` and as `token`
-- ARGV[2]  the life of the record in ms: the lease and a day
-- ARGV[3]  the incarnation that the client knows; '' if quarantine is off
-- ARGV[4]  the client (11) and since when it waits in microseconds, if it wants a notification of
--          the release; else ''
-- replies  outcome (G granted, H held by another claim, L token too low), whether the incarnation
--          is the same (Y, N), last(19), the held token (19), ms until its lease ends (10),
--          claim(22); after H to a client that does not wait, the record of the holder
--
-- Tokens are compared as strings of 19 digits. `votes/tests/register.rs` states the same rule; a
-- test compares the two.
local DAY = 86400000
local sub = string.sub
local key, record, claim = KEYS[1], ARGV[1], sub(ARGV[1], 40, 61)
local state = redis.call('GETRANGE', key, '0', '60')
local is_same = ARGV[3] == '' or redis.call('GET', KEYS[2]) == ARGV[3]
local same_incarnation = is_same and 'Y' or 'N'
local last, mode, token = sub(state, 1, 19), sub(state, 20, 20), sub(state, 21, 39)
local proposal = sub(record, 1, 19)
local function reply(outcome, held, left)
    return outcome .. same_incarnation .. last .. held .. left .. claim
end
if mode == 'H' then
    local left = redis.call('PTTL', key)
    if left == -1 then
        -- Another program removed the expiry of the key. Set it again.
        redis.call('PEXPIRE', key, ARGV[2])
        left = tonumber(ARGV[2])
    end
    if left > DAY then
        if sub(state, 40, 61) ~= claim then
            if ARGV[4] ~= '' then
                -- Without the permission to publish, waiters poll.
                redis.pcall('ZADD', KEYS[3], 'NX', sub(ARGV[4], 12), sub(ARGV[4], 1, 11))
                redis.pcall('PEXPIRE', KEYS[3], '60000')
            end
            local holder = ARGV[4] == '' and redis.call('GET', key) or ''
            return reply('H', token, string.format('%010d', left - DAY)) .. holder
        end
        if token == proposal then
            redis.call('PEXPIRE', key, ARGV[2])
            return reply('G', token, '0000000000')
        end
    end
elseif mode ~= '~' and state ~= '' then
    return redis.error_reply('FOREIGN the key ' .. key .. ' does not belong to leasehold')
end
if last < proposal then
    redis.call('SET', key, record, 'PX', ARGV[2])
    last = proposal
    return reply('G', proposal, '0000000000')
end
return reply('L', proposal, '0000000000')
