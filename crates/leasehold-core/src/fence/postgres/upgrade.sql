-- For a table of the version without claim ids.
-- Its rows keep no claim until a larger token seals them.
ALTER TABLE leasehold_marks
    ADD COLUMN claim text,
    ADD CHECK (claim IS NOT NULL AND claim ~ '^[0-9a-f]{32}$') NOT VALID
