//! Tables of SQLite that reject late writers.

use std::process::Command;

use leasehold::fence::sql;

use super::{CLAIM, OTHER_CLAIM};

/// Runs the statements of the fence on two connections to one database, which is a file.
const SCRIPT: &str = r#"
import sqlite3, sys
table, seal, path, claim, other = sys.argv[1:]
connect = lambda: sqlite3.connect(path, timeout=0, isolation_level=None)
one, two = connect(), connect()

one.execute(table)
two.execute(table)
one.execute("CREATE TABLE accounts (balance)")
one.execute("INSERT INTO accounts VALUES (100)")

def sealed(session, resource, token, claim):
    values = {"1": resource, "2": token, "3": claim}
    return session.execute(seal, values).fetchone()

def is_refused(error, *arguments):
    try:
        sealed(*arguments)
    except error:
        return True

assert sealed(one, "a", 7, claim) == (7,)
assert sealed(one, "a", 7, claim) == (7,), "the same grant seals again"
assert sealed(one, "a", 7, other) is None, "two claims have sealed with one token"
assert sealed(one, "a", 6, claim) is None, "a smaller token is accepted"
assert sealed(one, "b", 1, claim) == (1,), "each resource has a mark of its own"
assert sealed(one, "c", 2**63 - 1, claim) == (2**63 - 1,)
for token, bad in [(0, claim), (9, ""), (9, claim[1:]), (9, None)]:
    assert is_refused(sqlite3.IntegrityError, one, "a", token, bad), (token, bad)

# The earlier holder is in the middle of its transaction. The later one waits for its end.
one.execute("BEGIN")
assert sealed(one, "a", 7, claim) == (7,)
one.execute("UPDATE accounts SET balance = balance - 10")
assert is_refused(sqlite3.OperationalError, two, "a", 9, other), "two transactions write"
one.execute("COMMIT")

two.execute("BEGIN")
assert sealed(two, "a", 9, other) == (9,)
assert two.execute("SELECT balance FROM accounts").fetchone() == (90,)
two.execute("COMMIT")
assert sealed(one, "a", 7, claim) is None, "a late writer has sealed the resource"
"#;

/// Shows G-19.
#[test]
fn sqlite_fence_refuses_stale_tokens() {
    let folder = tempfile::tempdir().expect("a temporary folder");

    let ran = Command::new("python3")
        .args(["-c", SCRIPT, sql::TABLE, sql::SEAL])
        .arg(folder.path().join("marks"))
        .args([CLAIM, OTHER_CLAIM])
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&ran.stderr);

    assert!(ran.status.success(), "{said}");
}
