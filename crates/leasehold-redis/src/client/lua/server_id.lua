-- Reads whether this server reports missing subscribers reliably. Writes nothing.
--
-- KEYS     none
-- ARGV[1]  a channel this client is subscribed to
-- ARGV[2]  a channel without a subscriber
-- replies  the subscribers of both, and the id of this server's history; '' for a value that the
--          user may not read
local result = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1], ARGV[2])
local info = redis.pcall('INFO', 'replication')
local here, nowhere, server = '', '', ''
if not result.err then here, nowhere = tostring(result[2]), tostring(result[4]) end
if type(info) == 'string' then server = string.match(info, 'master_replid:(%w+)') or '' end
return { here, nowhere, server }
