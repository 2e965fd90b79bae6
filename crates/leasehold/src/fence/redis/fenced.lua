-- One command, if its token is not late.
-- KEYS: the mark; those that the command is about. ARGV: the token; the command, if any, and its arguments.
-- Answers what the command answers, or the mark; refuses with LATE and the mark.

-- Tokens have up to twenty digits, more than a number of Lua keeps: they are compared as text.
local function lower(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local token = ARGV[1]
if not token or not string.find(token, '^[1-9]%d*$') or #token > 20 then
  return redis.error_reply('ERR a token is a whole number above 0')
end
local mark = redis.call('GET', KEYS[1])
if mark and not string.find(mark, '^[1-9]%d*$') then
  return redis.error_reply('ERR ' .. KEYS[1] .. ' is no mark: it holds no whole number above 0')
end
if mark and lower(token, mark) then
  return redis.error_reply('LATE a later holder has sealed this with token ' .. mark)
end
if token ~= mark then
  redis.call('SET', KEYS[1], token)
end
if not ARGV[2] then
  return token
end
return redis.call(unpack(ARGV, 2))
