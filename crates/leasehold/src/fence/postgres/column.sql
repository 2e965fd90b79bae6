-- Seal and read in one; no row: the token is late.
UPDATE accounts SET mark = 7 WHERE id = 42 AND mark <= 7 RETURNING balance;
-- Fenced write; no row changed: the token is late.
UPDATE accounts SET mark = 7, balance = 100 WHERE id = 42 AND mark <= 7;
