-- Takes back the vote of one master, and prevents a vote by a late request.
--
-- KEYS[1]  the lock, as in vote.lua
-- KEYS[2]  the waiting clients
-- ARGV[1]  the claim (22)
-- ARGV[2]  the highest token that it has proposed (19): the master no longer votes for a token up
--          to this one; zeros if the token is unknown
-- ARGV[3]  the client that sends the request (11); if the claim is another client's, that client is
--          notified
-- ARGV[4]  the client (11) if it no longer waits; else ''
-- ARGV[5]  'Q' to notify no waiter, as the claim never held the lock; else ''
-- replies  '1' if the claim had this vote, '2' if a waiter was notified too, else '0'; and the
--          claim
local DAY = '86400000'
local UNKNOWN = '0000000000000000000'
local sub = string.sub
local key, claim, highest = KEYS[1], ARGV[1], ARGV[2]
local state = redis.call('GETRANGE', key, '0', '71')
local last, mode = sub(state, 1, 19), sub(state, 20, 20)
local there = '0'
local function notify(client, what)
    -- Without the permission to publish, waiters poll.
    local result = redis.pcall('PUBLISH', 'leasehold:inbox:' .. client, what)
    return type(result) == 'number' and result > 0
end
local is_own = mode == 'H' and sub(state, 40, 61) == claim
if is_own and (highest == UNKNOWN or sub(state, 21, 39) <= highest) then
    local left = redis.call('PTTL', key)
    if left > tonumber(DAY) or left == -1 then there = '1' end
    local at, free = '19', '~'
    if last < highest then at, free = '0', highest .. '~' end
    if left == -1 or type(redis.pcall('SETRANGE', key, at, free)) == 'table' then
        -- Out of memory: after a first write that needs no memory, a script may write again.
        redis.call('PEXPIRE', key, DAY)
        redis.call('SETRANGE', key, at, free)
    end
    if there == '1' then
        if sub(state, 62, 72) ~= ARGV[3] then notify(sub(state, 62, 72), 'G' .. claim) end
        for _ = 1, ARGV[5] == 'Q' and 0 or 16 do
            local client = redis.call('ZPOPMIN', KEYS[2])[1]
            if not client then break end
            if client ~= ARGV[4] and notify(client, 'F' .. key) then
                there = '2'
                break
            end
        end
    end
elseif highest ~= UNKNOWN and last < highest then
    -- Out of memory, a vote by a late request lasts until its lease ends.
    if mode == 'H' then
        redis.pcall('SETRANGE', key, '0', highest)
    elseif state == '' or mode == '~' then
        redis.pcall('SET', key, highest .. '~', 'PX', DAY)
    end
end
if ARGV[4] ~= '' then redis.call('ZREM', KEYS[2], ARGV[4]) end
return there .. claim
