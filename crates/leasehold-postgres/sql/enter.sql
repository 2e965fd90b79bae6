-- Adds a claim to the queue of a name or finds it there, and returns its standing.
--
-- mode      Q queues, R refuses to wait, F refreshes a claim that is there, and L looks: it extends
--           no lease of a waiter, checks the holders, and writes only changes. With F and L the claim
--           keeps its share.
-- client to grace  the session that proves the client, as `claimant` has it; link is null without one
-- hint      the next token exceeds it
-- until     when the client gives the request up, in microseconds: it has no effect later
-- ended     the nonces of absences that the client has seen for their whole grace
--
-- standing  H holds, N is the next waiter, Q waits, G is gone
-- ahead     how many claims are ahead of a waiter, or of a claim that was refused
-- place     how many waiters are ahead that were not passed over
-- next_end  milliseconds until the first lease of a holder ends; while a transaction pins a grant that
--           is over, -1 less the milliseconds since its end
-- absences  of holders: claim, nonce and grace in milliseconds
CREATE FUNCTION leasehold.enter_1(
    name text, mode "char", claim uuid, weight int, capacity int, lease int, reserved int,
    client uuid, epoch int, link bigint, server text, channel text, grace int, info text,
    hint bigint, until bigint, ended uuid[],
    OUT standing "char", OUT token bigint, OUT ahead int, OUT place int, OUT next_end int,
    OUT absences text[]
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    l leasehold_private.lock;
    c leasehold_private.claimant;
    request leasehold_private.claimant;
    whole int := leasehold_private.units(enter_1.capacity, enter_1.capacity);
    is_new boolean := mode IN ('Q', 'R');
    before leasehold_private.lock;
    -- An assignment is cheaper than PERFORM, which plans and starts a query.
    done text;
BEGIN
    done := leasehold_private.begin_step();
    IF hint > leasehold_private.micros() + 86400000000 THEN
        -- The last token of the name is trusted, even if the clock was ahead when it was given.
        PERFORM 1 FROM leasehold_private.lock k
            WHERE k.name = enter_1.name AND hint <= k.last_token + 86400000000;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'leasehold: the token % is more than a day ahead of this server', hint
                USING ERRCODE = 'LH005';
        END IF;
    END IF;

    request := ROW(enter_1.claim, enter_1.weight, enter_1.capacity, enter_1.lease, NULL, NULL,
        enter_1.reserved, 0, false, enter_1.link, enter_1.epoch, enter_1.client, enter_1.server,
        enter_1.grace, NULL, enter_1.channel, enter_1.info);

    -- Most looks find that nothing has changed, and a refusal changes nothing.
    IF mode IN ('R', 'L') THEN
        l := leasehold_private.peek(enter_1.name);
        IF l.name IS NOT NULL AND leasehold_private.is_settled(l, request, mode) THEN
            SELECT * INTO standing, token, ahead, place, next_end, absences
                FROM leasehold_private.standing(l, request.claim);
            -- These are several queries. A claim that a hand-over moves between them is found in
            -- none.
            IF mode = 'R' OR standing <> 'G' THEN RETURN; END IF;
        END IF;
    END IF;

    done := pg_advisory_xact_lock(leasehold_private.queue_key(name));
    -- After the wait: behind a pooler the server does not notice that the client has given up.
    IF until < leasehold_private.micros() THEN
        RAISE EXCEPTION 'leasehold: the request is late' USING ERRCODE = 'LH002',
            DETAIL = leasehold_private.micros();
    END IF;
    request.deadline := leasehold_private.after(enter_1.lease);

    -- The lock is free, and the claim wants all of it.
    IF is_new AND enter_1.weight = enter_1.capacity THEN
        UPDATE leasehold_private.lock k SET
            last_token = greatest(greatest(k.last_token, k.min_token, hint) + request.reserved + 1,
                leasehold_private.micros()),
            min_token = 0, capacity = whole, taken = whole, used = clock_timestamp(),
            holder = request
        WHERE k.name = enter_1.name AND k.taken = 0 AND k.waiting = 0
        RETURNING k.last_token INTO token;
        IF FOUND THEN standing := 'H'; RETURN; END IF;
    END IF;

    -- Somebody has the whole of the lock, and the first waiter's session is alive: the claim enters at
    -- the end, and nothing else changes.
    l := leasehold_private.peek(enter_1.name);
    c := l.holder;
    IF mode = 'Q' AND c.claim <> enter_1.claim AND NOT c.is_leaving AND c.nonce IS NULL
        AND c.deadline > clock_timestamp() AND l.capacity = whole
        AND (l.next).claim <> enter_1.claim AND leasehold_private.is_ready(l, client) THEN
        request.place := l.last_place + 1;
        INSERT INTO leasehold_private.claim
            VALUES (l.name, request.claim, request.place, false, request) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            UPDATE leasehold_private.lock k SET last_place = request.place, waiting = l.waiting + 1,
                min_token = greatest(k.min_token, hint), used = clock_timestamp()
            WHERE k.name = enter_1.name;
            -- Nobody has the lock by this step. A server that crashes may forget the waiter, which
            -- then enters again, and the commit of its grant would make this one durable too.
            done := set_config('synchronous_commit', 'off', true);

            standing := 'Q';
            ahead := 1 + l.waiting;
            place := 1;
            IF l.waiting > 1 THEN
                SELECT count(*) INTO place FROM leasehold_private.claim k
                    WHERE k.name = l.name AND NOT k.holds AND (k.data).nonce IS NULL;
            END IF;
            next_end := least(
                ceil(extract(epoch FROM c.deadline - clock_timestamp()) * 1000), 2147483647);
            RETURN;
        END IF;
    END IF;

    l := leasehold_private.load(name);
    IF l.name IS NULL THEN
        IF NOT is_new THEN standing := 'G'; RETURN; END IF;
        PERFORM leasehold_private.remove_unused(name, 4);
        INSERT INTO leasehold_private.lock (name, last_token, min_token, capacity, taken, used)
            VALUES (enter_1.name, 0, 0, whole, 0, clock_timestamp()) ON CONFLICT DO NOTHING;
        l := leasehold_private.load(name);
    END IF;

    before := l;
    l.min_token := greatest(l.min_token, hint);

    c := leasehold_private.find(l, request.claim);
    IF c.claim IS NULL AND is_new AND (l.taken > 0 OR l.waiting > 0) AND l.capacity <> whole THEN
        l := leasehold_private.settle(leasehold_private.expire(l, request.claim), request.claim);
        IF l.taken > 0 OR l.waiting > 0 THEN
            PERFORM leasehold_private.mismatch(l);
        END IF;
    END IF;
    l := leasehold_private.expire(l, request.claim);
    c := leasehold_private.find(l, request.claim);
    IF c.claim IS NOT NULL AND c.token IS NULL AND c.deadline <= clock_timestamp() THEN
        l := leasehold_private.remove(l, c);
        c := NULL;
    END IF;

    IF c.claim IS NOT NULL AND NOT c.is_leaving THEN
        -- It is there already: its lease begins again, with what this request says of its client.
        IF mode <> 'L' OR c.token IS NOT NULL THEN
            l := leasehold_private.keep(l, c, request, is_new);
        END IF;
    ELSIF is_new AND c.claim IS NULL THEN
        l.last_place := l.last_place + 1;
        request.place := l.last_place;
        IF l.waiting = 0 AND l.taken = 0 THEN l.capacity := whole; END IF;
        l.waiting := l.waiting + 1;
        IF l.waiting = 1 THEN
            l.next := request;
        ELSE
            INSERT INTO leasehold_private.claim
                VALUES (l.name, request.claim, request.place, false, request);
        END IF;
    END IF;

    -- The holders are checked by the first waiter alone, and by a claim that will not wait.
    IF mode <> 'F' AND ((l.next).claim = request.claim OR mode IN ('R', 'L')) THEN
        l := leasehold_private.check_absences(l, request.claim, ended);
    END IF;
    l := leasehold_private.settle(l, request.claim);

    IF mode = 'R' THEN
        c := leasehold_private.find(l, request.claim);
        IF c.claim IS NOT NULL AND c.token IS NULL THEN
            -- Those behind it may fit.
            l := leasehold_private.settle(leasehold_private.remove(l, c), NULL);
        END IF;
    END IF;
    IF l IS DISTINCT FROM before THEN
        PERFORM leasehold_private.save(l);
    END IF;
    SELECT * INTO standing, token, ahead, place, next_end, absences
        FROM leasehold_private.standing(l, request.claim);
END $$;

-- Whether a request would find nothing to do: nobody's lease is over, no session is gone, and no
-- waiter could be granted.
--
-- It reads without the lock of the queue, so what it has read may be over at once. Nothing depends
-- on that, because the step then only replies: with a refusal, which was right at that moment, or
-- to a waiter, which looks again or is notified. A grant is never read here, because a claim that
-- holds goes on to the locked part. As long as somebody has the whole, no waiter fits,
-- and the holder is the only claim whose end would change anything.
CREATE FUNCTION leasehold_private.is_settled(
    l leasehold_private.lock, request leasehold_private.claimant, mode "char"
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c leasehold_private.claimant := l.holder;
BEGIN
    IF c.claim IS NULL OR c.claim = request.claim OR c.is_leaving
        OR c.deadline <= pg_catalog.clock_timestamp() OR c.nonce IS NOT NULL
        OR l.capacity <> leasehold_private.units(request.capacity, request.capacity) THEN
        RETURN false;
    END IF;
    IF mode = 'L' THEN
        c := leasehold_private.find(l, request.claim);
        IF c.claim IS NULL OR c.deadline <= pg_catalog.clock_timestamp() THEN RETURN false; END IF;
    ELSIF (leasehold_private.find(l, request.claim)).claim IS NOT NULL THEN
        RETURN false;
    END IF;
    RETURN NOT leasehold_private.is_absent(l.holder);
END $$;

CREATE FUNCTION leasehold_private.mismatch(l leasehold_private.lock) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c leasehold_private.claimant;
BEGIN
    SELECT (k.data).* INTO c FROM leasehold_private.claim k
        WHERE k.name = l.name ORDER BY k.holds DESC LIMIT 1;
    -- Without a row, `c` is a row of nulls and not null.
    IF (l.holder).claim IS NOT NULL THEN
        c := l.holder;
    ELSIF c.claim IS NULL THEN
        c := l.next;
    END IF;
    RAISE EXCEPTION 'leasehold: the name is in use with a capacity of %', c.capacity
        USING ERRCODE = 'LH003', DETAIL = c.weight || ' ' || c.capacity;
END $$;

-- Begins the lease of a claim again. Only a request to enter changes its share, and only to a
-- smaller one, unless a transaction pins the grant: others would share it beside that transaction.
-- The session of the request replaces that of the record, unless it is an older one.
CREATE FUNCTION leasehold_private.keep(
    INOUT l leasehold_private.lock, c leasehold_private.claimant,
    request leasehold_private.claimant, is_new boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    kept leasehold_private.claimant := c;
BEGIN
    IF leasehold_private.units(request.capacity, request.capacity)
        <> leasehold_private.units(c.capacity, c.capacity) THEN
        PERFORM leasehold_private.mismatch(l);
    END IF;
    IF is_new AND leasehold_private.units(request.weight, request.capacity)
        > leasehold_private.units(c.weight, c.capacity) THEN
        RAISE EXCEPTION 'leasehold: a claim cannot take a larger share' USING ERRCODE = 'LH004';
    END IF;

    kept.nonce := NULL;
    kept.lease := request.lease;
    kept.deadline := leasehold_private.after(request.lease);
    IF request.client IS DISTINCT FROM c.client OR request.epoch >= c.epoch THEN
        kept.link := request.link; kept.epoch := request.epoch; kept.client := request.client;
        kept.server := request.server; kept.grace := request.grace; kept.channel := request.channel;
    END IF;
    IF NOT is_new OR (request.weight = c.weight AND request.capacity = c.capacity) THEN
        l := leasehold_private.put(l, kept);
        RETURN;
    END IF;

    kept.weight := request.weight;
    kept.capacity := request.capacity;
    IF c.token IS NULL THEN
        l := leasehold_private.put(l, kept);
    ELSIF pg_catalog.pg_try_advisory_xact_lock(leasehold_private.pin_key(l.name, c.token)) THEN
        kept.token := coalesce(c.token, l.last_token);
        l := leasehold_private.hold(leasehold_private.remove(l, c), kept);
    ELSE
        RAISE EXCEPTION 'leasehold: a transaction pins the grant' USING ERRCODE = '55P03';
    END IF;
END $$;

-- Ends the holds whose clients are gone for their grace, and marks new absences. A mark belongs to
-- one grant, and any request of the holder removes it.
CREATE FUNCTION leasehold_private.check_absences(
    INOUT l leasehold_private.lock, caller uuid, ended uuid[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c leasehold_private.claimant;
BEGIN
    FOR c IN
        SELECT (l.holder).* WHERE (l.holder).claim IS NOT NULL
        UNION ALL
        (SELECT (k.data).* FROM leasehold_private.claim k
            WHERE k.name = l.name AND k.holds AND (k.data).link IS NOT NULL
            -- In any other order, forty living holders could always be ahead of an absent one.
            ORDER BY coalesce((k.data).nonce = ANY (ended), false) DESC, random() LIMIT 40)
    LOOP
        CONTINUE WHEN c.claim = caller OR c.link IS NULL OR c.is_leaving;
        IF NOT leasehold_private.is_absent(c) THEN
            CONTINUE WHEN c.nonce IS NULL;
            c.nonce := NULL;
        ELSIF c.nonce IS NULL THEN
            c.nonce := gen_random_uuid();
        ELSIF c.nonce = ANY (ended) THEN
            IF pg_catalog.pg_try_advisory_xact_lock(leasehold_private.pin_key(l.name, c.token)) THEN
                l := leasehold_private.remove(l, c);
            ELSE
                l := leasehold_private.put(l, leasehold_private.leaving(c));
            END IF;
            l.last_end := ROW(c.token, 'C', NULL, NULL);
            PERFORM leasehold_private.notify(c, caller, 'G');
            CONTINUE;
        ELSE
            CONTINUE;
        END IF;
        l := leasehold_private.put(l, c);
    END LOOP;
END $$;

-- The reply to a request to enter, as enter_1 describes it.
CREATE FUNCTION leasehold_private.standing(
    l leasehold_private.lock, id uuid,
    OUT standing "char", OUT token bigint, OUT ahead int, OUT place int, OUT next_end int,
    OUT absences text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c leasehold_private.claimant := leasehold_private.find(l, id);
    held leasehold_private.claimant;
    ends timestamptz;
    count_held int := 0;
BEGIN
    IF c.token IS NOT NULL AND NOT c.is_leaving THEN
        standing := 'H'; token := c.token;
        RETURN;
    END IF;

    FOR held IN
        SELECT (l.holder).* WHERE (l.holder).claim IS NOT NULL
        UNION ALL
        (SELECT (k.data).* FROM leasehold_private.claim k WHERE k.name = l.name AND k.holds)
    LOOP
        count_held := count_held + 1;
        ends := least(ends, held.deadline);
        IF held.nonce IS NOT NULL THEN
            absences := absences || (held.claim || ' ' || held.nonce || ' ' || held.grace);
        END IF;
    END LOOP;
    IF ends <= pg_catalog.clock_timestamp() THEN
        next_end := greatest(
            -1 - extract(epoch FROM pg_catalog.clock_timestamp() - ends) * 1000, -2147483647);
    ELSE
        next_end := least(ceil(extract(epoch FROM ends - pg_catalog.clock_timestamp()) * 1000), 2147483647);
    END IF;

    IF c.claim IS NULL OR c.is_leaving THEN
        standing := 'G'; ahead := count_held + l.waiting;
        RETURN;
    END IF;
    SELECT count(*), count(*) FILTER (WHERE (k.data).nonce IS NULL) INTO ahead, place
        FROM leasehold_private.claim k WHERE k.name = l.name AND NOT k.holds AND k.place < c.place;
    IF (l.next).claim IS NOT NULL AND (l.next).claim <> id THEN
        ahead := ahead + 1;
        IF (l.next).nonce IS NULL THEN place := place + 1; END IF;
    END IF;
    ahead := ahead + count_held;
    standing := CASE WHEN place = 0 THEN 'N' ELSE 'Q' END;
END $$;

-- A claim as `inspect` shows it: without what is secret or only for scripts.
CREATE FUNCTION leasehold_private.record_of(c leasehold_private.claimant) RETURNS text
LANGUAGE sql VOLATILE
RETURN c.claim || ' ' || c.weight || ' ' || c.capacity || ' ' || coalesce(c.token, 0) || ' '
    || c.lease || ' ' || c.reserved || ' ' || coalesce(c.info, '');
