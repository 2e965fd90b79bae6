BEGIN;
EXECUTE seal('account 42', 7); -- a prepared SEAL with guard.token(); no row: ROLLBACK
SELECT balance FROM accounts WHERE id = 42;
UPDATE accounts SET balance = 100 WHERE id = 42;
COMMIT;
