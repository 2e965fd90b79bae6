-- Takes a claim out of the line, held or waiting, and hands over to the next.
--
-- KEYS[1]  the lock
-- ARGV[1]  'H' and the claim (22)
-- ARGV[2]  the client that asks; if it is another's claim, its client is told
-- replies  '1' if the claim was there, else '0'; and the claim
local key = KEYS[1]
local state = redis.call('GET', key) or ''
if string.sub(state, 17, 39) == ARGV[1] then
    if type(redis.pcall('SETRANGE', key, '16', '~')) == 'table' then
        -- Out of memory: a script may still write after it has written what needs none.
        redis.call('PEXPIRE', key, 86400000)
        redis.call('SETRANGE', key, '16', '~')
    end
    return '1' .. string.sub(ARGV[1], 2)
end
-- The whole goes to the next, who wants it, is there, and has somebody behind it or not. The layout is that of queue.lua,
-- which does all else.
if string.sub(state, 17, 17) == 'W' and 'H' .. string.sub(state, 18, 39) == ARGV[1] then
    local claims, queue, time = key .. ':claims', key .. ':queue', redis.call('TIME')
    local waiting = redis.call('ZRANGE', queue, '0', '1')
    local found = waiting[1] and redis.call('HMGET', claims, waiting[1], waiting[2] or waiting[1]) or {}
    local record, behind = found[1], found[2]
    local now = time[1] * 1000000 + time[2]
    local weight, capacity, lease, rest
    if record and behind and tonumber(string.sub(record, 1, 16)) > now then
        weight, capacity, lease, rest = string.match(record, '^ v1 (%d+) (%d+) (%d+) %d+(.*)$', 103)
    end
    -- A token ten years ahead is damage, which queue.lua refuses.
    if weight and weight == capacity and string.sub(state, 1, 16) - now < 315576000000000 then
        local there = string.sub(record, 86, 95) == '----------'
        if not there then
            local result = redis.pcall('PUBSUB', 'NUMSUB', 'leasehold:alive:' .. string.sub(record, 67, 77))
            there = result.err ~= nil or tonumber(result[2]) > 0
        end
        if there then
            -- First, as it is allowed without memory, and what follows is allowed after it.
            redis.call('HDEL', claims, waiting[1])
            redis.call('ZREM', queue, waiting[1])
            local last = math.max(string.sub(state, 1, 16) + 1, now, string.sub(state, -51, -36) + 1)
            local number = string.format('%016d', last)
            local holder = string.sub(record, 34, 55) .. '-----------' .. string.sub(record, 67, 102)
                .. string.format(' v1 %s %s %s %d', weight, capacity, lease, now / 1000) .. rest
            if waiting[2] then
                holder = 'W' .. holder .. string.format('\n%08d', math.max(1, string.sub(state, -71, -64) - 1))
                    .. string.sub(state, -63, -52) .. '0000000000000000' .. string.sub(state, -35, -23) .. waiting[2]
            else
                holder = 'H' .. holder
            end
            redis.call('SET', key, number .. holder, 'PX', string.format('%d', lease + 86400000))
            -- Without the permission nobody is told, and everybody finds out by caller.
            local inbox = 'leasehold:inbox:'
            redis.pcall('PUBLISH', inbox .. string.sub(record, 67, 77), 'H' .. number .. waiting[1] .. key)
            if waiting[2] then
                redis.pcall('PUBLISH', inbox .. string.sub(behind, 67, 77), 'N' .. waiting[2])
            end
            return '1' .. string.sub(ARGV[1], 2)
        end
    end
end
