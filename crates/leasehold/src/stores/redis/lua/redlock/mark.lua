-- By what a master is known to remember: the mark goes when it is emptied, and is of another run when it was restarted.
--
-- KEYS[1]  the mark: run, since when it is there in microseconds, the longest lease in ms
-- ARGV[1]  the run of this server
-- ARGV[2]  the longest lease in ms
-- replies  the mark, for how many microseconds it has been there, and its longest lease
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local mark = redis.call('GET', KEYS[1]) or ''
local run, since, longest = string.match(mark, '^(%S+) (%d+) (%d+)$')
if run ~= ARGV[1] then
    since, longest = string.format('%d', now), ARGV[2]
    mark = ARGV[1] .. ' ' .. since .. ' ' .. longest
    redis.call('SET', KEYS[1], mark)
end
redis.call('PEXPIRE', KEYS[1], '864000000')
return { mark, string.format('%d', math.max(0, now - since)), longest }
