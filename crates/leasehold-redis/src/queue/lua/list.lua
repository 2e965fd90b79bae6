-- Finds the locks with a holder or a waiter among keys, and the keys that are no locks, because
-- inspecting one of them reports that. Writes nothing.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table.
-- KEYS     some keys, all of them strings
-- ARGV     none
-- replies  for each key '1' or '0'; or the error of a key that cannot be read
local DAY = 86400000
local replies = {}
for i = 1, #KEYS do
    local mode = redis.pcall('GETRANGE', KEYS[i], @record.mode:range@)
    -- A node of a cluster cannot read the keys of a slot that it does not own. While a slot moves,
    -- no node can read the keys that have moved already, so their locks are missing until the end.
    if type(mode) == 'table' and not string.find(mode.err, 'non local key', 1, true) then
        return mode
    end
    local is_used = type(mode) == 'string' and not string.find(mode, '^[~HW]$')
    if mode == 'H' or mode == 'W' then
        local life = redis.call('PTTL', KEYS[i])
        is_used = life > DAY or life == -1
    end
    if mode == 'W' and not is_used then
        -- The record may keep a hint only.
        local waiting = string.sub(redis.call('GET', KEYS[i]), @tail.waiting@)
        is_used = waiting ~= '00000000'
    end
    replies[i] = is_used and '1' or '0'
end
return table.concat(replies)
