-- One master's vote for a claim: for the first time, once more, or to keep it.
--
-- KEYS[1]  the lock: leasehold:redlock:{name}
--            last(19) state token(19) claim(22) client(11) ' lease since ...'
--            state: '~' free, 'H' held for as long as the key lives longer than a day, so that `last` outlives the lock
-- KEYS[2]  the mark of this master
-- KEYS[3]  the clients that wait, each to be told once: by how long they do, so that all masters tell the same one
-- ARGV[1]  the record that is to stand there, with the proposed token as `last` and as `token`
-- ARGV[2]  its life in ms: its lease and a day
-- ARGV[3]  the mark as the client knows it; '' if it does not matter
-- ARGV[4]  the client (11) and since when it waits in microseconds, if it is to be told when the lock is free; else ''
-- replies  answer (G granted, H held by another, L too low), whether the mark is the same (Y, N), last(19), the token that is
--          held (19), ms until its lease ends (10), claim(22)
--
-- Only digits are compared, and always as many. What `voting.rs` says of a seat is what this does; a test compares them.
local DAY = 86400000
local sub = string.sub
local key, record, claim = KEYS[1], ARGV[1], sub(ARGV[1], 40, 61)
local state = redis.call('GETRANGE', key, '0', '60')
local same_incarnation = (ARGV[3] == '' or redis.call('GET', KEYS[2]) == ARGV[3]) and 'Y' or 'N'
local last, mode, token, proposal = sub(state, 1, 19), sub(state, 20, 20), sub(state, 21, 39), sub(record, 1, 19)
local function reply(reply_text, held, left) return reply_text .. same_incarnation .. last .. held .. left .. claim end
if mode == 'H' then
    local left = redis.call('PTTL', key)
    if left == -1 then
        -- Somebody took its end away; it has one again.
        redis.call('PEXPIRE', key, ARGV[2])
        left = tonumber(ARGV[2])
    end
    if left > DAY then
        if sub(state, 40, 61) ~= claim then
            if ARGV[4] ~= '' then
                -- Without the permission nobody is told, and everybody finds out by asking.
                redis.pcall('ZADD', KEYS[3], 'NX', sub(ARGV[4], 12), sub(ARGV[4], 1, 11))
                redis.pcall('PEXPIRE', KEYS[3], '60000')
            end
            return reply('H', token, string.format('%010d', left - DAY))
        end
        if token == proposal then
            redis.call('PEXPIRE', key, ARGV[2])
            return reply('G', token, '0000000000')
        end
    end
elseif mode ~= '~' and state ~= '' then
    return redis.error_reply('FOREIGN the key ' .. key .. ' is not of leasehold')
end
if last < proposal then
    redis.call('SET', key, record, 'PX', ARGV[2])
    last = proposal
    return reply('G', proposal, '0000000000')
end
return reply('L', proposal, '0000000000')
