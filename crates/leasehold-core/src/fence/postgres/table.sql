CREATE TABLE IF NOT EXISTS leasehold_marks (
    resource text PRIMARY KEY,
    mark bigint NOT NULL CHECK (mark > 0),
    claim text NOT NULL CHECK (claim ~ '^[0-9a-f]{32}$')
)
