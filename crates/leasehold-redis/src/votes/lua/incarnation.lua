-- Reads the incarnation of a master, or creates it. It shows whether the master remembers its
-- votes: an emptied master has lost the key, and the key of a restarted master names another run.
--
-- KEYS[1]  the incarnation: run id, creation time in microseconds, longest lease in ms
-- KEYS[2]  for an incarnation that is later than the server's clock, because the clock was set
--          back: its run id and creation time, and the time of the first handshake after that,
--          from which its age counts
-- ARGV[1]  the run id of this server
-- ARGV[2]  the longest lease in ms
-- replies  the incarnation, its age in microseconds at least, and its longest lease
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
