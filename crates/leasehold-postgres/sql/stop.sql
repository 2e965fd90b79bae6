-- Stops a client that waited for the lock of guard.sql while another one has made the schema.
DO $stop$
BEGIN
    PERFORM leasehold.connect_2();
    RAISE EXCEPTION 'leasehold: the schema is made' USING ERRCODE = 'LH010';
EXCEPTION
    WHEN invalid_schema_name OR undefined_function OR undefined_table OR undefined_object THEN NULL;
END $stop$;
