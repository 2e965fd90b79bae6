-- The line of one name, for all that is not the fast path. Follows each script's own head, which declares `key`.
--
-- Keys, all with the hash tag of the lock:
--   key           free:      token(16) '~' ...                       lives a day after its last lease
--                 held whole: token(16) 'H' claim(22) nonce(11) client(11) epoch(8) server(10) grace(7)
--                            ' weight capacity lease since ...'
--                            held for as long as the key lives longer than a day
--                 and others wait: the same with 'W', and at its end
--                            '\n' waiting(8) place(12) floor(16) refreshed(13) told(22)
--                 shared:    token(16) 'L' ' taken capacity place refreshed told'
--   key:claims    hash: claim -> deadline(16), and the record as above with 'H' or 'Q', of all but a holder of the whole
--   key:queue     sorted set of those who wait, by place
--   key:holders   sorted set of those who share it, by deadline
-- Times are microseconds of this server, leases milliseconds. Nothing is written before all types are known to be right.
local call, sub, match, format = redis.call, string.sub, string.match, string.format
local DAY, HOUR, WHOLE = 86400000, 3600000, 1073741824
-- Commands take words: a number would first be written out, with all that a fraction needs.
local ONE_DAY, TWO_DAYS = '86400000', '172800000'
local NONE, NOWHERE, NOBODY = '-----------', '----------', '----------------------'
-- Where the terms of a record begin, and how long its end is if others wait.
local TERMS, END = 87, 72
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local CLAIMS, QUEUE, HOLDERS
local function at(lock)
    key, CLAIMS, QUEUE, HOLDERS = lock, lock .. ':claims', lock .. ':queue', lock .. ':holders'
end

-- `sole` is the record of who holds the whole, until `sole_until`; `floor` a token that the next one must exceed.
local line = {
    last = 0, floor = 0, taken = 0, capacity = 0, place = 0, refreshed = 0, told = NOBODY,
    count = 0, waiting = 0, holding = 0,
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
    redis.pcall('PUBLISH', 'leasehold:inbox:' .. client_of(record), what .. claim_of(record))
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
        tell(record, 'G')
    end
end

-- Reads the line; a wrong answer is the error to reply with.
local function load(lock)
    at(lock)
    local state = call('GET', key) or ''
    line.count, line.waiting, line.holding = call('HLEN', CLAIMS), call('ZCARD', QUEUE), call('ZCARD', HOLDERS)
    if state ~= '' and not match(state, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d[~HWL]') then
        return 'FOREIGN the key ' .. key .. ' is not of leasehold'
    end
    line.last = tonumber(sub(state, 1, 16)) or 0
    local mode = sub(state, 17, 17)
    if mode == 'L' then
        local taken, capacity, place, refreshed, told = match(state, '^ (%d+) (%d+) (%d+) (%d+) (%S*)', 18)
        line.taken, line.capacity, line.place = tonumber(taken), tonumber(capacity), tonumber(place)
        line.refreshed, line.told = tonumber(refreshed), told
    end
    local shared = mode == 'L' or mode == 'W' and line.holding == 0
    if line.count > 0 and not shared or line.count ~= line.waiting + line.holding then
        -- Somebody deleted one of the keys; the claims of what is left are gone.
        call('DEL', CLAIMS, QUEUE, HOLDERS)
        line.count, line.waiting, line.holding = 0, 0, 0
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
    line.count = line.count + 1
    if line.count == 1 then refresh(CLAIMS) end
end

local function hold(record, deadline)
    local weight, capacity = units(record)
    line.taken, line.capacity = line.taken + weight, capacity
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
    return token() .. 'H' .. claim_of(record) .. NONE .. link_of(record) .. terms .. format(' %d', now / 1000) .. rest
end

local function next_waiter()
    if line.waiting == 0 then return end
    return read(call('ZRANGE', QUEUE, '0', '0')[1])
end

-- Grants to everybody at the front who fits and is there, and tells who is next from now on. With `look_close` a next
-- one that is not there goes too, though it does not fit yet: others behind it may.
local function settle(look_close)
    while true do
        local record, deadline = next_waiter()
        if not record then
            line.told = NOBODY
            return
        end
        local weight, capacity = units(record)
        local fits = line.taken + weight <= capacity
        if not fits and not look_close then
            if line.told ~= claim_of(record) then
                line.told = claim_of(record)
                tell(record, 'N')
            end
            return
        end
        if deadline <= now or claim_of(record) ~= asking and absent(record) then
            drop(record)
            tell(record, 'G')
        elseif fits then
            drop(record)
            record = granted(record)
            hold(record, now + lease_of(record))
            tell(record, 'H' .. sub(record, 1, 16))
        else
            look_close = false
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
    local state = format('%sL %d %d %d %d %s', number, line.taken, line.capacity, line.place, line.refreshed, line.told)
    call('SET', key, state, 'PX', TWO_DAYS)
end
