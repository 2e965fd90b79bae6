-- Removes a claim from its queue, held or waiting, and hands over to the next waiter.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table.
-- KEYS[1]  the lock
-- ARGV[1]  'H' and the claim; 'B' and the claim to break the claim of another client; 'K' and the
--          claim if the watchdog of a killed client releases it; 'D' and the fields of `ended` if
--          the process of another client has ended. It loses the hold only if its record is as
--          told, and its connection is missing. No kind but 'H' is the mode of a record.
-- ARGV[2]  the client that sends the request; the client of a broken claim is notified
-- ARGV[3]  only with a wait after a failover: the longest lease of the client's URL, in ms
-- replies  '1' if the claim was there, else '0'; and the claim
local key = KEYS[1]
local state = redis.call('GET', key) or ''
-- Fast path 1: the claim holds the lock exclusively, and no other claim waits.
if string.sub(state, @record.mode..claim@) == ARGV[1] then
    if type(redis.pcall('SETRANGE', key, @record.mode:offset@, '~')) == 'table' then
        -- Out of memory. A script may still write after a first write that needs no memory.
        redis.call('PEXPIRE', key, 86400000)
        redis.call('SETRANGE', key, @record.mode:offset@, '~')
    end
    return '1' .. string.sub(ARGV[1], 2)
end
-- Fast path 2: the first waiter wants the lock exclusively, and its client is alive. queue.lua
-- handles all other cases.
local mode = string.sub(state, @record.mode@)
if mode == 'W' and 'H' .. string.sub(state, @record.claim@) == ARGV[1] and not ARGV[3] then
    local claims, queue, time = key .. ':claims', key .. ':queue', redis.call('TIME')
    local waiting = redis.call('ZRANGE', queue, '0', '1')
    local found = waiting[1] and redis.call('HMGET', claims, waiting[1], waiting[2] or waiting[1])
        or {}
    local entry, entry_behind = found[1], found[2]
    local now = time[1] * 1000000 + time[2]
    local weight, capacity, lease, rest
    if entry and entry_behind and tonumber(string.sub(entry, @entry.deadline@)) > now then
        weight, capacity, lease, rest =
            string.match(entry, '^ v1 (%d+) (%d+) (%d+) %d+(.*)$', @stored.version:first@)
    end
    -- A token ten years ahead is damage, which queue.lua refuses.
    if weight and weight == capacity
        and string.sub(state, @record.token@) - now < 315576000000000 then
        local alive = string.sub(entry, @stored.server@) == '----------'
        if not alive then
            local channel = 'leasehold:alive:' .. string.sub(entry, @stored.client@)
            local result = redis.pcall('PUBSUB', 'NUMSUB', channel)
            alive = result.err ~= nil or tonumber(result[2]) > 0
        end
        if alive then
            -- The first write needs no memory. So the others are allowed when memory is short.
            redis.call('HDEL', claims, waiting[1])
            redis.call('ZREM', queue, waiting[1])
            local min_token = string.sub(state, @tail.min_token@)
            -- The tokens that the claim reserves are below its own; see token() in queue.lua.
            local count = 1 + (string.match(rest, ' %+(%d+)$') or 0)
            local token_before = string.sub(state, @record.token@)
            local last = math.max(token_before + count, now, min_token + count)
            local token = string.format('%016d', last)
            local holder = string.sub(entry, @stored.claim@) .. '-----------'
                .. string.sub(entry, @stored.client..grace@)
                .. string.format(' v1 %s %s %s %d', weight, capacity, lease, now / 1000) .. rest
            if waiting[2] then
                local left = string.sub(state, @tail.waiting@) - 1
                holder = 'W' .. holder .. string.format('\n%08d', left)
                    .. string.sub(state, @tail.next_seq@)
                    .. min_token .. string.sub(state, @tail.refreshed@) .. waiting[2]
            else
                holder = 'H' .. holder
            end
            redis.call('SET', key, token .. holder, 'PX', string.format('%d', lease + 86400000))
            -- Without the permission to publish, waiters notice a change by polling.
            local inbox = 'leasehold:inbox:'
            local client = string.sub(entry, @stored.client@)
            redis.pcall('PUBLISH', inbox .. client, 'H' .. token .. waiting[1] .. key)
            if waiting[2] then
                local client_behind = string.sub(entry_behind, @stored.client@)
                redis.pcall('PUBLISH', inbox .. client_behind, 'N' .. waiting[2])
            end
            return '1' .. string.sub(ARGV[1], 2)
        end
    end
end
