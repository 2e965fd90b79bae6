//! Tables of a PostgreSQL server that reject late writers.

use lab_servers::{Postgres, PostgresSession};
use leasehold::fence::sql;

use super::{CLAIM, OTHER_CLAIM};

pub(super) fn session(server: &Postgres) -> PostgresSession {
    let mut session = server.session();
    let seal = format!("PREPARE seal (text, bigint, text) AS {}", sql::SEAL);
    assert!(session.run(&seal).is_empty());
    session
}

pub(super) fn database() -> Postgres {
    let server = Postgres::start();
    let mut session = server.session();
    assert!(session.run(sql::TABLE).is_empty());
    let table = "CREATE TABLE accounts
        (id int PRIMARY KEY, balance int NOT NULL,
        mark bigint NOT NULL DEFAULT 0, claim text NOT NULL DEFAULT '')";
    assert!(session.run(table).is_empty());
    assert!(
        session
            .run("INSERT INTO accounts VALUES (42, 0)")
            .is_empty()
    );
    server
}

/// Shows G-19.
#[test]
fn postgres_fence_refuses_stale_tokens() {
    let server = database();
    let mut one = session(&server);
    for (token, highest) in [
        ("7", &["7"][..]),
        ("7", &["7"]),
        ("9223372036854775807", &["9223372036854775807"]),
        ("8", &[]),
    ] {
        assert_eq!(
            one.run(&format!("EXECUTE seal('a', {token}, '{CLAIM}')")),
            highest,
            "token {token}"
        );
    }
    assert_eq!(
        one.run(&format!("EXECUTE seal('b', 1, '{CLAIM}')")),
        ["1"],
        "each resource has a mark of its own"
    );
    assert!(
        one.run(&format!("EXECUTE seal('b', 0, '{CLAIM}')"))[0]
            .contains("violates check constraint")
    );
    assert!(
        one.run(sql::TABLE)[0].contains("already exists"),
        "the table is created twice"
    );
}

/// Shows G-19.
#[test]
fn postgres_equal_token_of_another_claim_is_rejected() {
    let server = database();
    let mut one = session(&server);
    let mut seal =
        |token: u64, claim: &str| one.run(&format!("EXECUTE seal('a', {token}, '{claim}')"));

    assert_eq!(seal(7, CLAIM), ["7"]);
    assert_eq!(
        seal(7, OTHER_CLAIM),
        [""; 0],
        "two claims have sealed with one token"
    );
    assert_eq!(seal(7, CLAIM), ["7"]);
    assert_eq!(seal(8, OTHER_CLAIM), ["8"]);
    assert_eq!(
        seal(8, CLAIM),
        [""; 0],
        "two claims have sealed with one token"
    );

    for claim in ["", &CLAIM[1..]] {
        assert!(
            seal(9, claim)[0].contains("violates check constraint"),
            "{claim:?} is accepted as a claim id"
        );
    }
    assert!(one.run("EXECUTE seal('a', 9, NULL)")[0].contains("violates not-null constraint"));
}

/// The earlier holder is in the middle of its transaction. The later holder waits for the end of
/// the transaction and sees its changes.
#[test]
fn postgres_fence_waits_for_the_earlier_holder() {
    let server = database();
    let mut early = session(&server);
    let mut later = session(&server);
    early.run("BEGIN");
    assert_eq!(
        early.run(&format!("EXECUTE seal('a', 7, '{CLAIM}')")),
        ["7"]
    );
    later.run("BEGIN");
    later.send(&format!("EXECUTE seal('a', 9, '{CLAIM}')"));
    wait_for_a_lock(&server);
    early.run("UPDATE accounts SET balance = balance + 1");
    early.run("COMMIT");
    assert_eq!(later.read_reply(), ["9"]);
    assert_eq!(later.run("SELECT balance FROM accounts"), ["1"]);
    later.run("COMMIT");
}

/// A late holder waits for the later holder's transaction, and is then rejected, at each isolation
/// level.
///
/// Shows G-19.
#[test]
fn postgres_fence_refuses_stale_token_after_waiting() {
    let server = database();
    for (level, at) in [
        ("READ COMMITTED", 1),
        ("REPEATABLE READ", 2),
        ("SERIALIZABLE", 3),
    ] {
        let mut late = session(&server);
        let mut now = session(&server);
        now.run(&format!("EXECUTE seal('a', {at}, '{CLAIM}')"));
        late.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        late.run("SELECT 1");
        now.run("BEGIN");
        assert_eq!(
            now.run(&format!("EXECUTE seal('a', {at}9, '{CLAIM}')")),
            [format!("{at}9")]
        );
        late.send(&format!("EXECUTE seal('a', {at}, '{CLAIM}')"));
        wait_for_a_lock(&server);
        now.run("COMMIT");
        let output = late.read_reply();
        let refused = output.is_empty() || output[0].contains("could not serialize access");
        assert!(refused, "{level}: {output:?}");
        late.run("ROLLBACK");
        now.run("DELETE FROM leasehold_marks");
    }
}

/// A transaction that is rolled back does not raise the mark.
#[test]
fn postgres_fence_forgets_rolled_back_tokens() {
    let server = database();
    let mut one = session(&server);
    one.run("BEGIN");
    assert_eq!(one.run(&format!("EXECUTE seal('a', 9, '{CLAIM}')")), ["9"]);
    one.run("ROLLBACK");
    assert_eq!(one.run(&format!("EXECUTE seal('a', 7, '{CLAIM}')")), ["7"]);
}

/// The examples of the documentation, word for word.
#[test]
fn postgres_examples_run() {
    let server = database();
    let mut one = session(&server);
    // The example's token is above the mark that the column has at first.
    assert_eq!(
        one.run(include_str!(
            "../../../leasehold-core/src/fence/sql/example.sql"
        )),
        ["7", "0"]
    );
    assert_eq!(
        one.run(include_str!(
            "../../../leasehold-core/src/fence/sql/column.sql"
        )),
        ["100"]
    );
    one.run("UPDATE accounts SET mark = 8, balance = 8");
    assert_eq!(
        one.run(include_str!(
            "../../../leasehold-core/src/fence/sql/column.sql"
        )),
        [""; 0],
        "late"
    );
    assert_eq!(one.run("SELECT balance FROM accounts"), ["8"]);
}

fn wait_for_a_lock(server: &Postgres) {
    let mut observer = server.session();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    lab_servers::until("a session to wait for a lock", || {
        Ok((observer.run(waits) == ["1"]).then_some(()))
    })
    .expect("it waits");
}
