-- Finds the keys that are locks, held by clients of leasehold or of other libraries. It does not
-- write.
--
-- A value of another library is recognised by its shape. It must expire, unless it is a UUID of
-- version 1, as redis-py writes it.
--
-- KEYS     some keys, of any type
-- ARGV     none
-- replies  '1' or '0' for each key
local replies = {}
local function is_lock(key)
    if redis.call('TYPE', key).ok ~= 'string' then return false end
    if redis.call('GETRANGE', key, '0', '9') == 'leasehold:' then return true end
    local length = redis.call('STRLEN', key)
    if length ~= 20 and length ~= 24 and length ~= 32 then return false end
    local value = redis.call('GET', key)
    local is_hexadecimal = length == 32 and string.match(value, '^[0-9a-f]+$')
    local is_time_uuid = is_hexadecimal and string.match(value, '^............1...[89ab]')
    local is_base64 = length == 24 and string.match(value, '^[%w+/]+=?=?$')
    local is_binary = length == 20 and string.match(value, '[\128-\255]')
    local expires = redis.call('PTTL', key) >= 0
    return is_time_uuid or (expires and (is_hexadecimal or is_base64 or is_binary))
end
for i = 1, #KEYS do replies[i] = is_lock(KEYS[i]) and '1' or '0' end
return table.concat(replies)
