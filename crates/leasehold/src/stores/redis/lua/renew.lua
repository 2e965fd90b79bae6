-- Keeps claims alive, waiting or held.
--
-- KEYS     the locks of the claims, each by itself
-- ARGV     for each: 'H' claim(22) no-nonce(11) client(11) epoch(8) server(10) grace(7), as it stands in a record
--          whose holder was not missed and has not moved; the life of the record in ms: its lease and a day
-- replies  the first claim (22), and for each claim '1' if it was there, else '0'
local key
local answers = {}
