-- Hand-overs of one lock, and looks of the waiter that they move. Each procedure runs for some seconds, and
-- longer where the machine is slow, until there were enough hand-overs and looks. It notes how often it has
-- turned or looked, and how often a claim that was queued was reported as gone.

CREATE TABLE queued (claim uuid);
INSERT INTO queued VALUES (NULL);
CREATE TABLE seen (turns int DEFAULT 0, looks int DEFAULT 0, gone int DEFAULT 0);

CREATE FUNCTION enter(mode "char", claim uuid) RETURNS "char" LANGUAGE sql AS $$
    SELECT standing FROM leasehold.enter_1('z', mode, claim, 1, 1, 30000, 0, claim, 1, NULL, NULL, NULL, 0,
        'x', 0, leasehold_private.micros() + 60000000, '{}');
$$;

CREATE PROCEDURE turns(seconds int) LANGUAGE plpgsql AS $$
DECLARE
    holder uuid;
    next uuid;
    last uuid;
    turns int := 0;
    until timestamptz := clock_timestamp() + seconds * interval '1 s';
BEGIN
    WHILE clock_timestamp() < until OR turns <= 20 OR (SELECT count(*) FROM seen) < 4 LOOP
        holder := gen_random_uuid(); next := gen_random_uuid(); last := gen_random_uuid();
        PERFORM enter('Q', holder); PERFORM enter('Q', next); PERFORM enter('Q', last);
        UPDATE queued SET claim = last;
        COMMIT;
        PERFORM pg_sleep(0.001);
        -- It grants the next one, and moves the last one to the row of the lock.
        PERFORM leasehold.leave_1('z', holder, holder);
        COMMIT;
        PERFORM pg_sleep(0.001);
        UPDATE queued SET claim = NULL;
        COMMIT;
        PERFORM leasehold.leave_1('z', next, next); PERFORM leasehold.leave_1('z', last, last);
        COMMIT;
        turns := turns + 1;
    END LOOP;
    INSERT INTO seen (turns) VALUES (turns);
END $$;

CREATE PROCEDURE looks(seconds int) LANGUAGE plpgsql AS $$
DECLARE
    before uuid;
    after uuid;
    standing "char";
    looks int := 0;
    gone int := 0;
    until timestamptz := clock_timestamp() + seconds * interval '1 s';
BEGIN
    WHILE clock_timestamp() < until OR looks <= 250 LOOP
        SELECT claim INTO before FROM queued;
        IF before IS NOT NULL THEN
            standing := enter('L', before);
            SELECT claim INTO after FROM queued;
            looks := looks + 1;
            IF standing = 'G' AND after = before THEN gone := gone + 1; END IF;
        END IF;
        COMMIT;
    END LOOP;
    INSERT INTO seen (looks, gone) VALUES (looks, gone);
END $$;
