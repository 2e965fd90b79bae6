-- $1 text: the resource. $2 bigint: the token. $3 text: the claim id.
-- One row, the mark, if they are accepted.
INSERT INTO leasehold_marks AS known (resource, mark, claim) VALUES ($1, $2, $3)
ON CONFLICT (resource) DO UPDATE SET mark = EXCLUDED.mark, claim = EXCLUDED.claim
WHERE known.mark < EXCLUDED.mark OR (known.mark = EXCLUDED.mark AND known.claim = EXCLUDED.claim)
RETURNING mark
