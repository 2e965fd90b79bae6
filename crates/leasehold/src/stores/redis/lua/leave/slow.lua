local claim = sub(ARGV[1], 2)
local wrong = load(KEYS[1])
if wrong then return redis.error_reply(wrong) end
local record = read(claim)
if not record then return '0' .. claim end
if lock.exclusive_holder == record and lock.count == 0 then
    call('PEXPIRE', key, ONE_DAY)
    call('SETRANGE', key, '16', '~')
    if client_of(record) ~= ARGV[2] then notify(record, 'G') end
    return '1' .. claim
end
-- First, as it is allowed without memory, and what follows is allowed after it.
call('HDEL', CLAIMS, claim)
drop(record)
if client_of(record) ~= ARGV[2] then notify(record, 'G') end
expire()
settle(false)
save()
return '1' .. claim
