-- One that is not alone, was missed, or whose connection is a new one. Its absence, if noted, is over.
local function keep(id)
    local state = call('GET', key) or ''
    local mode = sub(state, 17, 17)
    local link = sub(bond, 12)
    if (mode == 'H' or mode == 'W') and claim_of(state) == id then
        if sub(link, 12, 19) < epoch_of(state) then link = link_of(state) end
        -- Without memory the other order would be refused.
        call('PEXPIRE', key, life)
        call('SETRANGE', key, '39', NONE .. link)
        return '1'
    end
    if mode ~= 'W' and mode ~= 'L' then return '0' end
    local record, deadline = read(id)
    if not record or deadline <= now then return '0' end
    if sub(link, 12, 19) < epoch_of(record) then link = link_of(record) end
    if mode == 'L' then refresh(key) end
    refresh_all()
    deadline = now + lease_of(record)
    write(sub(record, 1, 39) .. NONE .. link .. sub(record, TERMS), deadline)
    if holds(record) then call('ZADD', HOLDERS, format('%d', deadline), id) end
    return '1'
end

for _, i in ipairs(others) do
    at(KEYS[i])
    answers[i] = keep(sub(ids, 22 * i - 21, 22 * i))
end
return sub(ids, 1, 22) .. table.concat(answers)
