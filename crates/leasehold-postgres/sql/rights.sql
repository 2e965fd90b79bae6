-- Nobody but the owner may call anything, until it is granted: EXECUTE is everybody's by default.
-- `leasehold setup-postgres --print` ends with the two GRANTs for a role.
REVOKE ALL ON SCHEMA leasehold, leasehold_private FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leasehold, leasehold_private FROM PUBLIC;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA leasehold FROM PUBLIC;
COMMENT ON SCHEMA leasehold IS 'leasehold 2';

-- Who may enter claims may call what an upgrade adds.
DO $rights$
DECLARE
    grantee regrole;
BEGIN
    FOR grantee IN
        SELECT g.grantee FROM pg_catalog.pg_proc f, pg_catalog.aclexplode(f.proacl) g
        WHERE f.oid = 'leasehold.enter_1'::regproc AND g.grantee <> f.proowner
    LOOP
        EXECUTE 'GRANT EXECUTE ON ALL ROUTINES IN SCHEMA leasehold TO ' || grantee;
    END LOOP;
END $rights$;
