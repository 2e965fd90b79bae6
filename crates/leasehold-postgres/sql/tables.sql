-- The tables of one schema of leasehold, and what all functions share.
--
-- `leasehold` is the schema of the functions that programs call, and `leasehold_private` that of
-- everything else; another name of the schema replaces both. Only the owner has rights here: the
-- functions run with the owner's rights.
--
-- A name is a row of `lock`. The row has a claim that holds the whole of the lock, and the next
-- waiter, so that an uncontended pair and a hand-over update one row each. All other claims are
-- rows of `claim`. No index has a column that a grant changes, so all these updates are heap-only.
--
-- The statements may be executed again, and over an earlier version: tables are made if they are
-- missing, and routines are replaced, which running clients do not notice. No public routine
-- changes its arguments or columns.

DO $schema$
BEGIN
    IF pg_catalog.to_regclass('leasehold_private.lock') IS NOT NULL
        AND pg_catalog.to_regnamespace('leasehold') IS NOT NULL THEN RETURN; END IF;
    -- A role that may create none can be given empty ones.
    IF pg_catalog.to_regnamespace('leasehold') IS NULL THEN CREATE SCHEMA leasehold; END IF;
    IF pg_catalog.to_regnamespace('leasehold_private') IS NULL THEN
        CREATE SCHEMA leasehold_private;
    END IF;
    REVOKE ALL ON SCHEMA leasehold FROM PUBLIC;
    IF pg_catalog.to_regclass('leasehold_private.lock') IS NOT NULL THEN RETURN; END IF;

    -- A claim that holds or waits. Durations are in milliseconds. A claim is bound to the session
    -- of its client by `link`, an advisory lock of that session on `server`; it is null without
    -- such a session.
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
        nonce     uuid,             -- marks an absence of the session; of a waiter: it was passed over
        channel   text,             -- secret: who knows it could send grants to the client
        info      text
    );

    -- A hold that its client did not release. Nothing depends on it.
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
    ) WITH (
        fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

    CREATE TABLE leasehold_private.claim (
        name  text COLLATE "C" NOT NULL,
        claim uuid NOT NULL,
        place bigint NOT NULL,
        holds boolean NOT NULL,
        data  leasehold_private.claimant NOT NULL,
        PRIMARY KEY (name, claim)
    ) WITH (
        fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
    CREATE INDEX claim_order ON leasehold_private.claim (name, holds, place);
END $schema$;

CREATE FUNCTION leasehold_private.micros() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint;

CREATE FUNCTION leasehold_private.after(millis int) RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN pg_catalog.clock_timestamp() + millis * interval '1 millisecond';

-- A mutex counts as the writer of a reader-writer lock, so that they exclude each other.
CREATE FUNCTION leasehold_private.units(share int, capacity int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN CASE WHEN capacity = 1 THEN 1073741824 ELSE share END;

-- The key of the advisory lock under which the steps of a name run, one after another. It is taken
-- by a statement of its own, because a statement that waits does not see what was committed
-- meanwhile. Waiting for it takes place in memory, and in order of arrival.
CREATE FUNCTION leasehold_private.queue_key(name text) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('leasehold queue ' || name, 4711);

-- The key that pins a grant while a transaction of the user depends on it. Without the cast the
-- body would not be immutable, and then it is planned at each call instead of being part of the
-- caller's plan.
CREATE FUNCTION leasehold_private.pin_key(name text, token bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN pg_catalog.hashtextextended('leasehold pin ' || token::text || ' ' || name, 4711);

-- Which server this is: its identity and its timeline, which changes with a promotion. Sessions are
-- not replicated, so after a promotion a missing session proves nothing.
CREATE FUNCTION leasehold_private.server() RETURNS text LANGUAGE sql VOLATILE
RETURN (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c) || '/'
    || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8);

-- Refuses to run where a grant could be taken back or missed: above READ COMMITTED a function does
-- not see what was committed while it waited for the queue, and a grant that a crash of the server
-- takes back, or that a synchronous replica lacks when it is promoted, is a second holder. (A SET
-- clause of a function would end before the commit.)
CREATE FUNCTION leasehold_private.begin_step() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'leasehold: the transaction is %, and must be READ COMMITTED',
            pg_catalog.current_setting('transaction_isolation') USING ERRCODE = 'LH007',
            HINT = 'SET default_transaction_isolation TO ''read committed''';
    END IF;
    IF pg_catalog.current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Whether the session of a claim's client is gone. Many can ask at once, and the question ends with
-- the statement. Nothing is known of a claim without a session, or bound to another server.
--
-- The session of the client has the advisory lock `link` for as long as it exists, and the server
-- releases it with the session, however that ends. So whoever is granted the lock has proof, and
-- asking in shared mode does not make two contenders look like a client to each other. After a
-- promotion nobody has the lock of any session, because sessions are not replicated. So the proof
-- counts only on the server and the timeline that the claim names.
CREATE FUNCTION leasehold_private.is_absent(c leasehold_private.claimant) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF c.link IS NULL OR NOT pg_catalog.pg_try_advisory_xact_lock_shared(c.link) THEN
        RETURN false;
    END IF;
    RETURN c.server = leasehold_private.server();
END $$;

-- Notifies a client, unless the server's queue of notifications is nearly full: no transaction with
-- one could commit then, and waiters look instead.
CREATE FUNCTION leasehold_private.notify(c leasehold_private.claimant, caller uuid, what text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- An assignment is cheaper than PERFORM, which plans and starts a query.
    done text;
BEGIN
    IF pg_catalog.octet_length(c.channel) BETWEEN 1 AND 63 AND c.claim IS DISTINCT FROM caller
        AND pg_catalog.current_setting('leasehold.quiet', true) IS DISTINCT FROM 'on'
        AND pg_catalog.pg_notification_queue_usage() < 0.95 THEN
        done := pg_catalog.pg_notify(c.channel, what || c.claim || coalesce(c.token::text, ''));
    END IF;
END $$;

-- Returns a claim of a name, wherever it stands; its `claim` is null if it is not there.
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

-- Removes a claim from the lock, wherever it stands.
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

-- Adds a claim that holds. The whole of a lock is held in the row of the lock.
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

-- Replaces a claim by a later form of itself, which stands where it stood.
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

-- Marks a hold that is over, and that a transaction of the user still pins. Its deadline is the end
-- of the hold.
CREATE FUNCTION leasehold_private.leaving(INOUT c leasehold_private.claimant)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    c.is_leaving := true;
    c.nonce := NULL;
    c.deadline := least(c.deadline, pg_catalog.clock_timestamp());
END $$;

-- Ends the holds whose lease is over or that are leaving, unless a transaction pins the grant.
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
            -- Its end was noted while it was pinned. The grant of this step follows it.
            l.last_end := ROW(c.token, (l.last_end).reason, NULL, (l.last_end).seen_by);
        END IF;
    END LOOP;
END $$;

-- The next token of a name. A reserved token is below that of its claim.
CREATE FUNCTION leasehold_private.next_token(l leasehold_private.lock, reserved int) RETURNS bigint
LANGUAGE sql VOLATILE
RETURN greatest(greatest(l.last_token, l.min_token) + reserved + 1, leasehold_private.micros());

-- Grants to the waiters in order of arrival, while they fit. A waiter whose session is gone is
-- passed over, and keeps its position until its lease ends. It is marked by a nonce, with which
-- later steps pass it over too, until a request of its client binds it to another session. At most
-- 100 are marked in one step, because the question whether a session is gone takes a lock; the next
-- step goes on behind them.
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
            WHERE k.name = l.name AND NOT k.holds AND ((k.data).nonce IS NULL OR k.claim = caller
                OR (k.data).deadline <= pg_catalog.clock_timestamp())
            ORDER BY k.place)
    LOOP
        units := leasehold_private.units(c.weight, c.capacity);
        IF c.deadline <= pg_catalog.clock_timestamp() THEN
            l := leasehold_private.remove(l, c);
            PERFORM leasehold_private.notify(c, caller, 'G');
        ELSIF c.claim IS DISTINCT FROM caller AND c.nonce IS NOT NULL THEN
            CONTINUE;
        ELSIF c.claim IS DISTINCT FROM caller AND leasehold_private.is_absent(c) THEN
            c.nonce := pg_catalog.gen_random_uuid();
            l := leasehold_private.put(l, c);
            passed := passed + 1;
            EXIT WHEN passed = 100;
        ELSIF l.taken::bigint + units > leasehold_private.units(c.capacity, c.capacity) THEN
            PERFORM leasehold_private.notify(c, caller, 'N');
            EXIT;
        ELSE
            l := leasehold_private.remove(l, c);
            l.last_token := leasehold_private.next_token(l, c.reserved);
            l.min_token := 0;
            l.capacity := leasehold_private.units(c.capacity, c.capacity);
            c.token := l.last_token;
            c.nonce := NULL;
            c.deadline := leasehold_private.after(c.lease);
            l := leasehold_private.hold(l, c);
            PERFORM leasehold_private.notify(c, caller, 'H');
        END IF;
    END LOOP;

    -- The row has the next waiter, so that the next hand-over updates nothing else.
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

-- Returns the row of a name and locks it; its `name` is null without one. The caller has the lock
-- of the queue: an update that waits for the row would compute its clock before the wait.
CREATE FUNCTION leasehold_private.load(p_name text) RETURNS leasehold_private.lock
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    l leasehold_private.lock;
BEGIN
    SELECT * INTO l FROM leasehold_private.lock k WHERE k.name = p_name FOR UPDATE;
    IF (l.holder).claim IS NOT NULL THEN l.holder.token := l.last_token; END IF;
    RETURN l;
END $$;

-- Returns the row of a name as it is now, and locks nothing.
CREATE FUNCTION leasehold_private.peek(p_name text) RETURNS leasehold_private.lock
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    l leasehold_private.lock;
BEGIN
    SELECT * INTO l FROM leasehold_private.lock k WHERE k.name = p_name;
    IF (l.holder).claim IS NOT NULL THEN l.holder.token := l.last_token; END IF;
    RETURN l;
END $$;

-- Returns the part of a table that is looked at for old rows when a name is new: one page, since the
-- next names in order would never be old ones if names are dates.
CREATE FUNCTION leasehold_private.page_of(
    p_table regclass, p_name text, OUT first tid, OUT behind tid
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    pages bigint := greatest(1, pg_catalog.pg_relation_size(p_table)
        / pg_catalog.current_setting('block_size')::bigint);
    page bigint := abs(pg_catalog.hashtextextended(p_name, 0) % pages);
BEGIN
    first := pg_catalog.format('(%s,0)', page)::tid;
    behind := pg_catalog.format('(%s,0)', page + 1)::tid;
END $$;

-- Removes rows of names that have been free for a day. The next token of such a name is the clock's,
-- so a row whose token is ahead of the clock stays. Claims that ended without anybody noticing leave
-- their names first.
CREATE FUNCTION leasehold_private.remove_unused(p_name text, count_max int) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    page record := leasehold_private.page_of('leasehold_private.lock'::regclass, p_name);
    unnoticed text;
BEGIN
    FOR unnoticed IN
        SELECT k.name FROM leasehold_private.lock k
        WHERE k.ctid >= page.first AND k.ctid < page.behind AND (k.taken > 0 OR k.waiting > 0)
            AND k.used < pg_catalog.clock_timestamp() - interval '1 day'
        LIMIT count_max
    LOOP
        CONTINUE WHEN NOT pg_catalog.pg_try_advisory_xact_lock(
            leasehold_private.queue_key(unnoticed));
        BEGIN
            PERFORM leasehold_private.save(leasehold_private.settle(
                leasehold_private.expire(leasehold_private.load(unnoticed), NULL), NULL));
        -- Damage of one name does not refuse another one.
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;

    DELETE FROM leasehold_private.lock d WHERE d.name IN (
        SELECT k.name FROM leasehold_private.lock k
        WHERE k.ctid >= page.first AND k.ctid < page.behind AND k.taken = 0 AND k.waiting = 0
            AND k.used < pg_catalog.clock_timestamp() - interval '1 day'
            AND greatest(k.last_token, k.min_token) < leasehold_private.micros()
        LIMIT count_max FOR UPDATE SKIP LOCKED);
END $$;
