BEGIN;
-- A prepared SEAL with guard.fencing_token(); no row: ROLLBACK
EXECUTE seal('account 42', 7, '6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d');
SELECT balance FROM accounts WHERE id = 42;
UPDATE accounts SET balance = 100 WHERE id = 42;
COMMIT;
