-- Gives the lock of the articles back: compare and delete.
--
-- KEYS[1]  the lock
-- KEYS[2]  the clients of ours that wait
-- ARGV[1]  the claim (22)
-- ARGV[2]  the highest token it has proposed (19); zeros if that is not known
-- ARGV[3]  the client that asks (11); if it is another's claim, its client is told
-- ARGV[4]  the client (11), if it waits no more; else ''
-- ARGV[5]  'Q' to tell nobody that the lock is free: the claim never held it; else ''
-- ARGV[6]  the claim in hexadecimal, as a value of somebody else is known by what it hashes to
-- ARGV[7]  where tokens are counted, how many ms the count is kept; '' if they are not
-- KEYS[3]  where tokens are counted
-- replies  as leave.lua
local UNKNOWN = '0000000000000000000'
local sub = string.sub
local claim, highest = ARGV[1], ARGV[2]
local function notify(client, what)
    local result = redis.pcall('PUBLISH', 'leasehold:inbox:' .. client, what)
    return type(result) == 'number' and result > 0
end
local value, there, is_empty = redis.call('GET', KEYS[1]), '0', false
local own = value and sub(value, 1, 10) == 'leasehold:'
if own and sub(value, 22, 43) == claim and (highest == UNKNOWN or sub(value, 44, 62) <= highest)
    or value and not own and sub(redis.sha1hex(value), 1, 32) == ARGV[6] then
    redis.call('DEL', KEYS[1])
    there = '1'
    if own and sub(value, 11, 21) ~= ARGV[3] then notify(sub(value, 11, 21), 'G' .. claim) end
    for _ = 1, ARGV[5] == 'Q' and 0 or 16 do
        local client = redis.pcall('ZPOPMIN', KEYS[2])[1]
        if not client then
            is_empty = true
            break
        end
        if client ~= ARGV[4] and notify(client, 'F' .. KEYS[1]) then
            there = '2'
            break
        end
    end
end
if ARGV[7] ~= '' and highest ~= UNKNOWN and (redis.call('GET', KEYS[3]) or '') < highest then
    redis.pcall('SET', KEYS[3], highest, 'PX', ARGV[7])
end
if ARGV[4] ~= '' and not is_empty then redis.pcall('ZREM', KEYS[2], ARGV[4]) end
return there .. claim
