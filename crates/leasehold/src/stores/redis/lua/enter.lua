-- Puts a claim in line, or finds it there, and says where it stands.
--
-- KEYS[1]  the lock: leasehold:{name}
-- ARGV[1]  the record the lock has if this claim is its only holder: token, 'H', claim, ... (see record.rs).
--          Its token is a proposal: what the client takes for the server's clock, or more than the last it saw.
--          All zeros: never without looking at the line.
-- ARGV[2]  the life of that record in ms: its lease and a day
-- ARGV[3]  how (Q wait in line, R refuse to wait, F only find), hint (16), a fresh nonce (11), and for each absence the
--          client has seen for the holder's grace: claim (22), nonce (11)
-- replies  number (16: token, or how many are ahead), standing (H held, N next, Q queued, G gone), claim (22);
--          N and G go on with: ms until a lease ends (10), and for each absent holder: claim (22), nonce (11), its grace in ms (7)
--
-- Free, and used in the same ten seconds: then the proposal cannot be far off, and the clock need not be asked. Only
-- digits are compared: what follows them, in the order of the server's locale, would let a token be given twice.
local key, claim = KEYS[1], ARGV[1]
local state = redis.call('GETRANGE', key, '0', '16')
local last, proposal = string.sub(state, 1, 16), string.sub(claim, 1, 16)
if last < proposal and string.sub(state, 17) == '~' and string.sub(last, 1, 9) == string.sub(proposal, 1, 9) then
    redis.call('SET', key, claim, 'PX', ARGV[2])
    return string.sub(claim, 1, 39)
end
