-- The rest of inspect/fast.lua. Keys, arguments, replies and layout: see that file.

-- Whether the client of a claim is connected, as the reply has it; nothing if that is not known.
local function liveness(record)
    if server_of(record) == NO_SERVER then return end
    local result = redis.pcall('PUBSUB', 'NUMSUB', 'leasehold:alive:' .. client_of(record))
    if result.err then return end
    if tonumber(result[2]) > 0 then return '+' end
    return same_server(record) and '-'
end

at(KEYS[1])
local state = call('GET', key) or ''
local failure = refusal(state)
if failure then return redis.error_reply(failure) end
local mode = sub(state, @record.mode@)
local replies = { sub(state, @record.token@) }
local ended = redis.pcall('GET', ENDED)
replies[2] = type(ended) == 'string' and ended or ''
local life = call('PTTL', key)
if life > DAY or life == -1 then
    if mode == 'H' then replies[3] = state end
    if mode == 'W' then replies[3] = exclusive_record(state) end
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
-- A client that died with 10,000 waiters would stop the server for 60 ms otherwise.
for at = 3, #replies do
    replies[at] = (at - 2 <= ABSENT_MAX and liveness(replies[at]) or '?') .. replies[at]
end
return replies
