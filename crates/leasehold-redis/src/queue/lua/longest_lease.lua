-- Notes the longest lease of a client whose masters wait after a failover. The key has the largest
-- one of all clients, until a month after the last handshake of a client with that value, or the
-- last request to grant (see queue.lua).
--
-- layout   none
-- KEYS[1]  leasehold:{history}:longest
-- ARGV[1]  the longest lease of the client's URL, in ms
-- replies  'OK'
local largest = tonumber(redis.call('GET', KEYS[1]) or '') or 0
local own, month = tonumber(ARGV[1]), '2592000000'
if own > largest then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', month)
elseif own == largest then
    redis.call('PEXPIRE', KEYS[1], month)
end
return redis.status_reply('OK')
