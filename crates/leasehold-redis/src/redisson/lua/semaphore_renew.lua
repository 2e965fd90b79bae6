-- Renews the permits of several claims. A permit that is gone stays gone, and so does one whose
-- lease has ended.
--
-- KEYS     for each claim: the free permits, as in semaphore_lock.lua; the permits that are held
-- ARGV     for each claim: its member; the lease in ms, '' to leave it as it is; its permits
-- replies  '1' for each claim that was renewed, else '0'
local time = redis.call('TIME')
local now_ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local replies = {}
for i = 1, #KEYS / 2 do
    local held, field, lease = KEYS[2 * i], ARGV[3 * i - 2], ARGV[3 * i - 1]
    local members = { field }
    for number = 2, ARGV[3 * i] + 0 do members[number] = field .. '#' .. number end
    local is_held = true
    for _, member in ipairs(members) do
        local ends_at = redis.pcall('ZSCORE', held, member)
        is_held = is_held and type(ends_at) == 'string' and ends_at + 0 > now_ms
    end
    -- A server without memory accepts every write of a script that has written.
    if is_held and lease ~= '' then
        redis.call('ZREM', held, '')
        for _, member in ipairs(members) do
            redis.call('ZADD', held, string.format('%.0f', now_ms + lease), member)
        end
    end
    replies[i] = is_held and '1' or '0'
end
return table.concat(replies)
