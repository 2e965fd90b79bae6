-- Releases a single-key lock: compares and deletes.
--
-- KEYS[1]  the lock
-- KEYS[2]  the waiting clients of leasehold
-- KEYS[3]  the counter of tokens
-- ARGV[1]  the claim (22)
-- ARGV[2]  the highest token that it has proposed (19); zeros if it is unknown
-- ARGV[3]  the client that sends the request (11); if the claim is another client's, that client is
--          notified
-- ARGV[4]  the client (11) if it no longer waits; else ''
-- ARGV[5]  'Q' to notify no waiter, as the claim never held the lock; else ''
-- ARGV[6]  the claim in hexadecimal; another library's value is identified by its hash
-- ARGV[7]  the life of the counter in ms; '' if tokens are not counted
-- replies  as redlock/lua/leave.lua
local UNKNOWN = '0000000000000000000'
local sub = string.sub
local claim, highest = ARGV[1], ARGV[2]
local function notify(client, what)
    local result = redis.pcall('PUBLISH', 'leasehold:inbox:' .. client, what)
    return type(result) == 'number' and result > 0
end
local value, there = redis.call('GET', KEYS[1]), '0'
local own = value and sub(value, 1, 10) == 'leasehold:'
if own and sub(value, 22, 43) == claim and (highest == UNKNOWN or sub(value, 44, 62) <= highest)
    or value and not own and sub(redis.sha1hex(value), 1, 32) == ARGV[6] then
    redis.call('DEL', KEYS[1])
    there = '1'
    if own and sub(value, 11, 21) ~= ARGV[3] then notify(sub(value, 11, 21), 'G' .. claim) end
    for _ = 1, ARGV[5] == 'Q' and 0 or 16 do
        local client = redis.pcall('ZPOPMIN', KEYS[2])[1]
        if not client then break end
        if client ~= ARGV[4] and notify(client, 'F' .. KEYS[1]) then
            there = '2'
            break
        end
    end
end
if ARGV[7] ~= '' and highest ~= UNKNOWN and (redis.call('GET', KEYS[3]) or '') < highest then
    redis.pcall('SET', KEYS[3], highest, 'PX', ARGV[7])
end
if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end
return there .. claim
