-- Seal and read in one; no row: the fencing token is rejected.
UPDATE accounts SET mark = 7, claim = '6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d'
WHERE id = 42 AND (mark < 7 OR (mark = 7 AND claim = '6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d'))
RETURNING balance;
-- Fenced write; no row changed: the fencing token is rejected.
UPDATE accounts SET mark = 7, claim = '6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d', balance = 100
WHERE id = 42 AND (mark < 7 OR (mark = 7 AND claim = '6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d'));
