-- The rest of inspect/fast.lua. Keys, arguments, replies and layout: see that file.
at(KEYS[1])
local state = call('GET', key) or ''
local mode = sub(state, @record.mode@)
local replies = { match(state, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)[~HWL]') or '0000000000000000' }
local life = call('PTTL', key)
if life > DAY or life == -1 then
    if mode == 'H' then replies[2] = state end
    if mode == 'W' then replies[2] = exclusive_record(state) end
end
if mode == 'W' or mode == 'L' then
    local holders = {}
    for _, claim in ipairs(call('ZRANGE', HOLDERS, 0, -1)) do
        local record, deadline = read(claim)
        if record and deadline > now then holders[#holders + 1] = record end
    end
    -- Records begin with their tokens.
    table.sort(holders)
    for _, record in ipairs(holders) do replies[#replies + 1] = record end
    for _, claim in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
        local record, deadline = read(claim)
        if record and deadline > now then replies[#replies + 1] = record end
    end
end
return replies
