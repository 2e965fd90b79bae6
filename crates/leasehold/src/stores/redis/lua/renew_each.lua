-- One that is not alone, was missed, or whose connection is a new one. Its absence, if noted, is over.
local function keep(expected, life)
    local id = sub(expected, 2, 23)
    local state = call('GET', key) or ''
    local mode = sub(state, 17, 17)
    local link = sub(expected, 35)
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

for i = 1, #KEYS do
    key = KEYS[i]
    local expected = ARGV[2 * i - 1]
    if call('GETRANGE', key, '16', '85') == expected then
        call('PEXPIRE', key, ARGV[2 * i])
        answers[i] = '1'
    else
        at(key)
        answers[i] = keep(expected, ARGV[2 * i])
    end
end
return sub(ARGV[1], 2, 23) .. table.concat(answers)
