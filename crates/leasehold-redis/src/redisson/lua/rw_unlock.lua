-- Releases a holder of an RReadWriteLock, and wakes the waiters as Redisson does.
--
-- KEYS[1]  the lock, as in rw_lock.lua
-- KEYS[2]  exists if the claim has left while one of its requests was under way
-- KEYS[3]  the beginning of the keys of readers
-- ARGV[1]  the claim as a UUID (36)
-- ARGV[2]  the claim in hexadecimal (32): the hash of another library's field
-- ARGV[3]  the channel of the lock
-- ARGV[4]  for how long a late request of the claim is refused, in ms; '' if none is under way
-- replies  as unlock.lua
local was_there, notified = 0, 0
local function publish(message)
    local result = redis.pcall('PUBLISH', ARGV[3], message)
    if type(result) == 'number' then notified = result end
end
local function key_of(field, number)
    return KEYS[3] .. ':' .. field .. ':rwlock_timeout:' .. number
end
-- A number that no program of Redisson has written must not stop the server.
local function acquires_of(field)
    return math.min(tonumber(redis.call('HGET', KEYS[1], field)) or 0, 1000)
end

-- Returns when the last lease of the remaining readers ends, in ms; below 1 if all have ended.
local function longest_lease()
    local longest = -3
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
        for number = 1, acquires_of(field) do
            longest = math.max(longest, redis.call('PTTL', key_of(field, number)))
        end
    end
    return longest
end

local mode = redis.pcall('HGET', KEYS[1], 'mode')
local found, is_own
for _, field in ipairs(type(mode) == 'string' and redis.call('HKEYS', KEYS[1]) or {}) do
    local is_same = string.sub(field, 1, 36) == ARGV[1]
    local is_shown = string.sub(redis.sha1hex(field), 1, 32) == ARGV[2]
    if field ~= 'mode' and (is_same or is_shown) then
        found = field
        is_own = is_same
    end
end
if found then
    local is_writer = mode == 'write' and (is_own or string.sub(found, -6) == ':write')
    was_there = is_writer and 1 or 0
    for number = 1, is_writer and 0 or acquires_of(found) do
        was_there = math.max(was_there, redis.call('DEL', key_of(found, number)))
    end
    redis.call('HDEL', KEYS[1], found)
    local longest = longest_lease()
    if redis.call('HLEN', KEYS[1]) == 1 or (mode == 'read' and longest < 1) then
        redis.call('DEL', KEYS[1])
        publish(mode == 'write' and '1' or '0')
    elseif is_writer then
        -- The thread of Redisson that wrote holds the read lock too.
        redis.call('HSET', KEYS[1], 'mode', 'read')
        publish('1')
    elseif mode == 'read' then
        redis.call('PEXPIRE', KEYS[1], longest)
    end
end
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], '', 'PX', ARGV[4]) end
return { was_there, notified }
