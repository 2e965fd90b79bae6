-- Adds a completion to the record of a lock if the claim holds it exclusively. The script that
-- leaves follows this one, so that both are one step.
--
-- layout   Names between at signs stand for the positions of fields; layout.rs has the table.
-- KEYS     the lock's keys; the last one is the record: the text of `Record::to_text`
-- ARGV     those of leave/fast.lua; then how long the record is kept, in ms, and the parts of the
--          completion's line before and after its end
-- replies  '1' if the completion is recorded, by this request or an earlier one, else '0'; and the
--          claim
--
-- The claim decides. Tokens are not compared: after a loss of data, an old one may be the largest.
do
    local tail, head, life = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
    local key, claim, sub = KEYS[#KEYS], string.sub(ARGV[1], 2), string.sub
    local state, old = redis.call('GET', KEYS[1]) or '', redis.call('GET', key) or 'v1\n'
    if sub(old, 1, 3) ~= 'v1\n' then
        return redis.error_reply('VERSION the record ' .. key .. ' does not begin with v1')
    end
    local recorded = string.find(old, '\n' .. string.match(head, '^. %S+ '), 1, true)
    local mode, left = sub(state, @record.mode@), redis.call('PTTL', KEYS[1])
    -- The key outlives the lease by a day.
    local is_over = left ~= -1 and left <= 86400000
    if is_over or mode ~= 'H' and mode ~= 'W' or sub(state, @record.claim@) ~= claim then
        return (recorded and '1' or '0') .. claim
    end
    local time = redis.call('TIME')
    local line = string.format('%s %d %s\n', head, time[1] * 1000 + math.floor(time[2] / 1000), tail)
    local lines, failure = { 'v1\n' }, ''
    if sub(line, 1, 1) == 'S' then lines[2] = line end
    for old_line in string.gmatch(old, '[SF][^\n]*\n') do
        if sub(old_line, 1, 1) == 'F' then
            failure = old_line
        elseif #lines <= 32 then
            lines[#lines + 1] = old_line
        end
    end
    if sub(line, 1, 1) == 'F' then failure = line end
    -- It is recorded already if an earlier script failed before the claim left.
    if not recorded then
        -- A client that keeps records for longer has set a longer life.
        life = math.max(life, redis.call('PTTL', key))
        redis.call('SET', key, table.concat(lines) .. failure, 'PX', string.format('%d', life))
    end
end
