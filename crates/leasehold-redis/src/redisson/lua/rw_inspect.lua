-- Reads an RReadWriteLock. It does not write.
--
-- KEYS[1]  the lock, as in rw_lock.lua
-- KEYS[2]  the beginning of the keys of readers
-- ARGV     none
-- replies  as inspect.lua; the kind of a holder is 'R' for a reader and 'W' for a writer
local mode = redis.pcall('HGET', KEYS[1], 'mode')
if type(mode) == 'table' then return { redis.call('TYPE', KEYS[1]).ok, '', '' } end
if not mode then return { redis.call('EXISTS', KEYS[1]) == 1 and 'lock' or '', '', '' } end
local reply = { '', '', '' }
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
    local field, acquires, left = fields[i], fields[i + 1], -2
    local is_writer = mode == 'write' and (#fields == 4 or string.sub(field, -6) == ':write')
    if is_writer then left = redis.call('PTTL', KEYS[1]) end
    -- A number that no program of Redisson has written must not stop the server.
    for number = 1, is_writer and 0 or math.min(tonumber(acquires) or 0, 1000) do
        local key = KEYS[2] .. ':' .. field .. ':rwlock_timeout:' .. number
        left = math.max(left, redis.call('PTTL', key))
    end
    -- A reader whose lease has ended stays in the hash while others hold.
    if field ~= 'mode' and left ~= -2 then
        for _, word in ipairs({ field, acquires, tostring(left), is_writer and 'W' or 'R' }) do
            table.insert(reply, word)
        end
    end
end
return reply
