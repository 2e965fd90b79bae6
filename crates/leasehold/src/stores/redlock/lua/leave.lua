-- Takes one master's vote back, and lets none be given that comes late.
--
-- KEYS[1]  the lock, as in vote.lua
-- KEYS[2]  the clients that wait
-- ARGV[1]  the claim (22)
-- ARGV[2]  the highest token it has proposed (19): no vote up to it will be given any more; zeros if that is not known
-- ARGV[3]  the client that asks (11); if it is another's claim, its client is told
-- ARGV[4]  the client (11), if it waits no more; else ''
-- ARGV[5]  'Q' to tell nobody that the lock is free: the claim never held it; else ''
-- replies  '1' if the claim had this vote, '2' if a client that waits was told so too, else '0'; and the claim
local DAY = '86400000'
local UNKNOWN = '0000000000000000000'
local sub = string.sub
local key, claim, highest = KEYS[1], ARGV[1], ARGV[2]
local state = redis.call('GETRANGE', key, '0', '71')
local last, mode, there, is_empty = sub(state, 1, 19), sub(state, 20, 20), '0', false
local function notify(client, what)
    -- Without the permission nobody is told, and everybody finds out by asking.
    local result = redis.pcall('PUBLISH', 'leasehold:inbox:' .. client, what)
    return type(result) == 'number' and result > 0
end
if mode == 'H' and sub(state, 40, 61) == claim and (highest == UNKNOWN or sub(state, 21, 39) <= highest) then
    local left = redis.call('PTTL', key)
    if left > tonumber(DAY) or left == -1 then there = '1' end
    local at, free = '19', '~'
    if last < highest then at, free = '0', highest .. '~' end
    if left == -1 or type(redis.pcall('SETRANGE', key, at, free)) == 'table' then
        -- Out of memory: a script may still write after it has written what needs none.
        redis.call('PEXPIRE', key, DAY)
        redis.call('SETRANGE', key, at, free)
    end
    if there == '1' then
        if sub(state, 62, 72) ~= ARGV[3] then notify(sub(state, 62, 72), 'G' .. claim) end
        for _ = 1, ARGV[5] == 'Q' and 0 or 16 do
            local client = redis.call('ZPOPMIN', KEYS[2])[1]
            if not client then
                is_empty = true
                break
            end
            if client ~= ARGV[4] and notify(client, 'F' .. key) then
                there = '2'
                break
            end
        end
    end
elseif highest ~= UNKNOWN and last < highest then
    -- Out of memory, a vote that comes late stands until its lease ends.
    if mode == 'H' then
        redis.pcall('SETRANGE', key, '0', highest)
    elseif state == '' or mode == '~' then
        redis.pcall('SET', key, highest .. '~', 'PX', DAY)
    end
end
if ARGV[4] ~= '' and not is_empty then redis.call('ZREM', KEYS[2], ARGV[4]) end
return there .. claim
