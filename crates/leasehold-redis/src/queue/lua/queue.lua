-- The queue of one name: the code of all slow paths. It follows the fast path of each script, which
-- declares `key`. That script states its arguments and replies.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table of the
--          layouts record, entry, stored (the record in an entry), liveness (a part of a record),
--          tail, request, reply, absence, grant.
-- keys     All have the hash tag of the lock.
--   key          free: token '~' ...; lives a day after its last lease
--                exclusive: a record with mode 'H'; the hold lasts until the key has a day to live
--                exclusive while others wait, or after a waiter with a token hint has left: the
--                same with mode 'W', and the tail
--                shared: token 'L' ' v1 taken capacity next_seq refreshed notified'
--                'v1' is the version of the layout. A free lock has none: any version can read its
--                token.
--   key:claims   hash: claim -> entry, with mode 'H' or 'Q', of all claims but an exclusive holder
--   key:queue    sorted set of the waiters, by order of arrival
--   key:holders  sorted set of the holders of shares, by deadline
--   key:ended    how the last hold ended that its client did not release; see hold_end in layout.rs
--   HISTORY      one for all locks, only with a wait after a failover: the beginning of the
--                server's master_replid, and when a script first saw it
--   LONGEST      one for all locks, only with a wait after a failover: the longest lease of all
--                clients in ms; longest_lease.lua writes it
--
-- Times are microseconds of this server, leases milliseconds. No script writes before it has
-- checked all key types.
local call, sub, match, format = redis.call, string.sub, string.match, string.format
local DAY, HOUR, WHOLE = 86400000, 3600000, 1073741824
-- Redis formats a number in an argument as a fraction, which takes longer than a string.
local ONE_DAY, TWO_DAYS = '86400000', '172800000'
local NO_NONCE, NO_SERVER, NO_CLAIM = '-----------', '----------', '----------------------'
local VERSION = ' v1'
-- Ten years in microseconds. A token that far ahead is damage: above 2^53 a double cannot count by
-- one.
local YEARS = 315576000000000
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local CLAIMS, QUEUE, HOLDERS, ENDED
local function at(name_key)
    key = name_key
    CLAIMS, QUEUE, HOLDERS, ENDED =
        key .. ':claims', key .. ':queue', key .. ':holders', key .. ':ended'
end

-- `exclusive_holder` is the record of the exclusive holder, until `exclusive_deadline`. The next
-- token must exceed `min_token`. `dirty` is set when the keys differ from this table. `load` sets
-- the other fields.
local lock = { min_token = 0, next_seq = 0, refreshed = 0, notified = NO_CLAIM }

-- After a failover, a master may lack the last grants of the one before. With the longest lease of
-- the client's URL in ms, the scripts of a request grant nothing until this time has passed since
-- one of them first saw the history of this master. If another client has a longer lease, that one
-- counts.
local longest_lease
local HISTORY, MONTH = 'leasehold:{history}:since', '2592000000'
local LONGEST = 'leasehold:{history}:longest'
local withheld_until
local function withheld()
    if not longest_lease then return false end
    if not withheld_until then
        local history = match(call('INFO', 'replication'), 'master_replid:(%w%w%w%w%w%w%w%w%w%w)')
        local seen = call('GET', HISTORY) or ''
        if sub(seen, 1, 10) == history then
            call('PEXPIRE', HISTORY, MONTH)
        else
            seen = history .. format('%016d', now)
            call('SET', HISTORY, seen, 'PX', MONTH)
        end
        local of_all = tonumber(call('GET', LONGEST)) or 0
        if of_all == tonumber(longest_lease) then call('PEXPIRE', LONGEST, MONTH) end
        withheld_until = tonumber(sub(seen, 11)) + math.max(longest_lease, of_all) * 1000
    end
    return now < withheld_until
end

-- The fields of a record.
local function claim_of(record) return sub(record, @record.claim@) end
local function nonce_of(record) return sub(record, @record.nonce@) end
local function client_of(record) return sub(record, @record.client@) end
local function epoch_of(record) return sub(record, @record.epoch@) end
local function server_of(record) return sub(record, @record.server@) end
-- How long, in ms, the client trusts a connection that is gone. No contender may wait less.
local function grace_of(record) return sub(record, @record.grace@) end
local function link_of(record) return sub(record, @record.client..grace@) end
local function holds(record) return sub(record, @record.mode@) == 'H' end

-- A mutex counts as a writer; see Share::units.
local function units(record)
    local weight, capacity = match(record, '^ (%d+) (%d+)', @record.words:first@)
    if capacity == '1' then return WHOLE, WHOLE end
    return tonumber(weight), tonumber(capacity)
end

local function lease_of(record)
    return match(record, '^ %d+ %d+ (%d+)', @record.words:first@) * 1000
end

-- The claim of this request. Its standing is in the reply, not in a notification.
local caller
local function notify(record, what)
    if claim_of(record) == caller then return end
    -- Without the permission to publish, waiters notice a change by polling.
    -- A grant names its lock, so that a client can release a claim that it no longer has.
    local lock_key = sub(what, 1, 1) == 'H' and key or ''
    local message = what .. claim_of(record) .. lock_key
    redis.pcall('PUBLISH', 'leasehold:inbox:' .. client_of(record), message)
end

local function connected(record)
    local result = redis.pcall('PUBSUB', 'NUMSUB', 'leasehold:alive:' .. client_of(record))
    return result.err ~= nil or tonumber(result[2]) > 0
end

-- Whether a missing connection proves an absence: the claim is bound to this very master.
-- Subscriptions are not replicated, so after a failover the new master has the records of all
-- claims and the connections of none. A client may not have connected again yet, or may still be
-- connected to the former master, which goes on replying to its pings. So a record names the
-- history of the master of its connection, and a promotion begins another history. Until its next
-- script, such a claim ends with its lease only. A script reads the history once, because that
-- takes half of the time of a check.
local own_history
local function same_server(record)
    if server_of(record) == NO_SERVER then return false end
    if own_history == nil then
        local info = redis.pcall('INFO', 'replication')
        own_history = type(info) == 'string'
            and match(info, 'master_replid:(%w%w%w%w%w%w%w%w%w%w)')
    end
    return own_history == server_of(record)
end

local function absent(record)
    return server_of(record) ~= NO_SERVER and not connected(record) and same_server(record)
end

-- Returns the record of a claim and its deadline, from `key` or from key:claims.
local function read(claim)
    if lock.exclusive_holder and claim_of(lock.exclusive_holder) == claim then
        return lock.exclusive_holder, lock.exclusive_deadline
    end
    local entry = call('HGET', CLAIMS, claim)
    if entry then return sub(entry, @entry.record@), tonumber(sub(entry, @entry.deadline@)) end
end

local function write(record, deadline)
    call('HSET', CLAIMS, claim_of(record), format('%016d', deadline) .. record)
end

-- Returns the record of an exclusive holder while others wait, in the form of any holder's record.
local function exclusive_record(state)
    return sub(state, @record.token@) .. 'H' .. sub(state, @record.claim:first@, -@tail:len@ - 1)
end

-- The last hold that this script has ended, and why.
local last_end
local function note_end(record, reason, seen_by)
    last_end = { token = sub(record, @record.token@), reason = reason, seen_by = seen_by or '' }
end

-- Nothing depends on it: it may fail, and comes after the other writes.
local function save_end()
    if not last_end then return end
    local followed_by = format('%016d', lock.last_token)
    redis.pcall('SET', ENDED, last_end.token .. last_end.reason .. followed_by .. last_end.seen_by,
        'PX', ONE_DAY)
end

-- Reads the exclusive holder. If its lease is over, it is notified.
local function load_exclusive(state, mode)
    local record = state
    if mode == 'W' then
        record = exclusive_record(state)
        lock.next_seq = tonumber(sub(state, @tail.next_seq@))
        lock.min_token = tonumber(sub(state, @tail.min_token@))
        lock.refreshed = tonumber(sub(state, @tail.refreshed@))
        lock.notified = sub(state, @tail.notified@)
    end
    local left = call('PTTL', key) - DAY
    if left == -1 - DAY then
        -- A user removed the key's expiry. It ends a lease from now.
        left = lease_of(record) / 1000
        call('PEXPIRE', key, left + DAY)
    end
    local _
    _, lock.capacity = units(record)
    if left > 0 then
        lock.exclusive_holder, lock.exclusive_deadline = record, now + left * 1000
        lock.taken = lock.capacity
    else
        lock.dirty = true
        note_end(record, 'L')
        notify(record, 'G')
    end
end

-- Returns why a state cannot be used: foreign, of another version, or damaged. Returns nothing if
-- it can be used.
local function refusal(state)
    if state == '' then return end
    local number, mode = match(state, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)([~HWL])')
    if not number then return 'FOREIGN the key ' .. key .. ' is not of leasehold' end
    local version = mode ~= '~'
        and sub(state, mode == 'L' and @record.claim:first@ or @record.version:first@)
    if version and sub(version, 1, 4) ~= VERSION .. ' ' then
        return 'VERSION the key ' .. key .. ' has the layout '
            .. (match(version, '^ (v%d+) ') or 'v0') .. ', not v1'
    end
    if tonumber(number) > now + YEARS then
        return 'FUTURE the token ' .. number .. ' of ' .. key
            .. ' is more than ten years ahead of this server'
    end
end

-- Reads the lock into `lock`. Returns the error to reply with if that fails.
local function load(name_key)
    at(name_key)
    local state = call('GET', key) or ''
    lock.count = call('HLEN', CLAIMS)
    lock.waiting, lock.holding = call('ZCARD', QUEUE), call('ZCARD', HOLDERS)
    local failure = refusal(state)
    if failure then return failure end
    lock.last_token = tonumber(sub(state, @record.token@)) or 0
    local mode = sub(state, @record.mode@)
    if mode == 'L' then
        local taken, capacity, next_seq, refreshed, notified =
            match(state, '^ v1 (%d+) (%d+) (%d+) (%d+) (%S*)',
            @record.claim:first@)
        lock.taken, lock.capacity = tonumber(taken), tonumber(capacity)
        lock.next_seq = tonumber(next_seq)
        lock.refreshed, lock.notified = tonumber(refreshed), notified
    end
    local shared = mode == 'L' or mode == 'W' and lock.holding == 0
    if lock.count > 0 and not shared or lock.count ~= lock.waiting + lock.holding then
        -- A user deleted one of the keys. The claims in the others are gone.
        call('DEL', CLAIMS, QUEUE, HOLDERS)
        lock.count, lock.waiting, lock.holding, lock.dirty = 0, 0, 0, true
    end
    if lock.holding == 0 then lock.taken = 0 end
    if mode == 'H' or mode == 'W' then load_exclusive(state, mode) end
end

-- Lets a key live for two days from now: when it is new, with each renewal, and at least once an
-- hour.
local function refresh(which) call('PEXPIRE', which, TWO_DAYS) end

local function refresh_all()
    for _, which in ipairs({ CLAIMS, QUEUE, HOLDERS }) do refresh(which) end
end

local function add(record, deadline)
    write(record, deadline)
    lock.count, lock.dirty = lock.count + 1, true
    if lock.count == 1 then refresh(CLAIMS) end
end

local function hold(record, deadline)
    local weight, capacity = units(record)
    lock.taken, lock.capacity, lock.dirty = lock.taken + weight, capacity, true
    if weight == capacity then
        lock.exclusive_holder, lock.exclusive_deadline = record, deadline
        return
    end
    add(record, deadline)
    call('ZADD', HOLDERS, format('%d', deadline), claim_of(record))
    lock.holding = lock.holding + 1
    if lock.holding == 1 then refresh(HOLDERS) end
end

local function wait(record, deadline)
    local _
    _, lock.capacity = units(record)
    lock.next_seq, lock.waiting = lock.next_seq + 1, lock.waiting + 1
    add(record, deadline)
    call('ZADD', QUEUE, format('%d', lock.next_seq), claim_of(record))
    if lock.waiting == 1 then refresh(QUEUE) end
end

local function drop(record)
    local claim = claim_of(record)
    lock.dirty = true
    if lock.exclusive_holder and claim_of(lock.exclusive_holder) == claim then
        lock.exclusive_holder, lock.taken = nil, 0
        return
    end
    call('HDEL', CLAIMS, claim)
    lock.count = lock.count - 1
    if holds(record) then
        call('ZREM', HOLDERS, claim)
        lock.taken, lock.holding = lock.taken - units(record), lock.holding - 1
    else
        call('ZREM', QUEUE, claim)
        lock.waiting = lock.waiting - 1
    end
end

local function expire()
    if lock.holding == 0 then return end
    local max = format('%d', now)
    local expired = call('ZRANGEBYSCORE', HOLDERS, '-inf', max, 'LIMIT', '0', '100')
    for _, claim in ipairs(expired) do
        local record = read(claim)
        drop(record)
        note_end(record, 'L')
        notify(record, 'G')
    end
end

-- Returns the token of a grant. The tokens that the claim reserves are below it, and above all
-- earlier tokens.
local function token(record)
    local count = 1 + (match(record, ' %+(%d+)$') or 0)
    lock.last_token = math.max(lock.last_token + count, now, lock.min_token + count)
    return format('%016d', lock.last_token)
end

-- Returns a waiter's record as the record of a holder.
local function granted(record)
    local share_and_lease, rest = match(record, '^( %d+ %d+ %d+) %d+(.*)$', @record.words:first@)
    return token(record) .. 'H' .. claim_of(record) .. NO_NONCE .. link_of(record) .. VERSION
        .. share_and_lease .. format(' %d', now / 1000) .. rest
end

local function waiter_at(rank)
    if rank >= lock.waiting then return end
    return read(call('ZRANGE', QUEUE, format('%d', rank), format('%d', rank))[1])
end

-- Notes the waiter that is next, and notifies it once.
local function note_next(record)
    local claim = record and claim_of(record) or NO_CLAIM
    if lock.notified == claim then return end
    lock.notified, lock.dirty = claim, true
    if record then notify(record, 'N') end
end

-- How many waiters without a connection a script passes over: half of them at the front, and half
-- behind that. A client that died with 10,000 waiters would stop the server for 60 ms otherwise.
local ABSENT_MAX = 100
local is_unfinished = false

-- Returns where the search for a live waiter goes on, behind a front without connections: at the
-- waiter that was noted as next, because all waiters ahead of it were without a connection then.
-- If the caller is one of those, it has a connection again. Others of them may have one too, and
-- are passed over here although they are alive. They lose this grant and not their position: a
-- client that is connected again sends scripts of its own, in which its claim is the caller.
local function rank_behind(front)
    local noted = call('ZRANK', QUEUE, lock.notified)
    if not noted then return front end
    local own = caller and call('ZRANK', QUEUE, caller) or noted
    return math.max(front, math.min(noted, own))
end

-- Notes where the next script goes on. A waiter that is next sends one soon: the caller, if it is
-- a waiter, and the last one, which is the least likely to be absent too.
local function leave_unfinished(rank)
    is_unfinished = true
    note_next(waiter_at(rank) or waiter_at(rank - 1))
    local last = waiter_at(lock.waiting - 1)
    if last then notify(last, 'N') end
end

-- Grants to the waiters at the front that fit and are alive, and notifies the waiter that is next.
-- A waiter without a connection is passed over and keeps its position until its lease ends. With
-- `check_next`, the next waiter is determined even if it does not fit yet. Without it, the waiter
-- that was notified before remains the next.
local function settle(check_next)
    local rank, checked, passed = 0, false, 0
    while true do
        local record, deadline = waiter_at(rank)
        -- Waiters that arrive later are found behind the last one.
        if not record then return note_next(passed >= ABSENT_MAX / 2 and waiter_at(rank - 1)) end
        local weight, capacity = units(record)
        local fits = lock.taken + weight <= capacity and not withheld()
        if not fits and (checked or not check_next) then
            if not checked and read(lock.notified) then return end
            return note_next(record)
        end
        if deadline <= now then
            drop(record)
            notify(record, 'G')
        elseif claim_of(record) ~= caller and absent(record) then
            rank, passed = rank + 1, passed + 1
            if passed == ABSENT_MAX / 2 then rank = rank_behind(rank) end
            if passed == ABSENT_MAX then return leave_unfinished(rank) end
        elseif fits then
            drop(record)
            record = granted(record)
            hold(record, now + lease_of(record))
            notify(record, 'H' .. sub(record, @record.token@))
            lock.notified = NO_CLAIM
        else
            checked = true
        end
    end
end

-- Whether a waiter has brought a hint that no token exceeds yet. It outlives that waiter.
local function hint_is_pending() return lock.min_token > lock.last_token end

-- Writes the record of the exclusive holder, with the tail if others wait or a hint is kept.
local function save_exclusive()
    local life = format('%d', math.ceil((lock.exclusive_deadline - now) / 1000) + DAY)
    local state = lock.exclusive_holder
    if lock.waiting > 0 or hint_is_pending() then
        state = format('%sW%s\n%08d%012d%016d%013d%s', sub(state, @record.token@),
            sub(state, @record.claim:first@),
            lock.waiting, lock.next_seq, lock.min_token, lock.refreshed, lock.notified)
    end
    call('SET', key, state, 'PX', life)
end

-- Writes the changes. A lock without claims keeps only its token.
local function save_state()
    if lock.count > 0 and now / 1000 - lock.refreshed > HOUR then
        lock.refreshed = math.floor(now / 1000)
        refresh_all()
    end
    if lock.exclusive_holder then return save_exclusive() end
    local last = format('%016d', math.max(lock.last_token, lock.min_token))
    if lock.count == 0 then
        call('SET', key, last .. '~', 'PX', ONE_DAY)
        return
    end
    local state = format('%sL v1 %d %d %d %d %s', last, lock.taken, lock.capacity, lock.next_seq,
        lock.refreshed,
        lock.notified)
    call('SET', key, state, 'PX', TWO_DAYS)
end

local function save()
    save_state()
    save_end()
end
