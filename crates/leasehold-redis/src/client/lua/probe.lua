-- Whether this server runs leasehold's scripts. Writes nothing.
--
-- KEYS[1]  a key that no client writes
-- ARGV     none
-- replies  what Redis and Valkey reply; see handshake.rs
--
-- Other scripts read keys that they derive from a declared one, count with the digits of texts, cut
-- fractions by %d, and take lists apart. A server that speaks the protocol but has another Lua, or
-- refuses undeclared keys, fails here.
local beside = redis.call('GET', KEYS[1] .. ':undeclared')
local time = redis.call('TIME')
local half = string.format('%d %s', 7 / 2, 10 / 2)
local sum = string.format('%016d', '0000000000000041' + 1)
local first, second = unpack({ 'a', 'b' })
return table.concat({ tostring(beside), type(time[1]), half, sum, first .. second }, ' ')
