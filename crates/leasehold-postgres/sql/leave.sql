-- Removes a claim, held or waiting, and hands over to the next waiter; returns whether it was
-- there. A grant that a transaction pins is only marked: the next request about the name removes it
-- once the transaction has ended. `caller` is the claim's own client; another one is notified.
CREATE FUNCTION leasehold.leave_1(name text, claim uuid, caller uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    l leasehold_private.lock;
    c leasehold_private.claimant;
    second leasehold_private.claimant;
    has_left boolean := false;
    -- An assignment is cheaper than PERFORM, which plans and starts a query.
    done text;
BEGIN
    done := leasehold_private.begin_step();
    done := pg_advisory_xact_lock(leasehold_private.queue_key(name));

    -- The claim has the whole of the lock. If nobody waits, or one that wants the whole and whose
    -- session is alive, and behind it nobody or one whose session is alive too, this is one update.
    l := leasehold_private.peek(leave_1.name);
    IF (l.holder).claim = leave_1.claim AND NOT (l.holder).is_leaving
        AND pg_try_advisory_xact_lock(leasehold_private.pin_key(leave_1.name, l.last_token)) THEN
        c := l.next;
        IF l.waiting > 1 THEN
            SELECT (k.data).* INTO second FROM leasehold_private.claim k
                WHERE k.name = leave_1.name AND NOT k.holds ORDER BY k.place LIMIT 1;
        END IF;

        IF l.waiting = 0 THEN
            UPDATE leasehold_private.lock k SET taken = 0, holder = NULL, used = clock_timestamp()
            WHERE k.name = leave_1.name AND (k.holder).claim = leave_1.claim AND k.waiting = 0;
            has_left := FOUND;
            -- This grants nothing. A server that crashes may forget that the claim has left, and then
            -- keeps it until its lease or the grace of its session ends. The commit of the next grant
            -- would make this one durable too.
            IF has_left AND (l.holder).client = caller THEN
                done := set_config('synchronous_commit', 'off', true);
            END IF;
        ELSIF leasehold_private.is_ready(l, caller) AND c.weight = c.capacity
            AND (l.waiting = 1 OR second.deadline > clock_timestamp() AND second.nonce IS NULL
                AND NOT leasehold_private.is_absent(second)) THEN
            c.deadline := leasehold_private.after(c.lease);
            c.token := leasehold_private.next_token(l, c.reserved);
            UPDATE leasehold_private.lock k SET last_token = c.token, min_token = 0,
                waiting = k.waiting - 1, used = clock_timestamp(), holder = c, next = second
            WHERE k.name = leave_1.name AND (k.holder).claim = leave_1.claim
                AND (k.next).claim = c.claim AND k.waiting = l.waiting
                AND k.min_token = l.min_token;
            has_left := FOUND;
        END IF;

        IF has_left THEN
            IF c.claim IS NOT NULL THEN
                done := leasehold_private.notify(c, NULL, 'H');
            END IF;
            IF second.claim IS NOT NULL THEN
                DELETE FROM leasehold_private.claim k
                    WHERE k.name = leave_1.name AND k.claim = second.claim;
                done := leasehold_private.notify(second, NULL, 'N');
            END IF;
            IF (l.holder).client IS DISTINCT FROM caller THEN
                done := leasehold_private.notify(l.holder, NULL, 'G');
            END IF;
            RETURN true;
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

-- Whether the next waiter can be granted without a further look, if the lock is free.
CREATE FUNCTION leasehold_private.is_ready(l leasehold_private.lock, caller uuid) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN (l.next).claim IS NOT NULL AND (l.next).deadline > pg_catalog.clock_timestamp()
    AND (l.next).nonce IS NULL AND NOT leasehold_private.is_absent(l.next);

-- Extends the leases of claims, in the order of their names, so that no two renewals wait for each
-- other. A hold whose lease is over is not made again. One letter for each claim: 1 holds, Q waits,
-- A waits and should look at the holders, 0 is not there. A waiter's number is how many waiters are
-- ahead of it. It fails if it has waited for the locks of queues for more than 100 ms in all, and
-- there are others left.
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
    asked_at timestamptz;
    waited interval := '0';
BEGIN
    PERFORM leasehold_private.begin_step();
    FOR r IN SELECT u.name, u.claim, u.at
        FROM unnest(names, claims) WITH ORDINALITY AS u(name, claim, at)
        ORDER BY u.name COLLATE "C", u.at
    LOOP
        -- In all, because `lock_timeout` counts for each lock alone.
        IF waited > interval '100 ms' THEN
            RAISE EXCEPTION 'leasehold: the queues are locked' USING ERRCODE = '55P03';
        END IF;
        asked_at := clock_timestamp();
        PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(r.name));
        waited := waited + (clock_timestamp() - asked_at);
        -- The sole holder: one update.
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
            -- The session that renews would be granted its own lock.
            standings[r.at] := CASE WHEN look.next_end < 0
                OR (l.holder).link IS DISTINCT FROM renew_1.link
                    AND leasehold_private.is_absent(l.holder) THEN 'A' ELSE 'Q' END;
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(standings, places);
END $$;

-- Begins the lease of a claim again, and binds the claim to the session of the request, unless that
-- session is an older one of the same client. A renewal of an older session may have waited for the
-- lock of a queue, or behind a pooler, while the client has connected again and renewed its claims
-- on the new session. If it bound the claim to its own session, which is gone, the next waiter
-- would find the holder absent, and would end the hold after its grace although the client is there
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

-- What binds a claim to the session of its client.
CREATE FUNCTION leasehold_private.link_of(c leasehold_private.claimant) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN c.client::text || ' ' || c.epoch::text || ' ' || c.link::text;

-- Returns the holds of a name that are bound to the sessions of their clients.
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

-- Ends a hold whose process is known to have ended, if it is as the caller has read it, and the
-- session of its client is gone. `seen_by` describes the caller.
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

-- Ends a hold for the watchdog of the run that held it, and was killed.
CREATE FUNCTION leasehold.release_ended_1(name text, claim uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM leasehold_private.begin_step();
    PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(name));
    RETURN leasehold_private.end_hold(
        name, leasehold_private.find(leasehold_private.load(name), claim), 'W', NULL);
END $$;

-- Removes a claim as `leave_1` does, and notes why. The caller has the lock of the queue.
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
