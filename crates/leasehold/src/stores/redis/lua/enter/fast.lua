-- Puts a claim in line, or finds it there, and says where it stands.
--
-- KEYS[1]  the lock: leasehold:{name}
-- ARGV[1]  the record the lock has if this claim is its only holder: token, 'H', claim, ... (see record.rs).
--          Its token is a proposal: what the client takes for the server's clock, or more than the last it saw.
--          All zeros: never without looking at the line.
-- ARGV[2]  the life of that record in ms: its lease and a day
-- ARGV[3]  how (Q wait in line, R refuse to wait, F only find, L only look: a claim that waits is not kept for another
--          lease, and nothing is written unless something has changed), hint (16), a fresh nonce (11), and for each
--          absence the client has seen for the holder's grace: claim (22), nonce (11)
-- ARGV[4]  the second of the server's clock after which the client has given up on this request
-- replies  number (16: token, or how many are ahead), standing (H held, N next, Q queued, G gone), claim (22);
--          all but H go on with the last token of the name (16): whoever tells of it, or of an earlier one, is late;
--          then the position among those who wait (8, 1 is first);
--          N, G and a look go on with: ms until a lease ends (10), and for each absent holder: claim (22), nonce (11),
--          its grace in ms (7)
--
-- A request that comes too late does nothing: its client may have left.
local clock = redis.call('TIME')
if clock[1] + 0 > ARGV[4] + 0 then
    return redis.error_reply('LATE ' .. clock[1] .. ' ' .. clock[2])
end
-- Free, and used in the same ten seconds: then the proposal cannot be far off. Only digits are compared: what follows
-- them, in the order of the server's locale, would let a token be given twice.
local key, claim = KEYS[1], ARGV[1]
local state = redis.call('GET', key) or ''
local last, mode, proposal = string.sub(state, 1, 16), string.sub(state, 17, 17), string.sub(claim, 1, 16)
if mode == '~' and last < proposal and string.sub(last, 1, 9) == string.sub(proposal, 1, 9) then
    redis.call('SET', key, claim, 'PX', ARGV[2])
    return string.sub(claim, 1, 39)
end
-- Others wait for the whole already, and one of them knows that it is next: this one waits behind them, which changes
-- nothing for anybody. The layout is that of queue.lua, which does all else.
local queues = mode == 'W' and string.sub(ARGV[3], 1, 1) == 'Q' and string.sub(ARGV[3], 2, 17) <= last
if queues and string.sub(state, -22) ~= '----------------------' then
    local capacity, lease = string.match(claim, '^ v1 %d+ (%d+) (%d+)', 87)
    local id = string.sub(claim, 18, 39)
    local fits = capacity == string.match(state, '^ v1 %d+ (%d+)', 87) and id ~= string.sub(state, 18, 39)
    local refreshed = tonumber(string.sub(state, -35, -23))
    if fits and clock[1] * 1000 - refreshed < 3600000 and redis.call('PTTL', key) > 86400000 then
        local deadline = string.format('%016d', clock[1] * 1000000 + clock[2] + lease * 1000)
        local record = deadline .. '0000000000000000Q' .. string.sub(claim, 18)
        if redis.call('HSETNX', key .. ':claims', id, record) == 1 then
            local waiting, next_seq = string.sub(state, -71, -64), string.sub(state, -63, -52) + 1
            redis.call('ZADD', key .. ':queue', string.format('%d', next_seq), id)
            -- Somebody deleted the keys: the new ones have no end yet.
            if redis.call('HLEN', key .. ':claims') == 1 then
                redis.call('PEXPIRE', key .. ':claims', '172800000')
                redis.call('PEXPIRE', key .. ':queue', '172800000')
            end
            local count = string.format('%08d%012d', waiting + 1, next_seq)
            redis.call('SETRANGE', key, string.format('%d', #state - 71), count)
            local position = string.format('%08d', waiting + 1)
            return '00000000' .. position .. 'Q' .. id .. last .. position
        end
    end
end
