local id, mode, hint = sub(claim, 18, 39), sub(ARGV[3], 1, 1), tonumber(sub(ARGV[3], 2, 17))
local fresh, seen = sub(ARGV[3], 18, 28), sub(ARGV[3], 29)
local wrong = load(KEYS[1])
if wrong then return redis.error_reply(wrong) end
-- The server's own last token is no wild guess of a client, even if the server's clock was ahead when it gave it.
if hint > math.max(lock.last_token, now) + DAY * 1000 then
    return redis.error_reply('HINT the token ' .. sub(ARGV[3], 2, 17) .. ' is more than a day ahead of this server')
end
local looks = mode == 'L'
local finds = looks or mode == 'F'
lock.min_next_token = math.max(lock.min_next_token, hint)
caller = id

local function put_nonce(record, nonce)
    local _, deadline = read(claim_of(record))
    local noted = sub(record, 1, 39) .. nonce .. sub(record, 51)
    if lock.exclusive_holder == record then
        lock.exclusive_holder = noted
        call('SETRANGE', key, '39', nonce)
    else
        write(noted, deadline)
    end
end

-- Ends holders whose absence was seen a grace ago and still lasts, and notes the absence of others. A nonce is bound to
-- its holder's token, as it stands in the same record.
local absences = {}
local function check_absence(record)
    if server_of(record) == NO_SERVER then return end
    if not absent(record) then
        if nonce_of(record) ~= NO_NONCE then put_nonce(record, NO_NONCE) end
    elseif nonce_of(record) == NO_NONCE then
        put_nonce(record, fresh)
        absences[#absences + 1] = claim_of(record) .. fresh .. grace_of(record)
    elseif string.find(seen, claim_of(record) .. nonce_of(record), 1, true) then
        drop(record)
        notify(record, 'G')
    else
        absences[#absences + 1] = claim_of(record) .. nonce_of(record) .. grace_of(record)
    end
end

local function check_absences_from(rank, count)
    for _, holder in ipairs(call('ZRANGE', HOLDERS, rank, rank + count - 1)) do
        if not string.find(seen, holder, 1, true) then check_absence(read(holder)) end
    end
end

-- At most 40 holders at a time: the ones that were not renewed for longest, and any others.
local function check_absences()
    if lock.exclusive_holder then
        check_absence(lock.exclusive_holder)
        return
    end
    for at = 1, #seen, 33 do
        local record = read(sub(seen, at, at + 21))
        if record and holds(record) then check_absence(record) end
    end
    if lock.holding == 0 then return end
    check_absences_from(0, 8)
    if lock.holding > 8 then check_absences_from(1 + now % (lock.holding - 1), 32) end
end

-- How long from now until somebody's lease ends, in ms.
local function next_expiry()
    local at = lock.exclusive_holder and lock.exclusive_deadline
    if not at then
        local first = call('ZRANGE', HOLDERS, '0', '0', 'WITHSCORES')
        at = first[2] and tonumber(first[2]) or now
    end
    return format('%010d', math.max(0, math.ceil((at - now) / 1000)))
end

local function reply(number, standing, position)
    local reply_text = format('%016d', number) .. standing .. id
    if standing == 'H' then return reply_text end
    reply_text = reply_text .. format('%016d%08d', lock.last_token, position or 0)
    if standing == 'Q' and not looks then return reply_text end
    return reply_text .. next_expiry() .. table.concat(absences)
end

local function mismatch(present)
    return redis.error_reply('MISMATCH' .. match(present, '^ %d+ %d+', SHARE_AT))
end

-- In line already: kept for another lease, with the terms it has now.
local function keep(record)
    local before, present = units(record)
    local weight, capacity = units(claim)
    if capacity ~= present then return mismatch(record) end
    if weight > before then return redis.error_reply('LARGER') end
    local link = link_of(record)
    if epoch_of(claim) >= epoch_of(record) then link = link_of(claim) end
    local since, rest = match(record, '^ %d+ %d+ %d+ (%d+)(.*)$', SHARE_AT)
    local terms = match(claim, '^ %d+ %d+ %d+', SHARE_AT)
    local kept = sub(record, 1, 39) .. NO_NONCE .. link .. VERSION .. terms .. ' ' .. since .. rest
    local deadline = now + lease_of(claim)
    if holds(kept) then
        drop(record)
        hold(kept, deadline)
    else
        write(kept, deadline)
    end
end

local function standing()
    local record = read(id)
    if not record then return reply(0, 'G') end
    if holds(record) then return reply(tonumber(sub(record, 1, 16)), 'H') end
    local rank = call('ZRANK', QUEUE, id)
    -- Who waits behind waiters that are not there is next too.
    local is_next = rank == 0 or lock.notified == id
    return reply(lock.holding + (lock.exclusive_holder and 1 or 0) + rank, is_next and 'N' or 'Q', rank + 1)
end

local weight, capacity = units(claim)
if lock.exclusive_holder and claim_of(lock.exclusive_holder) ~= id then
    if not finds and capacity ~= lock.capacity then return mismatch(lock.exclusive_holder) end
    if mode ~= 'Q' and lock.count == 0 then
        -- Nothing to put in line: it stays as it is, but for a note of absence.
        check_absences()
        if lock.exclusive_holder then return reply(0, 'G') end
    end
end
expire()
local record, deadline = read(id)
if record and not holds(record) and deadline <= now then
    drop(record)
    record = nil
end
if record then
    local refused = (not looks or holds(record)) and keep(record)
    if not refused then
        -- Its own absence is not looked for: it has just been heard of.
        if not holds(record) and (looks or call('ZRANK', QUEUE, id) == 0) then check_absences() end
        settle(true)
    end
    if lock.dirty or not looks then save() end
    return refused or standing()
end
if looks then
    if lock.dirty then save() end
    return standing()
end
local alone = not lock.exclusive_holder and lock.count == 0
if alone and weight == capacity and mode ~= 'F' then
    -- The fast path's record, with a token that is certain.
    local number = token()
    call('SET', key, number .. 'H' .. sub(claim, 18), 'PX', ARGV[2])
    return number .. 'H' .. id
end
if not alone and mode ~= 'F' and lock.capacity ~= capacity then
    local present = lock.exclusive_holder or read(call('ZRANGE', lock.holding > 0 and HOLDERS or QUEUE, '0', '0')[1])
    save()
    return mismatch(present)
end
if mode ~= 'Q' then
    check_absences()
    settle(true)
end
if mode == 'Q' or mode == 'R' and lock.taken + weight <= capacity then
    wait('0000000000000000Q' .. sub(claim, 18), now + lease_of(claim))
    if lock.waiting == 1 then check_absences() end
    settle(false)
    -- Others who are there wait ahead of it.
    local waiter = mode == 'R' and read(id)
    if waiter and not holds(waiter) then drop(waiter) end
end
save()
return standing()
