-- The line of one name, for all that is not the fast path. Follows each script's own head, which declares `key`.
--
-- Keys, all with the hash tag of the lock:
--   key           free:      token(16) '~' ...                       lives a day after its last lease
--                 held whole: token(16) 'H' claim(22) nonce(11) client(11) epoch(8) server(10) grace(7)
--                            ' v1 weight capacity lease since ...'
--                            held for as long as the key lives longer than a day
--                 and others wait: the same with 'W', and at its end
--                            '\n' waiting(8) place(12) floor(16) refreshed(13) told(22)
--                 shared:    token(16) 'L' ' v1 taken capacity place refreshed told'
--                 'v1' is the version of the layout. A free lock has none: any version can read its token.
--   key:claims    hash: claim -> deadline(16), and the record as above with 'H' or 'Q', of all but a holder of the whole
--   key:queue     sorted set of those who wait, by place
--   key:holders   sorted set of those who share it, by deadline
-- Times are microseconds of this server, leases milliseconds. Nothing is written before all types are known to be right.
local call, sub, match, format = redis.call, string.sub, string.match, string.format
local DAY, HOUR, WHOLE = 86400000, 3600000, 1073741824
-- Commands take words: a number would first be written out, with all that a fraction needs.
local ONE_DAY, TWO_DAYS = '86400000', '172800000'
local NONE, NOWHERE, NOBODY = '-----------', '----------', '----------------------'
-- The layout's version and where it stands in a record, where the terms begin, and how long the end is if others wait.
local VERSION, VERSION_AT, TERMS, END = ' v1', 87, 90, 72
-- Ten years in microseconds. Above 2^53 doubles stop counting, so a token that far ahead is damage.
local YEARS = 315576000000000
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local CLAIMS, QUEUE, HOLDERS
local function at(lock)
    key, CLAIMS, QUEUE, HOLDERS = lock, lock .. ':claims', lock .. ':queue', lock .. ':holders'
end

-- `sole` is the record of who holds the whole, until `sole_until`; `floor` a token that the next one must exceed.
-- `dirty` says that the keys no longer say what `line` does.
local line = {
    last = 0, floor = 0, taken = 0, capacity = 0, place = 0, refreshed = 0, told = NOBODY,
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
    local weight, capacity = match(record, '^ (%d+) (%d+)', TERMS)
    if capacity == '1' then return WHOLE, WHOLE end
    return tonumber(weight), tonumber(capacity)
end

local function lease_of(record) return match(record, '^ %d+ %d+ (%d+)', TERMS) * 1000 end

-- The claim that asks; it reads its standing in the reply.
local asking
local function tell(record, what)
    if claim_of(record) == asking then return end
    -- Without the permission nobody is told, and everybody finds out by asking.
    -- A grant names its lock, so that a client can release a claim that it no longer has.
    local lock = sub(what, 1, 1) == 'H' and key or ''
    redis.pcall('PUBLISH', 'leasehold:inbox:' .. client_of(record), what .. claim_of(record) .. lock)
end

local function connected(record)
    local told = redis.pcall('PUBSUB', 'NUMSUB', 'leasehold:alive:' .. client_of(record))
    return told.err ~= nil or tonumber(told[2]) > 0
end

-- Whether the absence of its connection says anything about this claim: it is bound to this very master.
local function judged(record)
    if server_of(record) == NOWHERE then return false end
    local told = redis.pcall('INFO', 'replication')
    if type(told) == 'table' and told.err then return false end
    return match(told, 'master_replid:(%w%w%w%w%w%w%w%w%w%w)') == server_of(record)
end

local function absent(record)
    return server_of(record) ~= NOWHERE and not connected(record) and judged(record)
end

-- The record of a claim, wherever it stands, and its deadline.
local function read(claim)
    if line.sole and claim_of(line.sole) == claim then return line.sole, line.sole_until end
    local entry = call('HGET', CLAIMS, claim)
    if entry then return sub(entry, 17), tonumber(sub(entry, 1, 16)) end
end

local function write(record, deadline)
    call('HSET', CLAIMS, claim_of(record), format('%016d', deadline) .. record)
end

-- Who holds the whole: its record as that of any holder. Its lease may be over, and it is told so.
local function load_sole(state, mode)
    local record = state
    if mode == 'W' then
        record = sub(state, 1, 16) .. 'H' .. sub(state, 18, -END - 1)
        line.place, line.floor = tonumber(sub(state, -63, -52)), tonumber(sub(state, -51, -36))
        line.refreshed, line.told = tonumber(sub(state, -35, -23)), sub(state, -22)
    end
    local left = call('PTTL', key) - DAY
    if left == -1 - DAY then
        -- Somebody took its end away; it has one again, a lease from now.
        left = lease_of(record) / 1000
        call('PEXPIRE', key, left + DAY)
    end
    local _
    _, line.capacity = units(record)
    if left > 0 then
        line.sole, line.sole_until, line.taken = record, now + left * 1000, line.capacity
    else
        line.dirty = true
        tell(record, 'G')
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
local function load(lock)
    at(lock)
    local state = call('GET', key) or ''
    line.count, line.waiting, line.holding = call('HLEN', CLAIMS), call('ZCARD', QUEUE), call('ZCARD', HOLDERS)
    local wrong = refusal(state)
    if wrong then return wrong end
    line.last = tonumber(sub(state, 1, 16)) or 0
    local mode = sub(state, 17, 17)
    if mode == 'L' then
        local taken, capacity, place, refreshed, told = match(state, '^ v1 (%d+) (%d+) (%d+) (%d+) (%S*)', 18)
        line.taken, line.capacity, line.place = tonumber(taken), tonumber(capacity), tonumber(place)
        line.refreshed, line.told = tonumber(refreshed), told
    end
    local shared = mode == 'L' or mode == 'W' and line.holding == 0
    if line.count > 0 and not shared or line.count ~= line.waiting + line.holding then
        -- Somebody deleted one of the keys; the claims of what is left are gone.
        call('DEL', CLAIMS, QUEUE, HOLDERS)
        line.count, line.waiting, line.holding, line.dirty = 0, 0, 0, true
    end
    if line.holding == 0 then line.taken = 0 end
    if mode == 'H' or mode == 'W' then load_sole(state, mode) end
end

-- Remembers the keys for two days from now on: when they are new, with each renewal, and else at least once an hour.
local function refresh(which) call('PEXPIRE', which, TWO_DAYS) end

local function refresh_all()
    for _, which in ipairs({ CLAIMS, QUEUE, HOLDERS }) do refresh(which) end
end

local function add(record, deadline)
    write(record, deadline)
    line.count, line.dirty = line.count + 1, true
    if line.count == 1 then refresh(CLAIMS) end
end

local function hold(record, deadline)
    local weight, capacity = units(record)
    line.taken, line.capacity, line.dirty = line.taken + weight, capacity, true
    if weight == capacity then
        line.sole, line.sole_until = record, deadline
        return
    end
    add(record, deadline)
    call('ZADD', HOLDERS, format('%d', deadline), claim_of(record))
    line.holding = line.holding + 1
    if line.holding == 1 then refresh(HOLDERS) end
end

local function wait(record, deadline)
    local _
    _, line.capacity = units(record)
    line.place, line.waiting = line.place + 1, line.waiting + 1
    add(record, deadline)
    call('ZADD', QUEUE, format('%d', line.place), claim_of(record))
    if line.waiting == 1 then refresh(QUEUE) end
end

local function drop(record)
    local claim = claim_of(record)
    line.dirty = true
    if line.sole and claim_of(line.sole) == claim then
        line.sole, line.taken = nil, 0
        return
    end
    call('HDEL', CLAIMS, claim)
    line.count = line.count - 1
    if holds(record) then
        call('ZREM', HOLDERS, claim)
        line.taken, line.holding = line.taken - units(record), line.holding - 1
    else
        call('ZREM', QUEUE, claim)
        line.waiting = line.waiting - 1
    end
end

local function expire()
    if line.holding == 0 then return end
    for _, claim in ipairs(call('ZRANGEBYSCORE', HOLDERS, '-inf', format('%d', now), 'LIMIT', '0', '100')) do
        local record = read(claim)
        drop(record)
        tell(record, 'G')
    end
end

local function token()
    line.last = math.max(line.last + 1, now, line.floor + 1)
    return format('%016d', line.last)
end

-- The record of a waiter that holds from now on.
local function granted(record)
    local terms, rest = match(record, '^( %d+ %d+ %d+) %d+(.*)$', TERMS)
    return token() .. 'H' .. claim_of(record) .. NONE .. link_of(record) .. VERSION
        .. terms .. format(' %d', now / 1000) .. rest
end

local function waiter_at(rank)
    if rank >= line.waiting then return end
    return read(call('ZRANGE', QUEUE, format('%d', rank), format('%d', rank))[1])
end

-- Notes who is next from now on, and tells it if it does not know.
local function note_next(record)
    local claim = record and claim_of(record) or NOBODY
    if line.told == claim then return end
    line.told, line.dirty = claim, true
    if record then tell(record, 'N') end
end

local function is_waiting(claim)
    local record = claim ~= NOBODY and read(claim)
    return record and not holds(record)
end

-- Grants to the waiters at the front who fit and are there, and tells who is next from now on. A waiter that is not
-- there is passed over and keeps its position until its lease ends. With `look_close` the next one is looked for
-- although it does not fit yet; without, who was told before remains the next.
local function settle(look_close)
    local rank, looked = 0, false
    while true do
        local record, deadline = waiter_at(rank)
        if not record then return note_next() end
        local weight, capacity = units(record)
        local fits = line.taken + weight <= capacity
        if not fits and (looked or not look_close) then
            if not looked and is_waiting(line.told) then return end
            return note_next(record)
        end
        if deadline <= now then
            drop(record)
            tell(record, 'G')
        elseif claim_of(record) ~= asking and absent(record) then
            rank = rank + 1
        elseif fits then
            drop(record)
            record = granted(record)
            hold(record, now + lease_of(record))
            tell(record, 'H' .. sub(record, 1, 16))
            line.told = NOBODY
        else
            looked = true
        end
    end
end

-- The line of who holds the whole, which is all there is to write unless others wait.
local function save_sole()
    local life = format('%d', math.ceil((line.sole_until - now) / 1000) + DAY)
    local state = line.sole
    if line.waiting > 0 then
        state = format('%sW%s\n%08d%012d%016d%013d%s', sub(state, 1, 16), sub(state, 18), line.waiting, line.place,
            line.floor, line.refreshed, line.told)
    end
    call('SET', key, state, 'PX', life)
end

-- Writes what has changed. A line without anybody is folded up.
local function save()
    if line.count > 0 and now / 1000 - line.refreshed > HOUR then
        line.refreshed = math.floor(now / 1000)
        refresh_all()
    end
    if line.sole then return save_sole() end
    local number = format('%016d', math.max(line.last, line.floor))
    if line.count == 0 then
        call('SET', key, number .. '~', 'PX', ONE_DAY)
        return
    end
    local state = format('%sL v1 %d %d %d %d %s', number, line.taken, line.capacity, line.place, line.refreshed, line.told)
    call('SET', key, state, 'PX', TWO_DAYS)
end
