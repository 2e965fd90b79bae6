-- $1 text: the resource. $2 bigint: the token. One row, the mark, unless the token is late.
INSERT INTO leasehold_marks AS known (resource, mark) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET mark = EXCLUDED.mark WHERE known.mark <= EXCLUDED.mark
RETURNING mark
