-- The line of one name, for all that is not the fast path. Follows each script's own head, which declares `key`.
--
-- Keys, all with the hash tag of the lock:
--   key           free:      token(16) '~' ...                       lives a day after its last lease
--                 held whole: token(16) 'H' claim(22) nonce(11) client(11) epoch(8) server(10) grace(7)
--                            ' v1 weight capacity lease since ...'
--                            held for as long as the key lives longer than a day
--                 and others wait: the same with 'W', and at its end
--                            '\n' waiting(8) next_seq(12) min_next_token(16) refreshed(13) notified(22)
--                 shared:    token(16) 'L' ' v1 taken capacity next_seq refreshed notified'
--                 'v1' is the version of the layout. A free lock has none: any version can read its token.
--   key:claims    hash: claim -> deadline(16), and the record as above with 'H' or 'Q', of all but a holder of the whole
--   key:queue     sorted set of those who wait, by place
--   key:holders   sorted set of those who share it, by deadline
-- Times are microseconds of this server, leases milliseconds. Nothing is written before all types are known to be right.
local call, sub, match, format = redis.call, string.sub, string.match, string.format
local DAY, HOUR, WHOLE = 86400000, 3600000, 1073741824
-- Commands take words: a number would first be written out, with all that a fraction needs.
local ONE_DAY, TWO_DAYS = '86400000', '172800000'
local NO_NONCE, NO_SERVER, NO_CLAIM = '-----------', '----------', '----------------------'
-- The layout's version and where it stands in a record, where the terms begin, and how long the end is if others wait.
local VERSION, VERSION_AT, SHARE_AT, END = ' v1', 87, 90, 72
-- Ten years in microseconds. Above 2^53 doubles stop counting, so a token that far ahead is damage.
local YEARS = 315576000000000
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local CLAIMS, QUEUE, HOLDERS
local function at(name_key)
    key, CLAIMS, QUEUE, HOLDERS = name_key, name_key .. ':claims', name_key .. ':queue', name_key .. ':holders'
end

-- `exclusive_holder` is the record of who holds the whole, until `exclusive_deadline`; `min_next_token` a token that the next one must exceed.
-- `dirty` says that the keys no longer say what `line` does.
local lock = {
    last_token = 0, min_next_token = 0, taken = 0, capacity = 0, next_seq = 0, refreshed = 0, notified = NO_CLAIM,
    count = 0, waiting = 0, holding = 0, dirty = false,
}

-- A record is what stands in `key` if the whole is held, and in key:claims after the deadline.
local function claim_of(record) return sub(record, 18, 39) end
local function nonce_of(record) return sub(record, 40, 50) end
local function client_of(record) return sub(record, 51, 61) end
local function epoch_of(record) return sub(record, 62, 69) end
local function server_of(record) return sub(record, 70, 79) end
-- How long, in ms, its client counts on a connection that has gone: no other may count less.
local function grace_of(record) return sub(record, 80, 86) end
local function link_of(record) return sub(record, 51, 86) end
local function holds(record) return sub(record, 17, 17) == 'H' end

-- A mutex counts as a writer; see Share::units.
local function units(record)
    local weight, capacity = match(record, '^ (%d+) (%d+)', SHARE_AT)
    if capacity == '1' then return WHOLE, WHOLE end
    return tonumber(weight), tonumber(capacity)
end

local function lease_of(record) return match(record, '^ %d+ %d+ (%d+)', SHARE_AT) * 1000 end

-- The claim that asks; it reads its standing in the reply.
local caller
local function notify(record, what)
    if claim_of(record) == caller then return end
    -- Without the permission nobody is told, and everybody finds out by caller.
    -- A grant names its lock, so that a client can release a claim that it no longer has.
    local lock = sub(what, 1, 1) == 'H' and key or ''
    redis.pcall('PUBLISH', 'leasehold:inbox:' .. client_of(record), what .. claim_of(record) .. lock)
end

local function connected(record)
    local result = redis.pcall('PUBSUB', 'NUMSUB', 'leasehold:alive:' .. client_of(record))
    return result.err ~= nil or tonumber(result[2]) > 0
end

-- Whether the absence of its connection says anything about this claim: it is bound to this very master.
local function same_server(record)
    if server_of(record) == NO_SERVER then return false end
    local result = redis.pcall('INFO', 'replication')
    if type(result) == 'table' and result.err then return false end
    return match(result, 'master_replid:(%w%w%w%w%w%w%w%w%w%w)') == server_of(record)
end

local function absent(record)
    return server_of(record) ~= NO_SERVER and not connected(record) and same_server(record)
end

-- The record of a claim, wherever it stands, and its deadline.
local function read(claim)
    if lock.exclusive_holder and claim_of(lock.exclusive_holder) == claim then return lock.exclusive_holder, lock.exclusive_deadline end
    local entry = call('HGET', CLAIMS, claim)
    if entry then return sub(entry, 17), tonumber(sub(entry, 1, 16)) end
end

local function write(record, deadline)
    call('HSET', CLAIMS, claim_of(record), format('%016d', deadline) .. record)
end

-- Who holds the whole: its record as that of any holder. Its lease may be over, and it is told so.
local function load_exclusive(state, mode)
    local record = state
    if mode == 'W' then
        record = sub(state, 1, 16) .. 'H' .. sub(state, 18, -END - 1)
        lock.next_seq, lock.min_next_token = tonumber(sub(state, -63, -52)), tonumber(sub(state, -51, -36))
        lock.refreshed, lock.notified = tonumber(sub(state, -35, -23)), sub(state, -22)
    end
    local left = call('PTTL', key) - DAY
    if left == -1 - DAY then
        -- Somebody took its end away; it has one again, a lease from now.
        left = lease_of(record) / 1000
        call('PEXPIRE', key, left + DAY)
    end
    local _
    _, lock.capacity = units(record)
    if left > 0 then
        lock.exclusive_holder, lock.exclusive_deadline, lock.taken = record, now + left * 1000, lock.capacity
    else
        lock.dirty = true
        notify(record, 'G')
    end
end

-- Why a state cannot be used: not leasehold's, of another version, or damaged. Nothing if it can.
local function refusal(state)
    if state == '' then return end
    local number, mode = match(state, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)([~HWL])')
    if not number then return 'FOREIGN the key ' .. key .. ' is not of leasehold' end
    local version = mode ~= '~' and sub(state, mode == 'L' and 18 or VERSION_AT)
    if version and sub(version, 1, 4) ~= VERSION .. ' ' then
        return 'VERSION the key ' .. key .. ' has the layout ' .. (match(version, '^ (v%d+) ') or 'v0') .. ', not v1'
    end
    if tonumber(number) > now + YEARS then
        return 'FUTURE the token ' .. number .. ' of ' .. key .. ' is more than ten years ahead of this server'
    end
end

-- Reads the line; a wrong answer is the error to reply with.
local function load(name_key)
    at(name_key)
    local state = call('GET', key) or ''
    lock.count, lock.waiting, lock.holding = call('HLEN', CLAIMS), call('ZCARD', QUEUE), call('ZCARD', HOLDERS)
    local wrong = refusal(state)
    if wrong then return wrong end
    lock.last_token = tonumber(sub(state, 1, 16)) or 0
    local mode = sub(state, 17, 17)
    if mode == 'L' then
        local taken, capacity, next_seq, refreshed, notified = match(state, '^ v1 (%d+) (%d+) (%d+) (%d+) (%S*)', 18)
        lock.taken, lock.capacity, lock.next_seq = tonumber(taken), tonumber(capacity), tonumber(next_seq)
        lock.refreshed, lock.notified = tonumber(refreshed), notified
    end
    local shared = mode == 'L' or mode == 'W' and lock.holding == 0
    if lock.count > 0 and not shared or lock.count ~= lock.waiting + lock.holding then
        -- Somebody deleted one of the keys; the claims of what is left are gone.
        call('DEL', CLAIMS, QUEUE, HOLDERS)
        lock.count, lock.waiting, lock.holding, lock.dirty = 0, 0, 0, true
    end
    if lock.holding == 0 then lock.taken = 0 end
    if mode == 'H' or mode == 'W' then load_exclusive(state, mode) end
end

-- Remembers the keys for two days from now on: when they are new, with each renewal, and else at least once an hour.
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
    for _, claim in ipairs(call('ZRANGEBYSCORE', HOLDERS, '-inf', format('%d', now), 'LIMIT', '0', '100')) do
        local record = read(claim)
        drop(record)
        notify(record, 'G')
    end
end

local function token()
    lock.last_token = math.max(lock.last_token + 1, now, lock.min_next_token + 1)
    return format('%016d', lock.last_token)
end

-- The record of a waiter that holds from now on.
local function granted(record)
    local terms, rest = match(record, '^( %d+ %d+ %d+) %d+(.*)$', SHARE_AT)
    return token() .. 'H' .. claim_of(record) .. NO_NONCE .. link_of(record) .. VERSION
        .. terms .. format(' %d', now / 1000) .. rest
end

local function waiter_at(rank)
    if rank >= lock.waiting then return end
    return read(call('ZRANGE', QUEUE, format('%d', rank), format('%d', rank))[1])
end

-- Notes who is next from now on, and tells it if it does not know.
local function note_next(record)
    local claim = record and claim_of(record) or NO_CLAIM
    if lock.notified == claim then return end
    lock.notified, lock.dirty = claim, true
    if record then notify(record, 'N') end
end

local function is_waiting(claim)
    local record = claim ~= NO_CLAIM and read(claim)
    return record and not holds(record)
end

-- Grants to the waiters at the front who fit and are there, and tells who is next from now on. A waiter that is not
-- there is passed over and keeps its position until its lease ends. With `check_next` the next one is looked for
-- although it does not fit yet; without, who was told before remains the next.
local function settle(check_next)
    local rank, looked = 0, false
    while true do
        local record, deadline = waiter_at(rank)
        if not record then return note_next() end
        local weight, capacity = units(record)
        local fits = lock.taken + weight <= capacity
        if not fits and (looked or not check_next) then
            if not looked and is_waiting(lock.notified) then return end
            return note_next(record)
        end
        if deadline <= now then
            drop(record)
            notify(record, 'G')
        elseif claim_of(record) ~= caller and absent(record) then
            rank = rank + 1
        elseif fits then
            drop(record)
            record = granted(record)
            hold(record, now + lease_of(record))
            notify(record, 'H' .. sub(record, 1, 16))
            lock.notified = NO_CLAIM
        else
            looked = true
        end
    end
end

-- The line of who holds the whole, which is all there is to write unless others wait.
local function save_exclusive()
    local life = format('%d', math.ceil((lock.exclusive_deadline - now) / 1000) + DAY)
    local state = lock.exclusive_holder
    if lock.waiting > 0 then
        state = format('%sW%s\n%08d%012d%016d%013d%s', sub(state, 1, 16), sub(state, 18), lock.waiting, lock.next_seq,
            lock.min_next_token, lock.refreshed, lock.notified)
    end
    call('SET', key, state, 'PX', life)
end

-- Writes what has changed. A line without anybody is folded up.
local function save()
    if lock.count > 0 and now / 1000 - lock.refreshed > HOUR then
        lock.refreshed = math.floor(now / 1000)
        refresh_all()
    end
    if lock.exclusive_holder then return save_exclusive() end
    local number = format('%016d', math.max(lock.last_token, lock.min_next_token))
    if lock.count == 0 then
        call('SET', key, number .. '~', 'PX', ONE_DAY)
        return
    end
    local state = format('%sL v1 %d %d %d %d %s', number, lock.taken, lock.capacity, lock.next_seq, lock.refreshed, lock.notified)
    call('SET', key, state, 'PX', TWO_DAYS)
end
