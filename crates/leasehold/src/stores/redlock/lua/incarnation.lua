-- By what a master is known to remember: the mark goes when it is emptied, and is of another run when it was restarted.
--
-- KEYS[1]  the mark: run, since when it is there in microseconds, the longest lease in ms
-- KEYS[2]  for a mark that is later than the server's clock, as that was set back: its run and since, and the time of the
--          first greeting after that, from which its age counts
-- ARGV[1]  the run of this server
-- ARGV[2]  the longest lease in ms
-- replies  the incarnation, for how many microseconds it has been there at least, and its longest lease
local KEPT = '864000000'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local incarnation = redis.call('GET', KEYS[1]) or ''
local run, since, longest = string.match(incarnation, '^(%S+) (%d+) (%d+)$')
if run ~= ARGV[1] then
    since, longest = string.format('%d', now), ARGV[2]
    incarnation = ARGV[1] .. ' ' .. since .. ' ' .. longest
    redis.call('SET', KEYS[1], incarnation)
end
redis.call('PEXPIRE', KEYS[1], KEPT)
local from = tonumber(since)
if from > now then
    local of, again = string.match(redis.call('GET', KEYS[2]) or '', '^(%S+ %d+) (%d+)$')
    from = tonumber(again or now)
    if of ~= ARGV[1] .. ' ' .. since or from > now then
        from = now
        redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. since .. ' ' .. string.format('%d', now))
    end
    redis.call('PEXPIRE', KEYS[2], KEPT)
end
return { incarnation, string.format('%d', now - from), longest }
