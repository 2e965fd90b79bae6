-- Reads an RPermitExpirableSemaphore. It does not write.
--
-- KEYS[1]  the free permits, as in semaphore_lock.lua
-- KEYS[2]  the permits that are held
-- ARGV     none
-- replies  as inspect.lua; the kind of a holder is 'P', and it has one entry for each permit
local free = redis.pcall('GET', KEYS[1])
local permits = redis.pcall('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
if type(free) == 'table' then return { redis.call('TYPE', KEYS[1]).ok, '', '' } end
if permits.err then return { redis.call('TYPE', KEYS[2]).ok, '', '' } end
if free and not string.match(free, '^%-?%d+$') then return { 'text', '', '' } end
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local size = string.format('%.0f', (free or 0) + #permits / 2)
local reply = { '', '', size }
for i = 1, #permits, 2 do
    local ends_at = permits[i + 1] + 0
    if ends_at > now_ms then
        local left = ends_at < 922337203685477 and ends_at - now_ms or -1
        for _, word in ipairs({ permits[i], '1', string.format('%.0f', left), 'P' }) do
            table.insert(reply, word)
        end
    end
end
return reply
