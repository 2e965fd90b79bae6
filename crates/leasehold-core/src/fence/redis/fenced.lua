-- One command, if its fencing token is accepted.
-- KEYS: the mark; those that the command is about.
-- ARGV: the token; the claim id; the command, if any, and its arguments.
-- Replies what the command replies, or the token; rejects with LATE and the token of the mark.
-- The mark is `v2 TOKEN CLAIM`. Version 1 is the token alone, without the claim that had it.

-- Tokens have up to twenty digits, more than a number of Lua keeps: they are compared as text.
local function lower(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local token, claim = ARGV[1], ARGV[2]
if not token or not string.find(token, '^[1-9]%d*$') or #token > 20 then
  return redis.error_reply('ERR a token is a whole number above 0')
end
if not claim or not string.find(claim, '^[0-9a-f]+$') or #claim ~= 32 then
  return redis.error_reply('ERR a claim id is 32 hexadecimal digits, in small letters')
end
-- Lua cannot call a command with more than about 8,000 words.
if #ARGV > 7902 then
  return redis.error_reply('ERR a fenced command has at most 7900 words')
end
local mark = redis.call('GET', KEYS[1])
local proposed = 'v2 ' .. token .. ' ' .. claim
if mark and mark ~= proposed then
  local last = string.match(mark, '^v2 ([1-9]%d*) [0-9a-f]+$') or string.match(mark, '^[1-9]%d*$')
  if not last then
    return redis.error_reply('ERR ' .. KEYS[1] .. ' is no mark: it holds no token')
  end
  if token == last then
    return redis.error_reply('LATE another claim has sealed this with the same token ' .. last)
  end
  if lower(token, last) then
    return redis.error_reply('LATE a later holder has sealed this with token ' .. last)
  end
end
if mark ~= proposed then
  redis.call('SET', KEYS[1], proposed)
end
if not ARGV[3] then
  return token
end
return redis.call(unpack(ARGV, 3))
