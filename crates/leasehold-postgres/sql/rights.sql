-- Nobody but the owner may call a new routine, until it is granted: EXECUTE is everybody's by default.
-- Who may enter claims may call what an upgrade adds, and all other rights stay as they were granted.
-- `leasehold setup-postgres --print` ends with the two GRANTs for a role.
REVOKE ALL ON SCHEMA leasehold_private FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leasehold_private FROM PUBLIC;
COMMENT ON SCHEMA leasehold IS 'leasehold 2';

DO $rights$
DECLARE
    added regprocedure[] := ARRAY(
        SELECT f.oid FROM pg_catalog.pg_proc f WHERE f.pronamespace = 'leasehold'::regnamespace
            AND f.oid <> ALL (pg_catalog.current_setting('leasehold.routines')::oid[]));
    routine regprocedure;
    grantee text;
BEGIN
    FOREACH routine IN ARRAY added LOOP
        EXECUTE 'REVOKE ALL ON ROUTINE ' || routine || ' FROM PUBLIC';
    END LOOP;
    -- Default privileges of the owner, which are for other routines.
    FOR routine, grantee IN
        SELECT f.oid, g.grantee::regrole::text
        FROM pg_catalog.pg_proc f, pg_catalog.aclexplode(f.proacl) g
        WHERE f.oid = ANY (added) AND g.grantee NOT IN (0, f.proowner)
    LOOP
        EXECUTE 'REVOKE ALL ON ROUTINE ' || routine || ' FROM ' || grantee;
    END LOOP;
    FOR routine, grantee IN
        SELECT a.routine, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
        FROM pg_catalog.unnest(added) a(routine),
            pg_catalog.pg_proc f, pg_catalog.aclexplode(f.proacl) g
        WHERE f.oid = 'leasehold.enter_1'::regproc AND g.grantee <> f.proowner
    LOOP
        EXECUTE 'GRANT EXECUTE ON ROUTINE ' || routine || ' TO ' || grantee;
    END LOOP;
END $rights$;
