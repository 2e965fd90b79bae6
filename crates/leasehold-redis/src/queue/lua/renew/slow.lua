-- The slow path of renewals: claims that renew/fast.lua did not renew. Keys, arguments, replies and
-- layout: see that file.

-- Returns the reply's letter for a waiter of this lock. It reads each lock once.
local letters = {}
local function letter(state)
    if letters[key] then return letters[key] end
    local found = 'Q'
    local function check(record)
        if not absent(record) then return end
        if nonce_of(record) == NO_NONCE then
            found = 'A'
        elseif found == 'Q' then
            found = 'a'
        end
    end
    if sub(state, @record.mode@) == 'W' then
        local left = call('PTTL', key)
        if left ~= -1 and left <= DAY then
            found = 'A'
        else
            check(state)
        end
    else
        -- The holders with the oldest renewals.
        local oldest = call('ZRANGE', HOLDERS, '0', '7')
        local _, deadline
        if oldest[1] then _, deadline = read(oldest[1]) end
        if not deadline or deadline <= now then found = 'A' end
        for _, claim in ipairs(oldest) do
            local record = read(claim)
            if record then check(record) end
        end
    end
    letters[key] = found
    return found
end

-- Whether the request names an older connection than a record does. The connections to different
-- servers of a cluster are of different clients, and the later one counts.
local function is_older(record)
    return client_of(record) == sub(liveness, @liveness.client@)
        and sub(liveness, @liveness.epoch@) < epoch_of(record)
end

-- Extends a lease and clears the nonce of an absence. Returns the reply's letter, and the position
-- of a waiter.
local function keep(id)
    local state = call('GET', key) or ''
    local mode = sub(state, @record.mode@)
    local link = sub(liveness, @liveness.client:first@)
    if (mode == 'H' or mode == 'W') and claim_of(state) == id then
        local left = call('PTTL', key)
        if left ~= -1 and left <= DAY then return '0' end
        if is_older(state) then link = link_of(state) end
        -- This order is allowed when memory is short.
        call('PEXPIRE', key, life)
        call('SETRANGE', key, @record.nonce:offset@, NO_NONCE .. link)
        return '1'
    end
    if mode ~= 'W' and mode ~= 'L' then return '0' end
    local record, deadline = read(id)
    if not record or deadline <= now then return '0' end
    if is_older(record) then link = link_of(record) end
    deadline = now + lease_of(record)
    -- The types of all keys are known before the first write, which needs no memory.
    local found, position = '1', nil
    if holds(record) then
        call('ZCARD', HOLDERS)
    else
        found, position = letter(state), format('%08d', (call('ZRANK', QUEUE, id) or 0) + 1)
    end
    if mode == 'L' then refresh(key) end
    refresh_all()
    write(sub(record, @record.token..claim@) .. NO_NONCE .. link
        .. sub(record, @record.version:first@), deadline)
    if holds(record) then call('ZADD', HOLDERS, format('%d', deadline), id) end
    return found, position
end

-- A key of another type makes only the claims of its own lock fail.
local positions, failures, failure = {}, 0, nil
for _, i in ipairs(others) do
    at(KEYS[i])
    local done, flag, position =
        pcall(keep, sub(ids, @record.claim:len@ * (i - 1) + 1, @record.claim:len@ * i))
    if done then
        replies[i] = flag
        positions[#positions + 1] = position
    else
        replies[i], failures, failure = '!', failures + 1, flag
    end
end
if failures == #ids / @record.claim:len@ then
    -- Before Redis 7 it is a text, which has no field.
    return redis.error_reply(failure.err or failure)
end
return sub(ids, 1, @record.claim:len@) .. table.concat(replies) .. table.concat(positions)
