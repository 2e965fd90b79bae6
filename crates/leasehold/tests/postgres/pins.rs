//! The lock in a transaction of the user.

use std::time::Duration;

use leasehold::Token;

use crate::{Database, acquire, granted, is_free, open, queue_up};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn check(token: Token) -> String {
    format!("SELECT leasehold.\"check\"('a', {token})")
}

/// Shows G-01.
#[tokio::test]
async fn next_holder_waits_for_the_transaction_that_pins_a_grant() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    let mut other = database.session();
    for session in [&mut session, &mut other] {
        session.run("\\set VERBOSITY sqlstate\n");
    }
    for level in LEVELS {
        for end in ["COMMIT", "ROLLBACK"] {
            let held = acquire(&locks, "a").await;
            let token = held.token();
            session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
            assert_eq!(session.run(&check(token)), [""], "{level}");
            let waiting = queue_up(&locks, "a").await;
            held.release().await.expect("released");

            assert!(!is_free(&locks, "a").await, "{level}");
            assert_eq!(other.run(&check(token)), ["ERROR:  LH001"], "it is leaving");
            assert!(!waiting.is_finished(), "{level}");
            session.run(end);
            let next = granted(waiting).await;
            assert!(next.token() > token);
            next.release().await.expect("released");
        }
    }
}

/// Readers behind readers would keep a writer waiting without an end.
///
/// Shows G-01.
#[tokio::test]
async fn grant_of_a_reader_that_is_leaving_is_pinned_no_more() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let (mut session, mut other) = (database.session(), database.session());
    other.run("\\set VERBOSITY sqlstate\n");
    let reader = locks.rwlock("a").shared().acquire().await;
    let reader = reader.expect("granted");
    let token = reader.token();

    session.run("BEGIN");
    for session in [&mut session, &mut other] {
        assert_eq!(session.run(&check(token)), [""]);
    }
    reader.release().await.expect("released");
    assert_eq!(other.run(&check(token)), ["ERROR:  LH001"]);
    session.run("COMMIT");
}

/// Readers would share the lock beside the transaction, and miss what it writes.
///
/// Shows G-01.
#[tokio::test]
async fn writer_whose_grant_a_transaction_pins_does_not_become_a_reader() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    let lock = locks.rwlock("a");
    for level in LEVELS {
        let held = lock.exclusive().acquire().await.expect("granted");
        session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(session.run(&check(held.token())), [""], "{level}");
        let refused = held.downgrade().await.expect_err("it is pinned");
        assert!(refused.to_string().contains("pins"), "{level}: {refused}");
        let reader = lock.shared().try_acquire().await.expect("tried");
        assert!(reader.is_err(), "{level}");
        held.check().expect("still held");

        session.run("COMMIT");
        held.downgrade().await.expect("nothing pins it");
        let reader = lock.shared().try_acquire().await.expect("tried");
        let reader = reader.expect("readers share it");
        for guard in [held, reader] {
            guard.release().await.expect("released");
        }
    }
}

/// The transaction may be repeated: its grant is there.
///
/// Shows G-01.
#[tokio::test]
async fn name_that_is_newer_than_the_snapshot_fails_the_transaction_alone() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    session.run("\\set VERBOSITY sqlstate\n");
    for level in &LEVELS[1..] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        session.run(&format!("{begin}; SELECT count(*) FROM pg_class"));
        let held = acquire(&locks, level).await;
        let check = format!("SELECT leasehold.check('{level}', {})", held.token());
        assert_eq!(session.run(&check), ["ERROR:  40001"], "{level}");
        session.run(&format!("ROLLBACK; {begin}"));
        assert_eq!(session.run(&check), [""], "{level}");
        let missing = session.run("SELECT leasehold.check('missing', 1)");
        assert_eq!(missing, ["ERROR:  LH001"], "{level}");
        session.run("ROLLBACK");
    }
}

/// The snapshot of the transaction is older than the end of the grant.
///
/// Shows G-01.
#[tokio::test]
async fn grant_that_has_ended_fails_the_transaction() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    session.run("\\set VERBOSITY sqlstate\n");
    let lock = locks.rwlock("a");
    for level in LEVELS {
        for lock in [lock.exclusive(), lock.shared()] {
            let held = lock.acquire().await.expect("granted");
            let token = held.token();
            let waiting = queue_up(&locks, "a").await;
            session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
            session.run("SELECT count(*) FROM leasehold_private.lock");
            held.release().await.expect("released");
            let next = granted(waiting).await;

            let failed = session.run(&check(token));
            let is_refused = failed == ["ERROR:  LH001"] || failed == ["ERROR:  40001"];
            assert!(is_refused, "{level}: {failed:?}");
            session.run("ROLLBACK");
            assert_eq!(session.run(&check(next.token())), [""]);
            next.release().await.expect("released");
        }
    }
}

/// A renewal writes a row that is not in the snapshot of the transaction, which its caller repeats.
///
/// Shows G-01.
#[tokio::test]
async fn transaction_that_is_older_than_a_renewal_is_repeated() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let [mut session, mut other] = [database.session(), database.session()];
    session.run("\\set VERBOSITY sqlstate\n");
    let lock = locks.rwlock("a");
    for lock in [lock.exclusive(), lock.shared()] {
        let held = lock.acquire().await.expect("granted");
        let renewing = format!("CALL leasehold.renew('a', '{}')", held.claim_id());
        for (level, reply) in LEVELS.iter().zip(["", "ERROR:  40001", "ERROR:  40001"]) {
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            session.run(&begin);
            session.run("SELECT count(*) FROM leasehold_private.lock");
            assert_eq!(other.run(&renewing), ["t"]);
            assert_eq!(session.run(&check(held.token())), [reply], "{level}");
            session.run("ROLLBACK");
            session.run(&begin);
            assert_eq!(session.run(&check(held.token())), [""], "{level}");
            session.run("COMMIT");
        }
        held.release().await.expect("released");
    }
}

/// The lease of the holder ends while the transaction is open.
///
/// Shows G-01.
#[tokio::test]
async fn pinned_grant_outlasts_its_lease() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    let lock = locks.mutex("a").lease(Duration::from_secs(1)).no_renewal();
    let held = lock.acquire().await.expect("granted");
    session.run("BEGIN");
    session.run(&check(held.token()));
    let waiting = queue_up(&locks, "a").await;
    held.lost().await;

    assert!(!is_free(&locks, "a").await);
    let pinned_by = "SELECT pinned_by = pg_backend_pid() FROM leasehold.inspect('a') LIMIT 1";
    assert_eq!(session.run(pinned_by), ["t"]);
    assert!(!waiting.is_finished());
    session.run("COMMIT");
    granted(waiting).await.release().await.expect("released");
}

/// Nobody waits, and it is not free either.
#[tokio::test]
async fn lock_is_listed_while_a_transaction_pins_a_grant_that_is_over() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    let lock = locks.mutex("a").lease(Duration::from_secs(1)).no_renewal();
    let released = acquire(&locks, "b").await;
    let expired = lock.acquire().await.expect("granted");
    session.run("BEGIN");
    for held in [&released, &expired] {
        let name = held.name();
        let check = format!("SELECT leasehold.\"check\"('{name}', {})", held.token());
        assert_eq!(session.run(&check), [""]);
    }
    released.release().await.expect("released");
    expired.lost().await;

    let listed = async || {
        let names = locks.list("", 10).await.expect("listed");
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["a", "b"]);
    session.run("COMMIT");
    assert_eq!(listed().await, [""; 0]);
}

/// Shows G-02.
#[tokio::test]
async fn renewals_and_waiters_go_on_beside_a_pin() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let lock = locks.mutex("a").lease(Duration::from_secs(1));
    for level in LEVELS {
        let mut session = database.session();
        let held = lock.acquire().await.expect("granted");
        session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(session.run(&check(held.token())), [""]);
        let waiting = queue_up(&locks, "a").await;
        let lost = tokio::time::timeout(Duration::from_millis(1500), held.lost()).await;
        assert!(lost.is_err(), "{level}: {lost:?}");

        let broken = locks.break_hold("a", held.token()).await.expect("broken");
        assert!(broken.is_some());
        held.lost().await;
        assert!(!waiting.is_finished(), "{level}");
        session.run("ROLLBACK");
        granted(waiting).await.release().await.expect("released");
    }
}

#[tokio::test]
async fn transaction_that_may_read_an_old_grant_is_refused() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let mut session = database.session();
    session.run("\\set VERBOSITY sqlstate\n");
    for (level, reply) in LEVELS.iter().zip(["", "ERROR:  LH008", "ERROR:  LH008"]) {
        session.run(&format!("BEGIN ISOLATION LEVEL {level} READ ONLY"));
        assert_eq!(session.run(&check(held.token())), [reply], "{level}");
        session.run("ROLLBACK");
    }

    // The idle transaction of a holder that stands still ends with its lease.
    session.run("BEGIN");
    let remaining = format!(
        "SELECT leasehold.\"check\"('a', {}, '{}', '2 s')",
        held.token(),
        held.claim_id()
    );
    assert_eq!(session.run(&remaining), [""]);
    assert_eq!(
        session.run("SHOW idle_in_transaction_session_timeout"),
        ["2s"]
    );
    session.run("ROLLBACK");
    assert_eq!(
        session.run("SHOW idle_in_transaction_session_timeout"),
        ["0"]
    );
}
