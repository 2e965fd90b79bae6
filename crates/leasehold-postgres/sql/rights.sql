-- Nobody but the owner may call anything, until it is granted: EXECUTE is everybody's by default.
-- `leasehold setup-postgres --print` ends with the two GRANTs for a role.
REVOKE ALL ON SCHEMA leasehold, leasehold_private FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leasehold, leasehold_private FROM PUBLIC;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA leasehold FROM PUBLIC;
COMMENT ON SCHEMA leasehold IS 'leasehold 1';
