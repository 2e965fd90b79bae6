-- The slow path of leaving: all cases that leave/fast.lua does not handle. Keys, arguments, replies
-- and layout: see that file.
local id = sub(ARGV[1], @ended.claim@)
longest_lease = ARGV[3]
local failure = load(KEYS[1])
if failure then return redis.error_reply(failure) end
local record = read(id)
if not record then return '0' .. id end
local kind = sub(ARGV[1], @ended.kind@)
if kind == 'D' then
    -- A waiter has no token.
    local is_as_told = sub(record, @record.token@) == sub(ARGV[1], @ended.token@)
        and link_of(record) == sub(ARGV[1], @ended.link@)
    if not is_as_told or not absent(record) then return '0' .. id end
    note_end(record, 'P', sub(ARGV[1], @ended.seen_by@))
elseif kind == 'K' and holds(record) then
    note_end(record, 'W')
end
-- The first write needs no memory. So the others are allowed when memory is short.
call('HDEL', CLAIMS, id)
drop(record)
if client_of(record) ~= ARGV[2] then notify(record, 'G') end
expire()
settle(false)
save()
return '1' .. id
