-- Begins the transaction that makes the schema or upgrades it: takes the lock under which one client after
-- another does so, and refuses what would break a schema.

DO $guard$
DECLARE
    other name;
BEGIN
    -- Before the wait for the lock too: who may not upgrade need not wait.
    FOR pass IN 1..2 LOOP
        -- A later version may have dropped the functions of all versions that this one knows.
        IF pg_catalog.substring(
                pg_catalog.obj_description(pg_catalog.to_regnamespace('leasehold'), 'pg_namespace'),
                '^leasehold ([0-9]+)$')::numeric > 2
            OR EXISTS (
                SELECT FROM pg_catalog.pg_proc f
                WHERE f.pronamespace = pg_catalog.to_regnamespace('leasehold')
                    AND pg_catalog.substring(f.proname, '^connect_([0-9]+)$')::numeric > 2) THEN
            RAISE EXCEPTION 'leasehold: the schema is newer than version 2' USING ERRCODE = 'LH009';
        END IF;

        SELECT pg_catalog.pg_get_userbyid(o.owner) INTO other FROM (
            SELECT n.nspowner FROM pg_catalog.pg_namespace n
            WHERE n.nspname IN ('leasehold', 'leasehold_private')
            UNION ALL
            SELECT k.relowner FROM pg_catalog.pg_class k
            JOIN pg_catalog.pg_namespace n ON n.oid = k.relnamespace
            WHERE n.nspname = 'leasehold_private' AND k.relname = 'lock') o(owner)
        WHERE pg_catalog.pg_get_userbyid(o.owner) <> current_user LIMIT 1;
        IF FOUND THEN
            -- The functions run with the rights of their owner.
            RAISE EXCEPTION 'leasehold: only its owner % makes or upgrades the schema', other
                USING ERRCODE = '42501';
        END IF;
        PERFORM pg_catalog.pg_advisory_xact_lock(
            pg_catalog.hashtextextended('leasehold schema leasehold', 4711));
    END LOOP;

    -- rights.sql changes nothing of those that are there already.
    PERFORM pg_catalog.set_config('leasehold.routines', ARRAY(
        SELECT f.oid FROM pg_catalog.pg_proc f
        WHERE f.pronamespace = pg_catalog.to_regnamespace('leasehold'))::text, true);
END $guard$;
