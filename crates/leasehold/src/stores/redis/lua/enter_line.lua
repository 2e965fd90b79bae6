local id, how, hint = sub(claim, 18, 39), sub(ARGV[3], 1, 1), tonumber(sub(ARGV[3], 2, 17))
local fresh, seen = sub(ARGV[3], 18, 28), sub(ARGV[3], 29)
local wrong = load(KEYS[1])
if wrong then return redis.error_reply(wrong) end
-- The server's own last token is no wild guess of a client, even if the server's clock was ahead when it gave it.
if hint > math.max(line.last, now) + DAY * 1000 then
    return redis.error_reply('HINT the token ' .. sub(ARGV[3], 2, 17) .. ' is more than a day ahead of this server')
end
local looks = how == 'L'
local finds = looks or how == 'F'
line.floor = math.max(line.floor, hint)
asking = id

local function put_nonce(record, nonce)
    local _, deadline = read(claim_of(record))
    local noted = sub(record, 1, 39) .. nonce .. sub(record, 51)
    if line.sole == record then
        line.sole = noted
        call('SETRANGE', key, '39', nonce)
    else
        write(noted, deadline)
    end
end

-- Ends holders whose absence was seen a grace ago and still lasts, and notes the absence of others. A nonce is bound to
-- its holder's token, as it stands in the same record.
local absences = {}
local function look_for(record)
    if server_of(record) == NOWHERE then return end
    if not absent(record) then
        if nonce_of(record) ~= NONE then put_nonce(record, NONE) end
    elseif nonce_of(record) == NONE then
        put_nonce(record, fresh)
        absences[#absences + 1] = claim_of(record) .. fresh .. grace_of(record)
    elseif string.find(seen, claim_of(record) .. nonce_of(record), 1, true) then
        drop(record)
        tell(record, 'G')
    else
        absences[#absences + 1] = claim_of(record) .. nonce_of(record) .. grace_of(record)
    end
end

local function look_from(rank, count)
    for _, holder in ipairs(call('ZRANGE', HOLDERS, rank, rank + count - 1)) do
        if not string.find(seen, holder, 1, true) then look_for(read(holder)) end
    end
end

-- At most 40 holders at a time: the ones that were not renewed for longest, and any others.
local function look_for_all()
    if line.sole then
        look_for(line.sole)
        return
    end
    for at = 1, #seen, 33 do
        local record = read(sub(seen, at, at + 21))
        if record and holds(record) then look_for(record) end
    end
    if line.holding == 0 then return end
    look_from(0, 8)
    if line.holding > 8 then look_from(1 + now % (line.holding - 1), 32) end
end

-- How long from now until somebody's lease ends, in ms.
local function soonest()
    local at = line.sole and line.sole_until
    if not at then
        local first = call('ZRANGE', HOLDERS, '0', '0', 'WITHSCORES')
        at = first[2] and tonumber(first[2]) or now
    end
    return format('%010d', math.max(0, math.ceil((at - now) / 1000)))
end

local function reply(number, standing, position)
    local answer = format('%016d', number) .. standing .. id
    if standing == 'H' then return answer end
    answer = answer .. format('%016d%08d', line.last, position or 0)
    if standing == 'Q' and not looks then return answer end
    return answer .. soonest() .. table.concat(absences)
end

local function mismatch(present)
    return redis.error_reply('MISMATCH' .. match(present, '^ %d+ %d+', TERMS))
end

-- In line already: kept for another lease, with the terms it has now.
local function keep(record)
    local before, present = units(record)
    local weight, capacity = units(claim)
    if capacity ~= present then return mismatch(record) end
    if weight > before then return redis.error_reply('LARGER') end
    local link = link_of(record)
    if epoch_of(claim) >= epoch_of(record) then link = link_of(claim) end
    local since, rest = match(record, '^ %d+ %d+ %d+ (%d+)(.*)$', TERMS)
    local terms = match(claim, '^ %d+ %d+ %d+', TERMS)
    local kept = sub(record, 1, 39) .. NONE .. link .. VERSION .. terms .. ' ' .. since .. rest
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
    local is_next = rank == 0 or line.told == id
    return reply(line.holding + (line.sole and 1 or 0) + rank, is_next and 'N' or 'Q', rank + 1)
end

local weight, capacity = units(claim)
if line.sole and claim_of(line.sole) ~= id then
    if not finds and capacity ~= line.capacity then return mismatch(line.sole) end
    if how ~= 'Q' and line.count == 0 then
        -- Nothing to put in line: it stays as it is, but for a note of absence.
        look_for_all()
        if line.sole then return reply(0, 'G') end
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
        if not holds(record) and (looks or call('ZRANK', QUEUE, id) == 0) then look_for_all() end
        settle(true)
    end
    if line.dirty or not looks then save() end
    return refused or standing()
end
if looks then
    if line.dirty then save() end
    return standing()
end
local alone = not line.sole and line.count == 0
if alone and weight == capacity and how ~= 'F' then
    -- The fast path's record, with a token that is certain.
    local number = token()
    call('SET', key, number .. 'H' .. sub(claim, 18), 'PX', ARGV[2])
    return number .. 'H' .. id
end
if not alone and how ~= 'F' and line.capacity ~= capacity then
    local present = line.sole or read(call('ZRANGE', line.holding > 0 and HOLDERS or QUEUE, '0', '0')[1])
    save()
    return mismatch(present)
end
if how ~= 'Q' then
    look_for_all()
    settle(true)
end
if how == 'Q' or how == 'R' and line.taken + weight <= capacity then
    wait('0000000000000000Q' .. sub(claim, 18), now + lease_of(claim))
    if line.waiting == 1 then look_for_all() end
    settle(false)
    -- Others who are there wait ahead of it.
    local waiter = how == 'R' and read(id)
    if waiter and not holds(waiter) then drop(waiter) end
end
save()
return standing()
