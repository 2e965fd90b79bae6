-- The records of completed jobs: version 2 of the schema.
--
-- A completion is a line, as `Completion::line` of the library writes it: S or F, the claim, the token,
-- and when the job started and ended, in milliseconds since 1970; then its id and who did it,
-- percent-encoded. `head` and `tail` are the line before and after the end.
CREATE TABLE IF NOT EXISTS leasehold_private.record (
    name       text COLLATE "C" PRIMARY KEY,
    successes  text[] NOT NULL,     -- the last 32, the latest one first
    failure    text,                -- the last one
    kept_until timestamptz NOT NULL
);

-- Reads the record of a name, null if it has none. It is kept for `life` milliseconds from now on at
-- least.
CREATE FUNCTION leasehold.record_1(name text, life bigint, OUT record text, OUT read_at bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    UPDATE leasehold_private.record k
        SET kept_until = greatest(k.kept_until, clock_timestamp() + life * interval '1 ms')
        WHERE k.name = record_1.name AND k.kept_until > clock_timestamp() AND life > 0;
    SELECT E'v1\n' || array_to_string(k.successes || k.failure, E'\n') INTO record
        FROM leasehold_private.record k
        WHERE k.name = record_1.name AND k.kept_until > clock_timestamp();
    read_at := leasehold_private.micros() / 1000;
END $$;

-- Adds a completion to the record of a name and removes the claim, if the claim holds. Returns whether
-- the completion is recorded, by this call or an earlier one. The claim decides, and no token: after a
-- loss of data, that of an old completion may be the largest.
CREATE FUNCTION leasehold.complete_1(
    name text, claim uuid, caller uuid, head text, tail text, life bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    c leasehold_private.claimant;
    line text;
    page record := leasehold_private.page_of('leasehold_private.record'::regclass, name);
BEGIN
    PERFORM leasehold_private.begin_step();
    PERFORM pg_advisory_xact_lock(leasehold_private.queue_key(name));
    c := leasehold_private.find(leasehold_private.peek(name), claim);
    IF c.token IS NULL OR c.is_leaving OR c.deadline <= clock_timestamp() THEN
        RETURN EXISTS (
            SELECT 1 FROM leasehold_private.record k, unnest(k.successes || k.failure) u
            WHERE k.name = complete_1.name AND split_part(u, ' ', 2) = replace(claim::text, '-', ''));
    END IF;
    PERFORM leasehold.leave_1(name, claim, caller);
    -- Unlike a release, the record must be durable.
    PERFORM leasehold_private.begin_step();

    -- The old record of this name, and some others.
    DELETE FROM leasehold_private.record d
        WHERE d.name = complete_1.name AND d.kept_until <= clock_timestamp();
    DELETE FROM leasehold_private.record d WHERE d.name IN (
        SELECT k.name FROM leasehold_private.record k
        WHERE k.ctid >= page.first AND k.ctid < page.behind AND k.kept_until <= clock_timestamp()
        LIMIT 4 FOR UPDATE SKIP LOCKED);
    line := head || ' ' || leasehold_private.micros() / 1000 || ' ' || tail;
    INSERT INTO leasehold_private.record AS k VALUES (
        name, CASE WHEN head LIKE 'S%' THEN ARRAY[line] ELSE '{}' END,
        CASE WHEN head LIKE 'F%' THEN line END, clock_timestamp() + life * interval '1 ms')
    ON CONFLICT (name) DO UPDATE SET
        successes = (excluded.successes || k.successes)[1:32],
        failure = coalesce(excluded.failure, k.failure),
        kept_until = greatest(excluded.kept_until, k.kept_until);
    RETURN true;
END $$;

-- Returns the names with records that begin with a prefix, in order.
CREATE FUNCTION leasehold.list_records_1(prefix text, count_max int) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.name FROM leasehold_private.record k
    WHERE k.name >= prefix AND starts_with(k.name, prefix) AND k.kept_until > clock_timestamp()
    ORDER BY k.name LIMIT count_max;
$$;

-- What a client of version 2 reads when it connects.
CREATE FUNCTION leasehold.connect_2(OUT schema_version int, OUT server text, OUT clock bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT 2, c.server, c.clock FROM leasehold.connect_1() c;
$$;
