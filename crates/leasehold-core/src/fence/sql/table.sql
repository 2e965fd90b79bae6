CREATE TABLE IF NOT EXISTS leasehold_marks (
    resource text NOT NULL PRIMARY KEY,
    mark bigint NOT NULL CHECK (mark > 0),
    claim text NOT NULL CHECK (length(claim) = 32)
)
