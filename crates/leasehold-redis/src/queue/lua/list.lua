-- Finds the locks with a holder or a waiter among keys. Writes nothing.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table.
-- KEYS     keys of any type
-- ARGV     none
-- replies  for each key '1' or '0'
local DAY = 86400000
local replies = {}
for i = 1, #KEYS do
    local mode = redis.call('TYPE', KEYS[i]).ok == 'string'
        and redis.call('GETRANGE', KEYS[i], @record.mode:range@)
    local life = mode == 'H' and redis.call('PTTL', KEYS[i])
    replies[i] = (mode == 'W' or mode == 'L' or mode == 'H' and (life > DAY or life == -1))
        and '1' or '0'
end
return table.concat(replies)
