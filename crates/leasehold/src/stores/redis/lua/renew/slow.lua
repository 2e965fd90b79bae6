-- Whether somebody who waits for this lock should look after its holders: the letter of the reply. Once for each lock.
local letters = {}
local function letter(state)
    if letters[key] then return letters[key] end
    local found = 'Q'
    local function see(record)
        if not absent(record) then return end
        if nonce_of(record) == NO_NONCE then
            found = 'A'
        elseif found == 'Q' then
            found = 'a'
        end
    end
    if sub(state, 17, 17) == 'W' then
        local left = call('PTTL', key)
        if left >= 0 and left <= DAY then
            found = 'A'
        else
            see(state)
        end
    else
        -- The ones that were not renewed for longest.
        local first = call('ZRANGE', HOLDERS, '0', '7')
        local _, deadline
        if first[1] then _, deadline = read(first[1]) end
        if not deadline or deadline <= now then found = 'A' end
        for _, claim in ipairs(first) do
            local record = read(claim)
            if record then see(record) end
        end
    end
    letters[key] = found
    return found
end

-- One that is not alone, was missed, or whose connection is a new one. Its absence, if noted, is over. The letter of the
-- reply, and the position of one that waits.
local function keep(id)
    local state = call('GET', key) or ''
    local mode = sub(state, 17, 17)
    local link = sub(liveness, 12)
    if (mode == 'H' or mode == 'W') and claim_of(state) == id then
        if sub(link, 12, 19) < epoch_of(state) then link = link_of(state) end
        -- Without memory the other order would be refused.
        call('PEXPIRE', key, life)
        call('SETRANGE', key, '39', NO_NONCE .. link)
        return '1'
    end
    if mode ~= 'W' and mode ~= 'L' then return '0' end
    local record, deadline = read(id)
    if not record or deadline <= now then return '0' end
    if sub(link, 12, 19) < epoch_of(record) then link = link_of(record) end
    if mode == 'L' then refresh(key) end
    refresh_all()
    deadline = now + lease_of(record)
    write(sub(record, 1, 39) .. NO_NONCE .. link .. sub(record, VERSION_AT), deadline)
    if holds(record) then
        call('ZADD', HOLDERS, format('%d', deadline), id)
        return '1'
    end
    return letter(state), format('%08d', (call('ZRANK', QUEUE, id) or 0) + 1)
end

-- A key of another type is in the way of its own claims only.
local positions, failures, failure = {}, 0, nil
for _, i in ipairs(others) do
    at(KEYS[i])
    local done, flag, position = pcall(keep, sub(ids, 22 * i - 21, 22 * i))
    if done then
        replies[i] = flag
        positions[#positions + 1] = position
    else
        replies[i], failures, failure = '!', failures + 1, flag
    end
end
if failures == #KEYS then
    return redis.error_reply(type(failure) == 'table' and failure.err or failure)
end
return sub(ids, 1, 22) .. table.concat(replies) .. table.concat(positions)
