-- Reads the record of a lock.
--
-- KEYS     the lock's keys; the last one is the record
-- ARGV[1]  how long the record is kept from now on at least, in ms; '0' leaves its life as it is
-- replies  a list: the server's clock in ms, and the record; '' if there is none
local key, time = KEYS[#KEYS], redis.call('TIME')
local record = redis.call('GET', key) or ''
local life = tonumber(ARGV[1])
if record ~= '' and life > 0 and redis.call('PTTL', key) < life then
    redis.call('PEXPIRE', key, ARGV[1])
end
return { string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000)), record }
