-- The slow path of entering: all cases that enter/fast.lua does not handle. Keys, arguments,
-- replies and layout: see that file.
local id = sub(claim, @record.claim@)
local mode = sub(ARGV[3], @request.mode@)
local hint = tonumber(sub(ARGV[3], @request.hint@))
local fresh_nonce = sub(ARGV[3], @request.nonce@)
local expired = sub(ARGV[3], @request.expired@)
longest_lease = ARGV[5]
local failure = load(KEYS[1])
if failure then return redis.error_reply(failure) end
-- The server's own last token is trusted, even if the server's clock was ahead when it was given.
if hint > math.max(lock.last_token, now) + DAY * 1000 then
    return redis.error_reply('HINT the token ' .. sub(ARGV[3], @request.hint@)
        .. ' is more than a day ahead of this server')
end
local polls = mode == 'L'
local is_known = polls or mode == 'F' or mode == 'K'
lock.min_token = math.max(lock.min_token, hint)
caller = id

local function put_nonce(record, nonce)
    local _, deadline = read(claim_of(record))
    local noted = sub(record, @record.token..claim@) .. nonce .. sub(record, @record.client:first@)
    if lock.exclusive_holder == record then
        lock.exclusive_holder = noted
        call('SETRANGE', key, @record.nonce:offset@, nonce)
    else
        write(noted, deadline)
    end
end

-- Revokes a holder whose absence was found a grace ago and still lasts, and marks a new absence. A
-- nonce is bound to its holder's token, as both are in the same record.
--
-- A waiter measures the grace by its own clock, from the moment at which it has read the nonce, and
-- then sends the nonce back. By that time the holder has stopped: it trusts its hold for a grace
-- from its last request on a connection that a script has named, and that connection was gone when
-- the nonce was written. A holder that reconnects must send a script before pings count again, and
-- each script of a holder removes the nonce. So a nonce that is still there marks one absence, and
-- as nonces never repeat, two short ones are not taken for a long one.
local absences = {}
local function check_absence(record)
    if server_of(record) == NO_SERVER then return end
    if not absent(record) then
        if nonce_of(record) ~= NO_NONCE then put_nonce(record, NO_NONCE) end
    elseif nonce_of(record) == NO_NONCE then
        put_nonce(record, fresh_nonce)
        absences[#absences + 1] = claim_of(record) .. fresh_nonce .. grace_of(record)
    elseif string.find(expired, claim_of(record) .. nonce_of(record), 1, true) then
        drop(record)
        note_end(record, 'C')
        notify(record, 'G')
    else
        absences[#absences + 1] = claim_of(record) .. nonce_of(record) .. grace_of(record)
    end
end

local function check_absences_from(rank, count)
    for _, holder in ipairs(call('ZRANGE', HOLDERS, rank, rank + count - 1)) do
        if not string.find(expired, holder, 1, true) then check_absence(read(holder)) end
    end
end

-- Checks at most 40 holders: those with the oldest renewals, and some others.
local function check_absences()
    if lock.exclusive_holder then
        check_absence(lock.exclusive_holder)
        return
    end
    for at = 1, #expired, @absence.nonce:last@ do
        local record = read(sub(expired, at, at + @absence.claim:len@ - 1))
        if record and holds(record) then check_absence(record) end
    end
    if lock.holding == 0 then return end
    check_absences_from(0, 8)
    if lock.holding > 8 then check_absences_from(1 + now % (lock.holding - 1), 32) end
end

-- Returns the time until a holder's lease ends, in ms.
local function next_expiry()
    local at = lock.exclusive_holder and lock.exclusive_deadline
    if not at then
        local first = call('ZRANGE', HOLDERS, '0', '0', 'WITHSCORES')
        at = first[2] or withheld_until or now
    end
    return format('%010d', math.max(0, math.ceil((at - now) / 1000)))
end

local function reply(number, standing, position)
    local reply_text = format('%016d', number) .. standing .. id
    if standing == 'H' then return reply_text end
    reply_text = reply_text .. format('%016d%08d', lock.last_token, position or 0)
    if standing == 'Q' and not polls then return reply_text end
    return reply_text .. next_expiry() .. table.concat(absences)
end

local function mismatch(present)
    return redis.error_reply('MISMATCH' .. match(present, '^ %d+ %d+', @record.words:first@))
end

-- The reply to a claim without an entry. If it was refused, it names up to eight holders.
local function gone()
    if mode ~= 'R' then return reply(0, 'G') end
    local holders = { lock.exclusive_holder }
    for _, holder in ipairs(call('ZRANGE', HOLDERS, '0', '7')) do holders[#holders + 1] = read(holder) end
    local ahead = (lock.exclusive_holder and 1 or 0) + lock.holding + lock.waiting
    return reply(ahead, 'G') .. '\n' .. table.concat(holders, '\n')
end

-- The claim is there already: extends its lease, with the share and the lease of this request. Only
-- a request to enter changes the share. A client sends the others with the share of its first
-- request, also after a downgrade. A hold that is not renewed keeps its deadline.
local function keep(record, deadline)
    local before, present = units(record)
    local weight, capacity = units(claim)
    if capacity ~= present then return mismatch(record) end
    if weight > before and not is_known then return redis.error_reply('LARGER') end
    local link = link_of(record)
    local is_other_client = client_of(claim) ~= client_of(record)
    if is_other_client or epoch_of(claim) >= epoch_of(record) then link = link_of(claim) end
    local since, rest = match(record, '^ %d+ %d+ %d+ (%d+)(.*)$', @record.words:first@)
    local share = match(is_known and record or claim, '^ %d+ %d+', @record.words:first@)
    local lease = match(claim, '^ %d+ %d+( %d+)', @record.words:first@)
    local kept = sub(record, @record.token..claim@) .. NO_NONCE .. link .. VERSION
        .. share .. lease .. ' ' .. since .. rest
    if mode ~= 'K' or not holds(kept) then deadline = now + lease_of(claim) end
    if holds(kept) then
        drop(record)
        hold(kept, deadline)
    else
        write(kept, deadline)
    end
end

local function standing()
    local record = read(id)
    if not record then return gone() end
    if holds(record) then return reply(tonumber(sub(record, @record.token@)), 'H') end
    local rank = call('ZRANK', QUEUE, id)
    -- A waiter behind waiters without a connection is next too, and one that searches for it.
    local is_next = lock.notified == id or is_unfinished
    return reply(lock.holding + (lock.exclusive_holder and 1 or 0) + rank, is_next and 'N' or 'Q',
        rank + 1)
end

local weight, capacity = units(claim)
if lock.exclusive_holder and claim_of(lock.exclusive_holder) ~= id then
    if not is_known and capacity ~= lock.capacity then return mismatch(lock.exclusive_holder) end
    if mode ~= 'Q' and lock.count == 0 then
        -- The claim is not added. Nothing changes, except for the nonce of an absence.
        check_absences()
        if lock.exclusive_holder then return gone() end
    end
end
expire()
local record, deadline = read(id)
if record and not holds(record) and deadline <= now then
    drop(record)
    record = nil
end
if record then
    local refused = (not polls or holds(record)) and keep(record, deadline)
    if not refused then
        -- Its own absence is not checked: it has just sent a request.
        if not holds(record) and (polls or call('ZRANK', QUEUE, id) == 0) then check_absences() end
        settle(true)
    end
    if lock.dirty or not polls then save() end
    return refused or standing()
end
if polls then
    if lock.dirty then save() end
    return standing()
end
local function is_alone() return not lock.exclusive_holder and lock.count == 0 end
local alone = is_alone()
if not alone and not is_known and lock.capacity ~= capacity then
    -- Waiters whose leases are over do not keep the lock to their kind.
    settle(false)
    alone = is_alone()
    if not alone then
        local present = lock.exclusive_holder
            or read(call('ZRANGE', lock.holding > 0 and HOLDERS or QUEUE, '0', '0')[1])
        save()
        return mismatch(present)
    end
end
if alone and weight == capacity and not is_known and not withheld() then
    -- The record of fast path 1, with a token of the server.
    local granted_token = token(claim)
    call('SET', key, granted_token .. 'H' .. sub(claim, @record.claim:first@), 'PX', ARGV[2])
    save_end()
    return granted_token .. 'H' .. id
end
if mode ~= 'Q' then
    check_absences()
    settle(true)
end
if mode == 'Q' or mode == 'R' and lock.taken + weight <= capacity then
    wait('0000000000000000Q' .. sub(claim, @record.claim:first@), now + lease_of(claim))
    if lock.waiting == 1 then check_absences() end
    settle(false)
    -- Waiters with a connection are ahead of it.
    local waiter = mode == 'R' and read(id)
    if waiter and not holds(waiter) then drop(waiter) end
end
save()
return standing()
