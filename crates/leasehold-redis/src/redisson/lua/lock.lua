-- Takes an RLock or an RFencedLock of Redisson, or finds the claim as its holder.
--
-- layout   The lock is a hash with one field: the holder, as 'client:thread'. Its value counts the
--          holder's acquires. A claim of leasehold is a client of its own: its field is 'UUID:token
--          kind lease since pid host program label'. Redisson compares fields and does not parse
--          them.
-- KEYS[1]  the lock
-- KEYS[2]  exists if the claim has left while one of its requests was under way
-- KEYS[3]  the waiters of an RFairLock of this name
-- KEYS[4]  the counter of tokens; absent for an RLock, whose tokens are the server's time
-- ARGV[1]  the claim as a UUID (36)
-- ARGV[2]  the lease in ms
-- ARGV[3]  until when the client waits for this request, in microseconds of the server's clock
-- ARGV[4]  the words of the field after the token
-- replies  {'G', the claim's field} granted; {'H', ms until the holder's lease ends} held, -1 if
--          the lease has no end, and then the words of the first holders as in inspect.lua; {'C',
--          ''} the claim has left; {'L', the server's time in microseconds} the request is late;
--          {'F', what the key is instead} foreign
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > ARGV[3] + 0 then return { 'L', string.format('%.0f', now) } end
local count = redis.pcall('HLEN', KEYS[1])
if type(count) == 'table' then return { 'F', redis.call('TYPE', KEYS[1]).ok } end
local is_fair = redis.call('EXISTS', KEYS[3]) == 1
if count == 0 then
    if is_fair then return { 'F', 'fair' } end
    if redis.call('EXISTS', KEYS[2]) == 1 then return { 'C', '' } end
    local token = KEYS[4] and redis.call('INCR', KEYS[4]) or now
    local field = ARGV[1] .. ':' .. string.format('%.0f', token) .. ARGV[4]
    redis.call('HSET', KEYS[1], field, '1')
    local reply = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
    if type(reply) == 'table' then
        -- A user without the right to set the expiry must not leave a lock behind.
        redis.call('DEL', KEYS[1])
        return reply
    end
    return { 'G', field }
end
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return { 'F', 'readwrite' } end
local field = count == 1 and redis.call('HKEYS', KEYS[1])[1] or ''
if string.sub(field, 1, 36) == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return { 'G', field }
end
if not string.match(field, '^.+:%-?%d+') then return { 'F', 'hash' } end
if is_fair then return { 'F', 'fair' } end
local left = tostring(redis.call('PTTL', KEYS[1]))
return { 'H', left, field, redis.call('HGET', KEYS[1], field), left, 'M' }
