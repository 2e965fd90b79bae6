-- Takes the read lock or the write lock of an RReadWriteLock of Redisson, or finds the claim as a
-- holder.
--
-- layout   The lock is a hash: 'mode' is 'read' or 'write', and each other field is a holder, whose
--          value counts its acquires. A reader has a key for each of its acquires, which expires
--          with its lease: KEYS[3] .. ':' .. field .. ':rwlock_timeout:' .. number. The hash
--          expires with the longest lease. A claim of leasehold has a field as in lock.lua.
-- KEYS[1]  the lock
-- KEYS[2]  exists if the claim has left while one of its requests was under way
-- KEYS[3]  the beginning of the keys of readers
-- ARGV[1]  the claim as a UUID (36)
-- ARGV[2]  the lease in ms
-- ARGV[3]  until when the client waits for this request, in microseconds of the server's clock
-- ARGV[4]  the words of the field after the token
-- ARGV[5]  'read'; 'write'; 'downgrade' to let a writer become a reader
-- ARGV[6]  the channel of the lock
-- replies  as lock.lua
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 then return { 'L', string.format('%.0f', now) } end
local mode = redis.pcall('HGET', KEYS[1], 'mode')
if type(mode) == 'table' then return { 'F', redis.call('TYPE', KEYS[1]).ok } end
if not mode and redis.call('EXISTS', KEYS[1]) == 1 then return { 'F', 'lock' } end

local function timeout_of(field) return KEYS[3] .. ':' .. field .. ':rwlock_timeout:1' end
-- A server without memory accepts every write of a script that has written. So the first write of
-- a new claim is one that it refuses.
local function hold(field, is_new)
    local left = math.max(redis.call('PTTL', KEYS[1]), ARGV[2] + 0)
    if mode == 'read' then redis.call('SET', timeout_of(field), '1', 'PX', ARGV[2]) end
    if is_new or mode == 'read' then redis.call('HSET', KEYS[1], 'mode', mode, field, '1') end
    local reply = redis.pcall('PEXPIRE', KEYS[1], left)
    if type(reply) == 'table' then
        -- A user without the right to set the expiry must not leave a lock behind.
        if is_new then redis.call('HDEL', KEYS[1], field) end
        if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1]) end
        return reply
    end
    return { 'G', field }
end

local own
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 36) == ARGV[1] then own = field end
end
if own and mode == 'read' and redis.call('EXISTS', timeout_of(own)) == 0 then
    -- The lease of this reader has ended. Other readers have kept the hash.
    redis.call('HDEL', KEYS[1], own)
    if redis.call('HLEN', KEYS[1]) == 1 then
        redis.call('DEL', KEYS[1])
        mode = false
    end
    own = nil
end

local wanted = ARGV[5] == 'write' and 'write' or 'read'
if own and mode == 'write' and wanted == 'read' then
    mode = 'read'
    redis.pcall('PUBLISH', ARGV[6], '1')
    return hold(own)
end
if own and mode == wanted then return hold(own) end
if ARGV[5] == 'downgrade' or redis.call('EXISTS', KEYS[2]) == 1 then return { 'C', '' } end
if mode and not (mode == 'read' and wanted == 'read') then
    local left = tostring(redis.call('PTTL', KEYS[1]))
    local reply = { 'H', left }
    local fields = redis.call('HGETALL', KEYS[1])
    for i = 1, math.min(#fields, 18), 2 do
        if fields[i] ~= 'mode' then
            -- The hash expires with the longest lease, which counts for all readers here.
            local kind = mode == 'write' and 'W' or 'R'
            for _, word in ipairs({ fields[i], fields[i + 1], left, kind }) do
                table.insert(reply, word)
            end
        end
    end
    return reply
end
mode = wanted
return hold(ARGV[1] .. ':' .. string.format('%.0f', now) .. ARGV[4], true)
