CREATE SCHEMA leasehold;
CREATE SCHEMA leasehold_private;
CREATE TYPE leasehold_private.claimant AS (
    claim     uuid,
    weight    int,              -- as requested: a mutex has 1 of 1
    capacity  int,
    lease     int,
    deadline  timestamptz,
    token     bigint,           -- null while it waits; that of a sole holder is `last_token`
    reserved  int,              -- how many tokens below its own are reserved for its client
    place     bigint,           -- the order of arrival
    is_leaving boolean,         -- released, but a transaction still pins the grant
    link      bigint,
    epoch     int,              -- counts the sessions of the client
    client    uuid,
    server    text,
    grace     int,              -- how long the client trusts a session that is gone
    nonce     uuid,             -- marks an absence of the session
    channel   text,             -- secret: who knows it could send grants to the client
    info      text
);
CREATE TYPE leasehold_private.hold_end AS (
    token       bigint,
    reason      "char",         -- P process ended, W by its watchdog, C connection missing, L lease
    followed_by bigint,         -- the last token after the step that has ended it
    seen_by     text
);
CREATE TABLE leasehold_private.lock (
    name       text COLLATE "C" PRIMARY KEY,
    last_token bigint NOT NULL,
    min_token  bigint NOT NULL DEFAULT 0,       -- the next token exceeds it
    capacity   int NOT NULL,                    -- in units, as `taken`
    taken      int NOT NULL,
    waiting    int NOT NULL DEFAULT 0,          -- with the next waiter
    last_place bigint NOT NULL DEFAULT 0,
    used       timestamptz NOT NULL,            -- when it was last entered or left
    holder     leasehold_private.claimant,      -- only a claim of the whole
    next       leasehold_private.claimant,      -- ahead of all waiters in `claim`
    last_end   leasehold_private.hold_end
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE TABLE leasehold_private.claim (
    name  text COLLATE "C" NOT NULL,
    claim uuid NOT NULL,
    place bigint NOT NULL,
    holds boolean NOT NULL,
    data  leasehold_private.claimant NOT NULL,
    PRIMARY KEY (name, claim)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX claim_order ON leasehold_private.claim (name, holds, place);
CREATE FUNCTION leasehold_private.micros() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint;
CREATE FUNCTION leasehold_private.after(millis int) RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN pg_catalog.clock_timestamp() + millis * interval '1 millisecond';
CREATE FUNCTION leasehold_private.units(share int, capacity int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN CASE WHEN capacity = 1 THEN 1073741824 ELSE share END;
CREATE FUNCTION leasehold_private.queue_key(name text) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('leasehold queue ' || name, 4711);
CREATE FUNCTION leasehold_private.pin_key(name text, token bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('leasehold pin ' || token || ' ' || name, 4711);
CREATE FUNCTION leasehold_private.server() RETURNS text LANGUAGE sql VOLATILE
RETURN (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c) || '/'
    || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8);
CREATE FUNCTION leasehold_private.begin_step() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'leasehold: the transaction is %, and must be READ COMMITTED',
            pg_catalog.current_setting('transaction_isolation') USING ERRCODE = 'LH007',
            HINT = 'SET default_transaction_isolation TO ''read committed''';
    END IF;
    IF pg_catalog.current_setting('synchronous_commit') = 'off' THEN
        PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
END $$;
CREATE FUNCTION leasehold_private.is_absent(c leasehold_private.claimant) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF c.link IS NULL OR NOT pg_catalog.pg_try_advisory_xact_lock_shared(c.link) THEN
        RETURN false;
    END IF;
    RETURN c.server = leasehold_private.server();
END $$;
CREATE FUNCTION leasehold_private.notify(c leasehold_private.claimant, caller uuid, what text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF c.channel IS NOT NULL AND c.claim IS DISTINCT FROM caller
        AND pg_catalog.current_setting('leasehold.quiet', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_catalog.pg_notify(c.channel, what || c.claim || coalesce(c.token::text, ''));
    END IF;
END $$;
CREATE FUNCTION leasehold_private.find(l leasehold_private.lock, id uuid)
RETURNS leasehold_private.claimant LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_row leasehold_private.claimant;
BEGIN
    IF (l.holder).claim = id THEN RETURN l.holder; END IF;
    IF (l.next).claim = id THEN RETURN l.next; END IF;
    SELECT (k.data).* INTO found_row FROM leasehold_private.claim k
        WHERE k.name = l.name AND k.claim = id;
    RETURN found_row;
END $$;
CREATE FUNCTION leasehold_private.remove(INOUT l leasehold_private.lock, c leasehold_private.claimant)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF (l.holder).claim = c.claim THEN
        l.holder := NULL;
    ELSIF (l.next).claim = c.claim THEN
        l.next := NULL;
    ELSE
        DELETE FROM leasehold_private.claim k WHERE k.name = l.name AND k.claim = c.claim;
    END IF;
    IF c.token IS NULL THEN
        l.waiting := l.waiting - 1;
    ELSE
        l.taken := l.taken - leasehold_private.units(c.weight, c.capacity);
    END IF;
END $$;
CREATE FUNCTION leasehold_private.hold(INOUT l leasehold_private.lock, c leasehold_private.claimant)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    l.taken := l.taken + leasehold_private.units(c.weight, c.capacity);
    IF c.weight = c.capacity THEN
        l.holder := c;
    ELSE
        INSERT INTO leasehold_private.claim VALUES (l.name, c.claim, c.place, true, c);
    END IF;
END $$;
CREATE FUNCTION leasehold_private.put(INOUT l leasehold_private.lock, c leasehold_private.claimant)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF (l.holder).claim = c.claim THEN
        l.holder := c;
    ELSIF (l.next).claim = c.claim THEN
        l.next := c;
    ELSE
        UPDATE leasehold_private.claim k SET data = c WHERE k.name = l.name AND k.claim = c.claim;
    END IF;
END $$;
CREATE FUNCTION leasehold_private.leaving(INOUT c leasehold_private.claimant)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    c.is_leaving := true;
    c.nonce := NULL;
    c.deadline := least(c.deadline, pg_catalog.clock_timestamp());
END $$;
CREATE FUNCTION leasehold_private.expire(INOUT l leasehold_private.lock, caller uuid)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c leasehold_private.claimant;
BEGIN
    FOR c IN
        SELECT (l.holder).* WHERE (l.holder).claim IS NOT NULL
        UNION ALL
        SELECT (k.data).* FROM leasehold_private.claim k WHERE k.name = l.name AND k.holds
    LOOP
        CONTINUE WHEN NOT c.is_leaving AND c.deadline > pg_catalog.clock_timestamp();
        CONTINUE WHEN NOT pg_catalog.pg_try_advisory_xact_lock(leasehold_private.pin_key(l.name, c.token));
        l := leasehold_private.remove(l, c);
        IF NOT c.is_leaving THEN
            l.last_end := ROW(c.token, 'L', NULL, NULL);
            PERFORM leasehold_private.notify(c, caller, 'G');
        ELSIF (l.last_end).token = c.token THEN
            l.last_end := ROW(c.token, (l.last_end).reason, NULL, (l.last_end).seen_by);
        END IF;
    END LOOP;
END $$;
CREATE FUNCTION leasehold_private.next_token(l leasehold_private.lock, reserved int) RETURNS bigint
LANGUAGE sql VOLATILE
RETURN greatest(greatest(l.last_token, l.min_token) + reserved + 1, leasehold_private.micros());
CREATE FUNCTION leasehold_private.settle(INOUT l leasehold_private.lock, caller uuid)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c leasehold_private.claimant;
    passed int := 0;
    units int;
BEGIN
    FOR c IN
        SELECT (l.next).* WHERE (l.next).claim IS NOT NULL
        UNION ALL
        (SELECT (k.data).* FROM leasehold_private.claim k
            WHERE k.name = l.name AND NOT k.holds ORDER BY k.place)
    LOOP
        units := leasehold_private.units(c.weight, c.capacity);
        IF c.deadline <= pg_catalog.clock_timestamp() THEN
            l := leasehold_private.remove(l, c);
            PERFORM leasehold_private.notify(c, caller, 'G');
        ELSIF c.claim IS DISTINCT FROM caller AND leasehold_private.is_absent(c) THEN
            passed := passed + 1;
            CONTINUE WHEN passed < 100;
            PERFORM leasehold_private.notify(c, caller, 'N');
            EXIT;
        ELSIF l.taken::bigint + units > leasehold_private.units(c.capacity, c.capacity) THEN
            PERFORM leasehold_private.notify(c, caller, 'N');
            EXIT;
        ELSE
            l := leasehold_private.remove(l, c);
            l.last_token := leasehold_private.next_token(l, c.reserved);
            l.min_token := 0;
            l.capacity := leasehold_private.units(c.capacity, c.capacity);
            c.token := l.last_token;
            c.deadline := leasehold_private.after(c.lease);
            l := leasehold_private.hold(l, c);
            PERFORM leasehold_private.notify(c, caller, 'H');
        END IF;
    END LOOP;
    IF (l.next).claim IS NULL AND l.waiting > 0 THEN
        DELETE FROM leasehold_private.claim k
            WHERE k.name = l.name AND k.claim = (
                SELECT f.claim FROM leasehold_private.claim f
                WHERE f.name = l.name AND NOT f.holds ORDER BY f.place LIMIT 1)
            RETURNING (k.data).* INTO c;
        IF FOUND THEN l.next := c; END IF;
    END IF;
END $$;
CREATE FUNCTION leasehold_private.save(l leasehold_private.lock) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE leasehold_private.lock k SET last_token = l.last_token, min_token = l.min_token,
        capacity = l.capacity, taken = l.taken, waiting = l.waiting, last_place = l.last_place,
        used = pg_catalog.clock_timestamp(), holder = l.holder, next = l.next,
        last_end = CASE WHEN (l.last_end).token IS NULL THEN NULL
            ELSE ROW((l.last_end).token, (l.last_end).reason,
                coalesce((l.last_end).followed_by, l.last_token), (l.last_end).seen_by
            )::leasehold_private.hold_end END
    WHERE k.name = l.name;
$$;
CREATE FUNCTION leasehold_private.load(p_name text) RETURNS leasehold_private.lock
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    l leasehold_private.lock;
BEGIN
    SELECT * INTO l FROM leasehold_private.lock k WHERE k.name = p_name FOR UPDATE;
    IF (l.holder).claim IS NOT NULL THEN l.holder.token := l.last_token; END IF;
    RETURN l;
END $$;
CREATE FUNCTION leasehold_private.peek(p_name text) RETURNS leasehold_private.lock
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    l leasehold_private.lock;
BEGIN
    SELECT * INTO l FROM leasehold_private.lock k WHERE k.name = p_name;
    IF (l.holder).claim IS NOT NULL THEN l.holder.token := l.last_token; END IF;
    RETURN l;
END $$;
CREATE FUNCTION leasehold_private.remove_unused(p_name text, count_max int) RETURNS void
LANGUAGE sql VOLATILE AS $$
    DELETE FROM leasehold_private.lock d WHERE d.name IN (
        SELECT k.name FROM (
            SELECT n.name FROM leasehold_private.lock n
            WHERE n.name > p_name ORDER BY n.name LIMIT count_max) f
        JOIN leasehold_private.lock k ON k.name = f.name
        WHERE k.taken = 0 AND k.waiting = 0
            AND k.used < pg_catalog.clock_timestamp() - interval '1 day'
            AND greatest(k.last_token, k.min_token) < leasehold_private.micros()
        FOR UPDATE OF k SKIP LOCKED);
$$;
CREATE FUNCTION leasehold_private.millis(lease interval) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF lease IS NULL OR lease < interval '100 ms' OR lease > interval '20 days' THEN
        RAISE EXCEPTION 'leasehold: a lease lasts from 100 ms to 20 days, and not %', lease
            USING ERRCODE = '22023';
    END IF;
    RETURN extract(epoch FROM lease) * 1000;
END $$;
CREATE FUNCTION leasehold_private.encoded(word text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(string_agg(CASE WHEN c ~ '^[A-Za-z0-9._/:@-]$' THEN c
        ELSE regexp_replace(upper(encode(convert_to(c, 'UTF8'), 'hex')), '(..)', '%\1', 'g') END,
        '' ORDER BY n), '')
    FROM regexp_split_to_table(word, '') WITH ORDINALITY AS s(c, n);
$$;
CREATE FUNCTION leasehold_private.decoded(word text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(convert_from(string_agg(CASE WHEN m[1] ~ '^%..$'
            THEN decode(substr(m[1], 2), 'hex') ELSE convert_to(m[1], 'UTF8') END,
            ''::bytea ORDER BY n), 'UTF8'), '')
        FROM regexp_matches(word, '%[0-9A-F]{2}|[^%]+|%', 'g') WITH ORDINALITY AS s(m, n));
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN word;
END $$;
CREATE FUNCTION leasehold_private.words(label text) RETURNS text LANGUAGE sql VOLATILE
RETURN leasehold_private.micros() / 1000 || ' 0 ' || leasehold_private.encoded(
        coalesce(pg_catalog.host(pg_catalog.inet_client_addr()), 'local')) || ' '
    || leasehold_private.encoded(pg_catalog.current_setting('application_name')) || ' '
    || leasehold_private.encoded(label);
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
BEGIN
    PERFORM leasehold_private.begin_step();
    IF hint > leasehold_private.micros() + 86400000000 THEN
        PERFORM 1 FROM leasehold_private.lock k
            WHERE k.name = enter_1.name AND hint <= k.last_token + 86400000000;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'leasehold: the token % is more than a day ahead of this server', hint
                USING ERRCODE = 'LH005';
        END IF;
    END IF;
    request := ROW(enter_1.claim, enter_1.weight, enter_1.capacity, enter_1.lease,
        leasehold_private.after(enter_1.lease), NULL, enter_1.reserved, 0, false, enter_1.link,
        enter_1.epoch, enter_1.client, enter_1.server, enter_1.grace, NULL, enter_1.channel,
        enter_1.info);
    IF mode IN ('R', 'L') THEN
        l := leasehold_private.peek(enter_1.name);
        IF l.name IS NOT NULL AND leasehold_private.is_settled(l, request, mode) THEN
            SELECT * INTO standing, token, ahead, place, next_end, absences
                FROM leasehold_private.standing(l, request.claim);
            RETURN;
        END IF;
    END IF;
    PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(name));
    IF until < leasehold_private.micros() THEN
        RAISE EXCEPTION 'leasehold: the request is late' USING ERRCODE = 'LH002',
            DETAIL = leasehold_private.micros();
    END IF;
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
    IF mode <> 'F' AND ((l.next).claim = request.claim OR mode IN ('R', 'L')) THEN
        l := leasehold_private.check_absences(l, request.claim, ended);
    END IF;
    l := leasehold_private.settle(l, request.claim);
    IF mode = 'R' THEN
        c := leasehold_private.find(l, request.claim);
        IF c.claim IS NOT NULL AND c.token IS NULL THEN
            l := leasehold_private.remove(l, c);
        END IF;
    END IF;
    IF l IS DISTINCT FROM before THEN
        PERFORM leasehold_private.save(l);
    END IF;
    SELECT * INTO standing, token, ahead, place, next_end, absences
        FROM leasehold_private.standing(l, request.claim);
END $$;
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
    c := coalesce(l.holder, c, l.next);
    RAISE EXCEPTION 'leasehold: the name is in use with a capacity of %', c.capacity
        USING ERRCODE = 'LH003', DETAIL = c.weight || ' ' || c.capacity;
END $$;
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
    ELSE
        kept.token := coalesce(c.token, l.last_token);
        l := leasehold_private.hold(leasehold_private.remove(l, c), kept);
    END IF;
END $$;
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
            WHERE k.name = l.name AND k.holds ORDER BY (k.data).deadline LIMIT 40)
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
    SELECT count(*) INTO place FROM leasehold_private.claim k
        WHERE k.name = l.name AND NOT k.holds AND k.place < c.place;
    IF (l.next).claim IS NOT NULL AND (l.next).claim <> id THEN place := place + 1; END IF;
    ahead := count_held + place;
    standing := CASE WHEN place = 0 THEN 'N' ELSE 'Q' END;
END $$;
CREATE FUNCTION leasehold_private.record_of(c leasehold_private.claimant) RETURNS text
LANGUAGE sql VOLATILE
RETURN c.claim || ' ' || c.weight || ' ' || c.capacity || ' ' || coalesce(c.token, 0) || ' '
    || c.lease || ' ' || c.reserved || ' ' || coalesce(c.info, '');
CREATE FUNCTION leasehold.leave_1(name text, claim uuid, caller uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    l leasehold_private.lock;
    c leasehold_private.claimant;
    last bigint;
BEGIN
    PERFORM leasehold_private.begin_step();
    PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(name));
    l := leasehold_private.peek(leave_1.name);
    IF (l.holder).claim = leave_1.claim AND NOT (l.holder).is_leaving
        AND (l.waiting = 0 OR leasehold_private.is_ready(l, caller))
        AND pg_try_advisory_xact_lock(leasehold_private.pin_key(leave_1.name, l.last_token)) THEN
        IF l.waiting = 0 THEN
            UPDATE leasehold_private.lock k SET taken = 0, holder = NULL, used = clock_timestamp()
            WHERE k.name = leave_1.name AND (k.holder).claim = leave_1.claim AND k.waiting = 0;
            IF FOUND THEN
                IF (l.holder).client IS DISTINCT FROM caller THEN
                    PERFORM leasehold_private.notify(l.holder, NULL, 'G');
                END IF;
                RETURN true;
            END IF;
        ELSE
            c := l.next;
            c.deadline := leasehold_private.after(c.lease);
            c.token := leasehold_private.next_token(l, c.reserved);
            UPDATE leasehold_private.lock k SET last_token = c.token, min_token = 0, waiting = 0,
                used = clock_timestamp(), holder = c, next = NULL
            WHERE k.name = leave_1.name AND (k.holder).claim = leave_1.claim
                AND (k.next).claim = c.claim AND k.waiting = 1 AND k.min_token = l.min_token;
            IF FOUND THEN
                PERFORM leasehold_private.notify(c, NULL, 'H');
                IF (l.holder).client IS DISTINCT FROM caller THEN
                    PERFORM leasehold_private.notify(l.holder, NULL, 'G');
                END IF;
                RETURN true;
            END IF;
        END IF;
    END IF;
    l := leasehold_private.load(leave_1.name);
    IF l.name IS NULL THEN RETURN false; END IF;
    c := leasehold_private.find(l, leave_1.claim);
    IF c.claim IS NULL OR c.is_leaving THEN RETURN false; END IF;
    IF c.token IS NULL OR pg_try_advisory_xact_lock(leasehold_private.pin_key(leave_1.name, c.token)) THEN
        l := leasehold_private.remove(l, c);
    ELSE
        l := leasehold_private.put(l, leasehold_private.leaving(c));
    END IF;
    IF c.client IS DISTINCT FROM caller THEN
        PERFORM leasehold_private.notify(c, NULL, 'G');
    END IF;
    l := leasehold_private.settle(leasehold_private.expire(l, NULL), NULL);
    PERFORM leasehold_private.save(l);
    RETURN true;
END $$;
CREATE FUNCTION leasehold_private.is_ready(l leasehold_private.lock, caller uuid) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN l.waiting = 1 AND (l.next).claim IS NOT NULL AND (l.next).weight = (l.next).capacity
    AND (l.next).deadline > pg_catalog.clock_timestamp()
    AND NOT leasehold_private.is_absent(l.next);
CREATE FUNCTION leasehold.renew_1(
    names text[], claims uuid[], client uuid, epoch int, link bigint, server text, channel text,
    grace int
) RETURNS TABLE (standing "char", place int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    r record;
    look record;
    l leasehold_private.lock;
    c leasehold_private.claimant;
    standings "char"[] := array_fill('0'::"char", ARRAY[cardinality(names)]);
    places int[] := array_fill(0, ARRAY[cardinality(names)]);
BEGIN
    PERFORM leasehold_private.begin_step();
    FOR r IN SELECT u.name, u.claim, u.at
        FROM unnest(names, claims) WITH ORDINALITY AS u(name, claim, at)
        ORDER BY u.name COLLATE "C", u.at
    LOOP
        PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(r.name));
        l := leasehold_private.peek(r.name);
        CONTINUE WHEN l.name IS NULL;
        IF (l.holder).claim = r.claim THEN
            c := leasehold_private.renewed(l.holder, client, epoch, link, server, channel, grace);
            UPDATE leasehold_private.lock k SET holder = c
            WHERE k.name = r.name AND (k.holder).claim = r.claim AND NOT (k.holder).is_leaving
                AND (k.holder).deadline > clock_timestamp();
            IF FOUND THEN standings[r.at] := '1'; END IF;
            CONTINUE;
        END IF;
        l := leasehold_private.load(r.name);
        c := leasehold_private.find(l, r.claim);
        CONTINUE WHEN c.claim IS NULL OR c.is_leaving OR c.deadline <= clock_timestamp();
        l := leasehold_private.put(
            l, leasehold_private.renewed(c, client, epoch, link, server, channel, grace));
        PERFORM leasehold_private.save(l);
        IF c.token IS NOT NULL THEN
            standings[r.at] := '1';
        ELSE
            look := leasehold_private.standing(l, r.claim);
            places[r.at] := look.place;
            standings[r.at] := CASE WHEN look.next_end < 0
                OR leasehold_private.is_absent(l.holder) THEN 'A' ELSE 'Q' END;
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(standings, places);
END $$;
CREATE FUNCTION leasehold_private.renewed(
    INOUT c leasehold_private.claimant, client uuid, epoch int, link bigint, server text,
    channel text, grace int
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    c.nonce := NULL;
    c.deadline := leasehold_private.after(c.lease);
    IF client IS DISTINCT FROM c.client OR epoch >= c.epoch THEN
        c.client := client; c.epoch := epoch; c.link := link; c.channel := channel;
        c.server := server; c.grace := grace;
    END IF;
END $$;
CREATE FUNCTION leasehold_private.link_of(c leasehold_private.claimant) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN c.client || ' ' || c.epoch || ' ' || c.link;
CREATE FUNCTION leasehold.bound_holds_1(name text)
RETURNS TABLE (claim uuid, token bigint, client uuid, link text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    l leasehold_private.lock := leasehold_private.peek(bound_holds_1.name);
    c leasehold_private.claimant;
BEGIN
    FOR c IN
        SELECT (l.holder).* WHERE (l.holder).claim IS NOT NULL
        UNION ALL
        SELECT (k.data).* FROM leasehold_private.claim k WHERE k.name = l.name AND k.holds
    LOOP
        CONTINUE WHEN c.is_leaving OR c.link IS NULL;
        claim := c.claim; token := c.token; client := c.client;
        link := leasehold_private.link_of(c);
        RETURN NEXT;
    END LOOP;
END $$;
CREATE FUNCTION leasehold.revoke_ended_1(
    name text, claim uuid, token bigint, link text, seen_by text
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    c leasehold_private.claimant;
BEGIN
    PERFORM leasehold_private.begin_step();
    PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(name));
    c := leasehold_private.find(leasehold_private.load(name), claim);
    IF c.token IS DISTINCT FROM revoke_ended_1.token
        OR leasehold_private.link_of(c) IS DISTINCT FROM revoke_ended_1.link
        OR NOT leasehold_private.is_absent(c) THEN
        RETURN false;
    END IF;
    RETURN leasehold_private.end_hold(name, c, 'P', seen_by);
END $$;
CREATE FUNCTION leasehold.release_ended_1(name text, claim uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM leasehold_private.begin_step();
    PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(name));
    RETURN leasehold_private.end_hold(
        name, leasehold_private.find(leasehold_private.load(name), claim), 'W', NULL);
END $$;
CREATE FUNCTION leasehold_private.end_hold(
    p_name text, c leasehold_private.claimant, p_reason "char", p_seen_by text
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF c.claim IS NULL OR NOT leasehold.leave_1(p_name, c.claim, NULL) THEN
        RETURN false;
    END IF;
    UPDATE leasehold_private.lock k
    SET last_end = ROW(c.token, p_reason, k.last_token, p_seen_by)::leasehold_private.hold_end
    WHERE k.name = p_name AND c.token IS NOT NULL;
    RETURN true;
END $$;
CREATE FUNCTION leasehold.check(
    name text, token bigint, claim uuid DEFAULT NULL, remaining interval DEFAULT NULL
) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    is_committed boolean := current_setting('transaction_isolation') IN
        ('read committed', 'read uncommitted');
    is_held boolean;
    millis bigint;
    allowed bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'leasehold: this server is a replica, on which nothing can be pinned'
            USING ERRCODE = 'LH008';
    ELSIF NOT is_committed AND current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION 'leasehold: a READ ONLY transaction above READ COMMITTED may read an old grant'
            USING ERRCODE = 'LH008';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(leasehold_private.pin_key(name, token));
    IF is_committed THEN
        is_held := leasehold_private.is_held(name, token, claim);
    ELSE
        BEGIN
            PERFORM 1 FROM leasehold_private.lock k WHERE k.name = "check".name FOR SHARE;
            PERFORM 1 FROM leasehold_private.claim k
                WHERE k.name = "check".name AND (k.data).token = "check".token FOR SHARE;
            is_held := leasehold_private.is_held(name, token, claim);
            RAISE EXCEPTION USING ERRCODE = 'LH000';
        EXCEPTION WHEN SQLSTATE 'LH000' THEN
            NULL;
        END;
    END IF;
    IF NOT is_held THEN
        RAISE EXCEPTION 'leasehold: % is not held with the token %', name, token
            USING ERRCODE = 'LH001', HINT = 'roll back: another client may hold the lock';
    END IF;
    IF remaining IS NOT NULL THEN
        millis := least(2147483647, greatest(1, extract(epoch FROM remaining) * 1000));
        allowed := (SELECT s.setting FROM pg_settings s
            WHERE s.name = 'idle_in_transaction_session_timeout');
        IF allowed = 0 OR millis < allowed THEN
            PERFORM set_config('idle_in_transaction_session_timeout', millis::text, true);
        END IF;
    END IF;
END $$;
CREATE FUNCTION leasehold_private.is_held(p_name text, p_token bigint, p_claim uuid) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT 1 FROM leasehold_private.lock k
        WHERE k.name = p_name AND k.last_token = p_token AND (k.holder).claim IS NOT NULL
            AND NOT (k.holder).is_leaving AND coalesce((k.holder).claim = p_claim, true)
        UNION ALL
        SELECT 1 FROM leasehold_private.claim k
        WHERE k.name = p_name AND k.holds AND (k.data).token = p_token
            AND NOT (k.data).is_leaving AND coalesce(k.claim = p_claim, true));
$$;
CREATE FUNCTION leasehold.pins_1(name text)
RETURNS TABLE (claim uuid, pid int, gid text, overdue int, missing_right text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    l leasehold_private.lock := leasehold_private.peek(name);
    c leasehold_private.claimant;
BEGIN
    FOR c IN
        SELECT (l.holder).* WHERE (l.holder).claim IS NOT NULL
        UNION ALL
        SELECT (k.data).* FROM leasehold_private.claim k WHERE k.name = pins_1.name AND k.holds
    LOOP
        claim := c.claim;
        overdue := CASE WHEN c.is_leaving OR c.deadline <= clock_timestamp() THEN
            least(2147483647, extract(epoch FROM clock_timestamp() - c.deadline) * 1000) END;
        FOR pid, gid, missing_right IN
            SELECT p.pid, x.gid, CASE
                WHEN own.rolsuper OR r.oid IS NULL THEN NULL
                WHEN r.rolsuper THEN 'the rights of a superuser'
                WHEN pg_has_role(session_user, r.oid, 'USAGE')
                    OR pg_has_role(session_user, 'pg_signal_backend', 'USAGE') THEN NULL
                ELSE 'membership in pg_signal_backend' END
            FROM leasehold_private.pins(name, c.token) p
            LEFT JOIN pg_locks t ON p.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid'
                AND t.virtualtransaction = p.virtualtransaction
            LEFT JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
            LEFT JOIN pg_stat_activity a ON a.pid = p.pid
            LEFT JOIN pg_roles r ON r.oid = a.usesysid
            LEFT JOIN pg_roles own ON own.rolname = session_user
        LOOP
            RETURN NEXT;
        END LOOP;
    END LOOP;
END $$;
CREATE FUNCTION leasehold_private.pins(name text, token bigint)
RETURNS TABLE (pid int, virtualtransaction text) LANGUAGE sql VOLATILE AS $$
    SELECT p.pid, p.virtualtransaction FROM pg_catalog.pg_locks p
    WHERE p.locktype = 'advisory' AND p.mode = 'ShareLock' AND p.granted AND p.objsubid = 1
        AND p.database = (
            SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
        AND (p.classid::bigint << 32 | p.objid::bigint) = leasehold_private.pin_key(name, token);
$$;
CREATE FUNCTION leasehold.end_pins_1(name text, limit_ms int)
RETURNS TABLE (pid int, missing_right text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    FOR pid, missing_right IN
        SELECT p.pid, p.missing_right FROM leasehold.pins_1(name) p
        WHERE p.overdue > limit_ms AND p.pid IS NOT NULL
    LOOP
        IF missing_right IS NULL THEN PERFORM pg_terminate_backend(pid); END IF;
        RETURN NEXT;
    END LOOP;
END $$;
CREATE FUNCTION leasehold.inspect_1(name text)
RETURNS TABLE (
    record text, remaining int, session "char", pinned_by int, last_token bigint, last_end text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    l leasehold_private.lock := leasehold_private.peek(name);
    c leasehold_private.claimant;
BEGIN
    last_token := l.last_token;
    last_end := (l.last_end).token || ' ' || (l.last_end).reason::text || ' '
        || (l.last_end).followed_by || coalesce(' ' || (l.last_end).seen_by, '');
    FOR c IN
        SELECT (l.holder).* WHERE (l.holder).claim IS NOT NULL
        UNION ALL
        (SELECT (k.data).* FROM leasehold_private.claim k
            WHERE k.name = inspect_1.name AND k.holds ORDER BY (k.data).token)
        UNION ALL
        SELECT (l.next).* WHERE (l.next).claim IS NOT NULL
        UNION ALL
        (SELECT (k.data).* FROM leasehold_private.claim k
            WHERE k.name = inspect_1.name AND NOT k.holds ORDER BY k.place)
    LOOP
        record := leasehold_private.record_of(c);
        remaining := least(2147483647, extract(epoch FROM c.deadline - clock_timestamp()) * 1000);
        session := CASE WHEN c.link IS NULL OR c.server <> leasehold_private.server() THEN '?'
            WHEN leasehold_private.is_absent(c) THEN '-' ELSE '+' END;
        pinned_by := CASE WHEN c.token IS NOT NULL THEN
            (SELECT coalesce(p.pid, 0) FROM leasehold_private.pins(name, c.token) p LIMIT 1) END;
        CONTINUE WHEN c.is_leaving AND pinned_by IS NULL;
        CONTINUE WHEN remaining <= 0 AND pinned_by IS NULL;
        RETURN NEXT;
    END LOOP;
    IF NOT FOUND THEN
        record := NULL;
        RETURN NEXT;
    END IF;
END $$;
CREATE FUNCTION leasehold.list_1(prefix text, count_max int) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.name FROM leasehold_private.lock k
    WHERE k.name >= prefix AND starts_with(k.name, prefix)
        AND (k.waiting > 0 OR k.taken > 0
            AND ((k.holder).claim IS NULL OR (k.holder).deadline > clock_timestamp()))
    ORDER BY k.name LIMIT count_max;
$$;
CREATE FUNCTION leasehold.held_1(names text[], claims uuid[]) RETURNS SETOF boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((k.holder).claim = u.claim AND NOT (k.holder).is_leaving,
        (h.data).token IS NOT NULL AND NOT (h.data).is_leaving, false)
    FROM unnest(names, claims) WITH ORDINALITY AS u(name, claim, at)
    LEFT JOIN leasehold_private.lock k ON k.name = u.name AND (k.holder).claim = u.claim
    LEFT JOIN leasehold_private.claim h ON h.name = u.name AND h.claim = u.claim
    ORDER BY u.at;
$$;
CREATE FUNCTION leasehold.connect_1(
    OUT schema_version int, OUT server text, OUT clock bigint, OUT pid int
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION 'leasehold: this server cannot be written' USING ERRCODE = '25006';
    END IF;
    schema_version := 1;
    server := leasehold_private.server();
    clock := leasehold_private.micros();
    pid := pg_backend_pid();
END $$;
CREATE PROCEDURE leasehold.this_needs_autocommit() LANGUAGE plpgsql AS $$
BEGIN
    COMMIT;
END $$;
CREATE PROCEDURE leasehold.acquire(
    name text, INOUT claim uuid DEFAULT NULL, INOUT token bigint DEFAULT NULL,
    INOUT "position" int DEFAULT NULL, INOUT channel text DEFAULT NULL,
    lease interval DEFAULT '30 s', wait boolean DEFAULT true, shared boolean DEFAULT false,
    label text DEFAULT ''
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    e record;
BEGIN
    CALL leasehold.this_needs_autocommit();
    claim := coalesce(claim, pg_catalog.gen_random_uuid());
    channel := coalesce(channel, 'leasehold_' || pg_catalog.replace(claim::text, '-', ''));
    SELECT * INTO e FROM leasehold.acquire_1(name, claim, channel, lease, wait, shared, label);
    token := e.token;
    "position" := e."position";
    IF "position" IS NULL THEN channel := NULL; END IF;
END $$;
CREATE FUNCTION leasehold.acquire_1(
    name text, claim uuid, channel text, lease interval, wait boolean, shared boolean, label text,
    OUT token bigint, OUT "position" int
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    e record;
BEGIN
    SELECT * INTO e FROM leasehold.enter_1(
        name, (CASE WHEN wait THEN 'Q' ELSE 'R' END)::"char", claim,
        1, CASE WHEN shared THEN 1073741824 ELSE 1 END, leasehold_private.millis(lease), 0,
        claim, 0, NULL, NULL, channel, 0, leasehold_private.words(label),
        0, leasehold_private.micros() + 60000000, '{}');
    token := e.token;
    "position" := CASE WHEN e.standing IN ('N', 'Q') THEN e.place + 1 END;
END $$;
CREATE PROCEDURE leasehold.renew(name text, claim uuid, INOUT renewed boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    CALL leasehold.this_needs_autocommit();
    SELECT r.standing <> '0' INTO renewed
        FROM leasehold.renew_1(ARRAY[name], ARRAY[claim], claim, -1, NULL, NULL, NULL, 0) r;
END $$;
CREATE PROCEDURE leasehold.release(name text, claim uuid, INOUT released boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    CALL leasehold.this_needs_autocommit();
    released := leasehold.leave_1(name, claim, claim);
END $$;
CREATE FUNCTION leasehold.inspect(name text)
RETURNS TABLE (claim uuid, token bigint, "position" bigint, remaining interval, label text, pinned_by int)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(i.record, ' ', 1)::uuid, nullif(split_part(i.record, ' ', 4), '0')::bigint,
        CASE WHEN split_part(i.record, ' ', 4) = '0' THEN
            row_number() OVER (PARTITION BY split_part(i.record, ' ', 4) = '0' ORDER BY i.ordinality)
        END,
        i.remaining * interval '1 millisecond', leasehold_private.decoded(split_part(i.record, ' ', 11)),
        i.pinned_by
    FROM leasehold.inspect_1(name) WITH ORDINALITY i WHERE i.record IS NOT NULL;
$$;
REVOKE ALL ON SCHEMA leasehold, leasehold_private FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leasehold, leasehold_private FROM PUBLIC;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA leasehold FROM PUBLIC;
COMMENT ON SCHEMA leasehold IS 'leasehold 1';
