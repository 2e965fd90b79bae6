-- Adds a claim to the queue of a name or finds it there, and returns its standing.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table.
-- KEYS[1]  the lock: leasehold:{name}
-- ARGV[1]  the claim's record as the lock's only holder. Its token is a proposal: the server's
--          clock as the client knows it, or more than the last token that the client received. The
--          server's clock replaces a proposal that is behind it. Zeros disable the fast path.
-- ARGV[2]  the life of that record in ms: its lease and a day
-- ARGV[3]  the request's settings: mode, token hint, a fresh nonce, and the absences that have
--          lasted for their grace. Modes: Q queue, R refuse to wait, F refresh a claim that is
--          there, K the same for a hold that is not renewed: its lease stays as it is, L poll:
--          check the holders, do not extend the lease of a waiter, and write only changes. With F,
--          K and L the claim keeps the share of its record.
-- ARGV[4]  until when the client waits for this request, in seconds of the server's clock
-- ARGV[5]  only with a wait after a failover: the longest lease of the client's URL, in ms
-- replies  the fields of `reply` in layout.rs. Standings: H held, N next, Q queued, G gone. H ends
--          after the claim. Q ends after the position, except for a poll. A claim that was refused
--          gets the records of the holders too, each after a newline.
--
-- A late request has no effect: its client may have left already.
local clock = redis.call('TIME')
if clock[1] + 0 > ARGV[4] + 0 then
    return redis.error_reply('LATE ' .. clock[1] .. ' ' .. clock[2])
end
-- Fast path 1: the lock is free, and its token is at most ten seconds old, so the proposal is close
-- to the clock. Only digits are compared: the order of any other characters depends on the server's
-- locale, and a token could repeat.
local sub, key, claim = string.sub, KEYS[1], ARGV[1]
local state = redis.call('GET', key) or ''
local last, mode = sub(state, @record.token@), sub(state, @record.mode@)
local proposal = sub(claim, @record.token@)
-- The master before a failover may have given tokens up to this moment, and this one may lack them.
local earliest = clock[1] .. sub('00000' .. clock[2], -6)
if proposal < earliest and proposal ~= '0000000000000000' then
    proposal = earliest
    claim = earliest .. sub(claim, @record.mode:first@)
end
if mode == '~' and last < proposal and sub(last, 1, 9) == sub(proposal, 1, 9) then
    redis.call('SET', key, claim, 'PX', ARGV[2])
    return sub(claim, @record.token..claim@)
end
-- Fast path 2: the lock is held exclusively, and the first waiter knows that it is next. The new
-- claim waits behind the others, and no standing changes. queue.lua handles all other cases.
local queues = mode == 'W' and string.sub(ARGV[3], @request.mode@) == 'Q'
    and string.sub(ARGV[3], @request.hint@) <= last
if queues and string.sub(state, @tail.notified@) ~= '----------------------' then
    local capacity, lease = string.match(claim, '^ v1 %d+ (%d+) (%d+)', @record.version:first@)
    local id = string.sub(claim, @record.claim@)
    local present = string.match(state, '^ v1 %d+ (%d+)', @record.version:first@)
    local fits = capacity == present and id ~= string.sub(state, @record.claim@)
    local refreshed = tonumber(string.sub(state, @tail.refreshed@))
    if fits and clock[1] * 1000 - refreshed < 3600000 and redis.call('PTTL', key) > 86400000 then
        local deadline = string.format('%016d', clock[1] * 1000000 + clock[2] + lease * 1000)
        local entry = deadline .. '0000000000000000Q' .. string.sub(claim, @record.claim:first@)
        local claims, queue = key .. ':claims', key .. ':queue'
        -- No write comes before the types of both keys are known.
        local count = redis.call('HLEN', claims)
        local next_seq = string.sub(state, @tail.next_seq@) + 1
        if redis.call('ZADD', queue, 'NX', string.format('%d', next_seq), id) == 1 then
            redis.call('HSET', claims, id, entry)
            local waiting = string.sub(state, @tail.waiting@)
            -- If a user deleted the keys, the new ones have no expiry yet.
            if count == 0 then
                redis.call('PEXPIRE', claims, '172800000')
                redis.call('PEXPIRE', queue, '172800000')
            end
            local counters = string.format('%08d%012d', waiting + 1, next_seq)
            local offset = string.format('%d', #state + @tail.waiting:first@)
            redis.call('SETRANGE', key, offset, counters)
            local position = string.format('%08d', waiting + 1)
            return '00000000' .. position .. 'Q' .. id .. last .. position
        end
    end
end
