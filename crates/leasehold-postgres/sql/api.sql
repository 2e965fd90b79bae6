-- The lock in a transaction of the user: pins a grant until the end of the transaction, so that the
-- next holder is granted after it. It fails if the grant is gone.
--
-- It pins first and then reads. A step that ends the grant tries the same lock exclusively, and has
-- it until its own commit. So either the pin is first, and that step keeps the hold in the row and
-- grants nothing; or the pin waits for that commit, and the read, which has a snapshot of its own,
-- finds that the hold is gone. With the read first, a hand-over between the two would not be noticed,
-- and both holders would go on. The lease is not compared: a hold that is over and still there has no
-- successor.
--
-- The pin is an advisory lock, and not a row lock: renewals and waiters go on. It is released by
-- ROLLBACK TO SAVEPOINT too, and PREPARE TRANSACTION keeps it until COMMIT PREPARED. `remaining` limits
-- how long the transaction may stand idle; it never raises a limit that is set already.
CREATE FUNCTION leasehold.check(
    name text, token bigint, claim uuid DEFAULT NULL, remaining interval DEFAULT NULL
) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    is_held boolean;
    -- An assignment is cheaper than PERFORM, which plans and starts a query. Each expression is prepared
    -- again in each transaction, so there are few.
    done text;
BEGIN
    done := pg_advisory_xact_lock_shared(leasehold_private.pin_key(name, token));
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        SELECT leasehold_private.is_only(k, token, claim) AND NOT pg_is_in_recovery() INTO is_held
            FROM leasehold_private.lock k WHERE k.name = "check".name;
    ELSIF current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION 'leasehold: above READ COMMITTED a READ ONLY transaction, or a replica, may show '
            'an old grant' USING ERRCODE = 'LH008';
    ELSE
        -- The snapshot may be older than a hand-over. Only a row lock finds that out, with 40001. This
        -- row is enough: each step that ends a hold writes it, a share's hold too. The inner block is
        -- rolled back, so that renewals do not wait for the row lock.
        BEGIN
            SELECT leasehold_private.is_only(k, token, claim) INTO is_held
                FROM leasehold_private.lock k WHERE k.name = "check".name FOR SHARE;
            IF NOT FOUND AND octet_length("check".name) <= 2048 THEN
                -- It fails with 40001 too, if there is a row that is newer than the snapshot.
                INSERT INTO leasehold_private.lock (name, last_token, min_token, capacity, taken, used)
                    VALUES ("check".name, 0, 0, 0, 0, clock_timestamp()) ON CONFLICT DO NOTHING;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'LH000';
        EXCEPTION WHEN SQLSTATE 'LH000' THEN
            NULL;
        END;
    END IF;
    IF is_held IS NOT TRUE THEN
        IF pg_is_in_recovery() THEN
            RAISE EXCEPTION 'leasehold: this server is a replica, on which nothing can be pinned'
                USING ERRCODE = 'LH008';
        ELSIF NOT leasehold_private.is_held(name, token, claim) THEN
            RAISE EXCEPTION 'leasehold: % is not held with the token %', name, token
                USING ERRCODE = 'LH001', HINT = 'roll back: another client may hold the lock';
        END IF;
    END IF;

    -- `pg_settings` would compute all settings, which takes a millisecond.
    IF remaining IS NOT NULL AND (current_setting('idle_in_transaction_session_timeout') = '0'
            OR remaining < current_setting('idle_in_transaction_session_timeout')::interval) THEN
        done := set_config('idle_in_transaction_session_timeout',
            least(2147483647, greatest(1, date_part('epoch', remaining) * 1000))::int::text, true);
    END IF;
END $$;

-- The same, with a limit for the whole transaction from now on. Before PostgreSQL 17 a transaction has no
-- such limit. Renewals keep a long transaction right, so it is the caller who decides for one.
CREATE FUNCTION leasehold.check(
    name text, token bigint, claim uuid, remaining interval, transaction_limit interval
) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    millis bigint := least(2147483647, greatest(1, extract(epoch FROM transaction_limit) * 1000));
    -- Null before PostgreSQL 17.
    allowed bigint :=
        extract(epoch FROM current_setting('transaction_timeout', true)::interval) * 1000;
    moment bigint := leasehold_private.micros() / 1000;
    -- An earlier check may have begun the timeout later than the transaction.
    ends bigint := coalesce(
        nullif(current_setting('leasehold.transaction_end', true), '')::bigint,
        extract(epoch FROM transaction_timestamp()) * 1000 + allowed);
BEGIN
    PERFORM leasehold."check"(name, token, claim, remaining);
    IF transaction_limit IS NOT NULL AND (allowed = 0 OR moment + millis < ends) THEN
        -- A timeout that runs already begins again only after it has been switched off.
        PERFORM set_config('transaction_timeout', '0', true);
        PERFORM set_config('transaction_timeout', millis::text, true);
        PERFORM set_config('leasehold.transaction_end', (moment + millis)::text, true);
    END IF;
END $$;

-- Whether the only holder of a lock has this token, and is this claim if one is named. A function in SQL is
-- part of the caller's plan only if it is one expression that is not more volatile than the function says.
CREATE FUNCTION leasehold_private.is_only(l leasehold_private.lock, p_token bigint, p_claim uuid)
RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN l.last_token = p_token AND (l.holder).claim IS NOT NULL AND NOT (l.holder).is_leaving
    AND coalesce((l.holder).claim = p_claim, true);

-- Whether a grant is held, in one query, because a claim may move between the two tables.
CREATE FUNCTION leasehold_private.is_held(p_name text, p_token bigint, p_claim uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM leasehold_private.lock k
        WHERE k.name = p_name AND leasehold_private.is_only(k, p_token, p_claim)
        UNION ALL
        SELECT 1 FROM leasehold_private.claim k
        WHERE k.name = p_name AND k.holds AND (k.data).token = p_token
            AND NOT (k.data).is_leaving AND coalesce(k.claim = p_claim, true));
END $$;

-- Returns the transactions that pin grants of a name: with `pid`, the process of a session, and with
-- `gid` a prepared transaction. `overdue` is for how many milliseconds the hold is over, and null while
-- it is held. `missing_right` is what the caller lacks to end the session.
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

-- Returns the pins of all grants in this database, among other advisory locks.
CREATE FUNCTION leasehold_private.all_pins()
RETURNS TABLE (key bigint, pid int, virtualtransaction text) LANGUAGE sql VOLATILE AS $$
    SELECT p.classid::bigint << 32 | p.objid::bigint, p.pid, p.virtualtransaction
    FROM pg_catalog.pg_locks p
    WHERE p.locktype = 'advisory' AND p.mode = 'ShareLock' AND p.granted AND p.objsubid = 1
        AND p.database = (
            SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database());
$$;

CREATE FUNCTION leasehold_private.pins(name text, token bigint)
RETURNS TABLE (pid int, virtualtransaction text) LANGUAGE sql VOLATILE AS $$
    SELECT p.pid, p.virtualtransaction FROM leasehold_private.all_pins() p
    WHERE p.key = leasehold_private.pin_key(name, token);
$$;

-- Ends the sessions that pin a grant whose hold is over for longer than `limit_ms`, with the
-- rights of the caller and not of the owner. Their clients get 57P01, and their transactions roll back.
CREATE FUNCTION leasehold.end_pins_1(name text, limit_ms int)
RETURNS TABLE (pid int, missing_right text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    FOR pid, missing_right IN
        SELECT p.pid, p.missing_right FROM leasehold.pins_1(name) p
        WHERE p.overdue > limit_ms AND p.pid IS NOT NULL
    LOOP
        IF missing_right IS NULL THEN
            BEGIN
                PERFORM pg_terminate_backend(pid);
            -- After SET ROLE, the role of the session may end it, and that of the caller may not.
            EXCEPTION WHEN insufficient_privilege THEN
                missing_right := 'membership in pg_signal_backend';
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Returns the claims of a name: holders by token, then waiters in order. `session` is + if the
-- client's session is there, - if it is gone, and ? if that is not known. `pinned_by` is the process
-- id of a session whose transaction pins the grant, 0 for a prepared transaction. `last_end` is the
-- last hold that its client did not release, for each row: its token, reason, and the rest of it.
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
    -- For a day after its end. It is as old as the token that followed it, or as the row if none did.
    IF (l.last_end).followed_by > leasehold_private.micros() - 86400000000
        OR (l.last_end).followed_by = l.last_token
            AND l.used > clock_timestamp() - interval '1 day' THEN
        last_end := (l.last_end).token || ' ' || (l.last_end).reason::text || ' '
            || (l.last_end).followed_by || coalesce(' ' || (l.last_end).seen_by, '');
    END IF;
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

-- Returns the names in use that begin with a prefix, in order.
CREATE FUNCTION leasehold.list_1(prefix text, count_max int) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.name FROM leasehold_private.lock k
    WHERE k.name >= prefix AND starts_with(k.name, prefix)
        AND (k.waiting > 0 OR k.taken > 0
            AND ((k.holder).claim IS NULL OR (k.holder).deadline > clock_timestamp()
                OR leasehold_private.pin_key(k.name, k.last_token)
                    IN (SELECT p.key FROM leasehold_private.all_pins() p)))
    ORDER BY k.name LIMIT count_max;
$$;

-- Whether claims still hold, in their order, without a change: a client asks often on the session that
-- proves it.
CREATE FUNCTION leasehold.held_1(names text[], claims uuid[]) RETURNS SETOF boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((k.holder).claim = u.claim AND NOT (k.holder).is_leaving,
        (h.data).token IS NOT NULL AND NOT (h.data).is_leaving, false)
    FROM unnest(names, claims) WITH ORDINALITY AS u(name, claim, at)
    LEFT JOIN leasehold_private.lock k ON k.name = u.name AND (k.holder).claim = u.claim
    LEFT JOIN leasehold_private.claim h ON h.name = u.name AND h.claim = u.claim
    ORDER BY u.at;
$$;

-- What a client of the schema's version 1 reads when it connects. A later version of the schema replies
-- 1 too while it serves these clients. The client of each version has such a function.
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

-- The routines below are for programs in any language. They never change.

-- In a transaction of the caller a grant would block all clients of the name until the commit, and
-- a rollback would take back a token that is in use. Only a procedure can tell that it runs in one:
-- its COMMIT fails there with the SQLSTATE 2D000, and the context of the error has this name. (The
-- extended protocol sets statement_timestamp() anew within one statement, so that it differs from
-- now() outside a transaction too.)
--
-- In a DO block, in another procedure and in a pipeline COMMIT succeeds, and would commit what the
-- caller has written. So it is refused after a write, and each procedure below commits its own step
-- too.
CREATE PROCEDURE leasehold.this_needs_autocommit() LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'leasehold: the transaction of the caller has written' USING ERRCODE = '2D000';
    END IF;
    COMMIT;
END $$;

-- Takes the lock `name`, or waits in its queue: `token` is then null, and the channel gets a
-- notification that begins with H and the claim when it is granted. Call it again with the same claim
-- to look, at least once in a third of the lease.
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
    -- A call that only looks has the same one.
    channel := coalesce(channel, 'leasehold_' || pg_catalog.replace(claim::text, '-', ''));
    SELECT * INTO e FROM leasehold.acquire_1(name, claim, channel, lease, wait, shared, label);
    COMMIT;
    token := e.token;
    "position" := e."position";
    -- As the first waiter of the library does after `?pin-limit`, which is one lease by default.
    IF "position" = 1 THEN
        PERFORM leasehold.end_pins_1(
            name, least(pg_catalog.date_part('epoch', lease) * 1000, 2147483647)::int);
        COMMIT;
    END IF;
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
    -- A client has no other names, so it could not list, show or break the lock.
    IF name IS NULL OR octet_length(convert_to(name, 'UTF8')) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'leasehold: the name has % bytes in UTF-8, not 1 to 512',
            octet_length(convert_to(name, 'UTF8')) USING ERRCODE = '22023';
    -- A notification to any other channel would fail, and the step of another client with it.
    ELSIF octet_length(channel) NOT BETWEEN 1 AND 63 THEN
        RAISE EXCEPTION 'leasehold: the channel has % bytes, not 1 to 63', octet_length(channel)
            USING ERRCODE = '22023';
    END IF;
    SELECT * INTO e FROM leasehold.enter_1(
        name, (CASE WHEN wait THEN 'Q' ELSE 'R' END)::"char", claim,
        1, CASE WHEN shared THEN 1073741824 ELSE 1 END, leasehold_private.millis(lease), 0,
        claim, 0, NULL, NULL, channel, 0, leasehold_private.words(label),
        0, leasehold_private.micros() + 60000000, '{}');
    token := e.token;
    "position" := CASE WHEN e.standing IN ('N', 'Q') THEN e.place + 1 END;
END $$;

-- Extends the lease of a claim that holds or waits; `renewed` is false if the claim is gone.
CREATE PROCEDURE leasehold.renew(name text, claim uuid, INOUT renewed boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    CALL leasehold.this_needs_autocommit();
    SELECT r.standing <> '0' INTO renewed
        FROM leasehold.renew_1(ARRAY[name], ARRAY[claim], claim, -1, NULL, NULL, NULL, 0) r;
    COMMIT;
END $$;

-- Releases a claim, or leaves the queue; `released` is false if the claim was gone.
CREATE PROCEDURE leasehold.release(name text, claim uuid, INOUT released boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    CALL leasehold.this_needs_autocommit();
    released := leasehold.leave_1(name, claim, claim);
    COMMIT;
END $$;

-- Returns the claims of a name, holders first. `position` is null for a holder.
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
