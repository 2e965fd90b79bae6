-- Lists the keys in use of one page. The script of a format precedes it as the function `in_use`,
-- which takes keys and returns '1' or '0' for each, or an error. Keys that are not in use never
-- leave the server. Writes nothing.
--
-- KEYS     none
-- ARGV[1]  where the page begins; '0' for the first one
-- ARGV[2]  the pattern of the keys
-- ARGV[3]  how many keys the server looks at
-- ARGV[4]  the type of the keys
-- replies  where the next page begins, '0' after the last one; then the keys in use
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', ARGV[4])
local replies = { page[1] }
local used = in_use(page[2])
if type(used) == 'table' then return used end
for i, key in ipairs(page[2]) do
    if string.sub(used, i, i) == '1' then replies[#replies + 1] = key end
end
return replies
