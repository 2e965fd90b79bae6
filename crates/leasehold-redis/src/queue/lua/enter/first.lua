-- The step before enter/fast.lua in the first request of a client, which it sends behind the checks
-- of a new connection, without their replies. So the record names no server, and this step writes
-- the one that runs it, if that server can detect a missing connection; see server_id.lua.
--
-- ARGV[5]  only with crash detection: the channel of the connection
-- ARGV[6]  a channel without a subscriber
if ARGV[5] then
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', ARGV[5], ARGV[6])
    local info = redis.pcall('INFO', 'replication')
    local server = type(info) == 'string'
        and string.match(info, 'master_replid:(%w%w%w%w%w%w%w%w%w%w)')
    if server and not subscribers.err and tonumber(subscribers[2]) > 0
        and tonumber(subscribers[4]) == 0 then
        ARGV[1] = string.sub(ARGV[1], 1, @record.server:offset@) .. server
            .. string.sub(ARGV[1], @record.grace:first@)
    end
    -- In the other requests, it is the longest lease.
    ARGV[5] = nil
end
