-- A lease of the public functions, in milliseconds.
CREATE FUNCTION leasehold_private.millis(lease interval) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Intervals themselves are compared as if a year had 360 days.
    seconds numeric := extract(epoch FROM lease);
BEGIN
    IF seconds IS NULL OR seconds NOT BETWEEN 0.1 AND 1728000 THEN
        RAISE EXCEPTION 'leasehold: a lease lasts from 100 ms to 20 days, and not %', lease
            USING ERRCODE = '22023';
    END IF;
    RETURN seconds * 1000;
END $$;

-- Percent-encodes a word, as the library does.
CREATE FUNCTION leasehold_private.encoded(word text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(string_agg(CASE WHEN c ~ '^[A-Za-z0-9._/:@-]$' THEN c
        ELSE regexp_replace(upper(encode(convert_to(c, 'UTF8'), 'hex')), '(..)', '%\1', 'g') END,
        '' ORDER BY n), '')
    FROM regexp_split_to_table(word, '') WITH ORDINALITY AS s(c, n);
$$;

-- Decodes such a word. What is no text in PostgreSQL stays as it is.
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

-- How a program without the library is shown: since, pid, host, program, label, percent-encoded.
CREATE FUNCTION leasehold_private.words(label text) RETURNS text LANGUAGE sql VOLATILE
RETURN leasehold_private.micros() / 1000 || ' 0 ' || leasehold_private.encoded(
        coalesce(pg_catalog.host(pg_catalog.inet_client_addr()), 'local')) || ' '
    || leasehold_private.encoded(pg_catalog.current_setting('application_name')) || ' '
    || leasehold_private.encoded(label);
