-- Takes permits of an RPermitExpirableSemaphore of Redisson, or finds the claim as their holder.
--
-- layout   KEYS[1] is a string, the number of free permits. KEYS[3] is a sorted set with a member
--          for each permit that is held: its score is the end of its lease in ms of the wall
--          clock, 922337203685477 without an end. Redisson's members are 16 random bytes, and no
--          client parses those of others. A claim of leasehold has the member 'UUID:token kind
--          lease since pid host program label', and '#2' and so on after it for more permits.
-- KEYS[1]  the free permits
-- KEYS[2]  exists if the claim has left while one of its requests was under way
-- KEYS[3]  the permits that are held
-- ARGV[1]  the claim as a UUID (36)
-- ARGV[2]  the lease in ms
-- ARGV[3]  until when the client waits for this request, in microseconds of the server's clock
-- ARGV[4]  the words of the member after the token
-- ARGV[5]  the permits of the claim
-- ARGV[6]  the channel of the semaphore
-- ARGV[7]  the permits of the semaphore
-- ARGV[8]  '1' if an earlier request of the claim may have taken its permits
-- replies  as lock.lua; {'S', the number of permits} if the semaphore has another size
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 then return { 'L', string.format('%.0f', now) } end
local now_ms = math.floor(now / 1000)
local free = redis.pcall('GET', KEYS[1])
local held = redis.pcall('ZCARD', KEYS[3])
if type(free) == 'table' then return { 'F', redis.call('TYPE', KEYS[1]).ok } end
if type(held) == 'table' then return { 'F', redis.call('TYPE', KEYS[3]).ok } end
if free and not string.match(free, '^%-?%d+$') then return { 'F', 'text' } end

local expired = redis.call('ZRANGEBYSCORE', KEYS[3], 0, now_ms)
for _, permit in ipairs(expired) do redis.call('ZREM', KEYS[3], permit) end
held = held - #expired
if free and #expired > 0 then
    free = redis.call('INCRBY', KEYS[1], #expired)
    if free > 0 then redis.pcall('PUBLISH', ARGV[6], free) end
end
if free and free + held ~= ARGV[7] + 0 then
    return { 'S', string.format('%.0f', free + held) }
end

local ends_at = string.format('%.0f', now_ms + ARGV[2])
local own = {}
for _, permit in ipairs(ARGV[8] == '1' and redis.call('ZRANGE', KEYS[3], 0, -1) or {}) do
    if string.sub(permit, 1, 36) == ARGV[1] then table.insert(own, permit) end
end
if #own > 0 then
    for _, permit in ipairs(own) do redis.call('ZADD', KEYS[3], ends_at, permit) end
    return { 'G', (string.gsub(own[1], '#%d+$', '')) }
end
if redis.call('EXISTS', KEYS[2]) == 1 then return { 'C', '' } end
if not free then
    free = ARGV[7] - held
    redis.call('SET', KEYS[1], free)
end
if free + 0 >= ARGV[5] + 0 then
    local field = ARGV[1] .. ':' .. string.format('%.0f', now) .. ARGV[4]
    for number = 1, ARGV[5] + 0 do
        local permit = number == 1 and field or field .. '#' .. number
        redis.call('ZADD', KEYS[3], ends_at, permit)
    end
    redis.call('DECRBY', KEYS[1], ARGV[5])
    local left = redis.call('PTTL', KEYS[1])
    if left > 0 then redis.call('PEXPIRE', KEYS[3], left) end
    return { 'G', field }
end
local permits = redis.call('ZRANGE', KEYS[3], 0, 7, 'WITHSCORES')
local function left_until(score)
    return string.format('%.0f', score + 0 < 922337203685477 and score - now_ms or -1)
end
local reply = { 'H', left_until(permits[2]) }
for i = 1, #permits, 2 do
    for _, word in ipairs({ permits[i], '1', left_until(permits[i + 1]), 'P' }) do
        table.insert(reply, word)
    end
end
return reply
