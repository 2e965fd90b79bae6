local claim = sub(ARGV[1], 2)
local wrong = load(KEYS[1])
if wrong then return redis.error_reply(wrong) end
if line.sole and claim_of(line.sole) == claim then
    call('PEXPIRE', key, ONE_DAY)
    call('SETRANGE', key, '16', '~')
    if client_of(line.sole) ~= ARGV[2] then tell(line.sole, 'G') end
    return '1' .. claim
end
if line.sole or line.count == 0 then return '0' .. claim end
local record = read(claim)
if not record then return '0' .. claim end
-- First, as it is allowed without memory, and what follows is allowed after it.
call('PEXPIRE', key, TWO_DAYS)
drop(record)
if client_of(record) ~= ARGV[2] then tell(record, 'G') end
expire()
settle(false)
save()
return '1' .. claim
