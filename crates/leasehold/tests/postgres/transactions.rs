//! Transactions of users, through their drivers, and who ends them.

use std::time::{Duration, Instant};

use lab_servers::{PgBouncer, Postgres, Wire};
use leasehold::postgres::{CHECK, CheckBinds};
use leasehold::{Guard, Locks, Pin, PinnedBy};
use leasehold_conformance::support::eventually;
use sqlx::{Connection, PgConnection};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use crate::sessions::enter;
use crate::{Database, Program, SERVER, acquire, granted, is_free, open, queue_up};

/// A connection by tokio-postgres, which ends when it is dropped.
async fn connect(database: &Database<'_>, address: &str) -> Client {
    let url = database.url_at(address);
    let (client, connection) = tokio_postgres::connect(&url, NoTls)
        .await
        .expect("connected");
    tokio::spawn(connection);
    client
}

/// Executes the check without a named statement, as a pooler demands.
async fn check(client: &Client, binds: &CheckBinds) -> Result<(), tokio_postgres::Error> {
    let arguments: [(&(dyn ToSql + Sync), Type); 4] = [
        (&binds.name, Type::TEXT),
        (&binds.token, Type::INT8),
        (&binds.claim, Type::TEXT),
        (&binds.remaining_ms, Type::INT8),
    ];
    client
        .query_typed(&binds.statement, &arguments)
        .await
        .map(drop)
}

/// The SQLSTATE of an error.
fn state(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", |code| code.code())
}

async fn idle_limit(client: &Client) -> Duration {
    let setting = "SELECT setting::bigint FROM pg_settings \
        WHERE name = 'idle_in_transaction_session_timeout'";
    let row = client
        .query_typed(setting, &[])
        .await
        .expect("read")
        .remove(0);
    let millis: i64 = row.get(0);
    Duration::from_millis(u64::try_from(millis).expect("it is positive"))
}

async fn pins(locks: &Locks, name: &str) -> Vec<Pin> {
    let lock_state = locks.inspect(name).await.expect("inspected");
    let entries = lock_state.entries.into_iter();
    entries.flat_map(|entry| entry.pins).collect()
}

/// Acquires a lock whose hold is lost at the end of its lease, and waits for that.
async fn acquire_until_lost(locks: &Locks, session: impl AsyncFnOnce(&Guard)) {
    let lock = locks.mutex("a").lease(Duration::from_secs(1)).no_renewal();
    let held = lock.acquire().await.expect("granted");
    session(&held).await;
    held.lost().await;
}

/// Shows G-01.
#[tokio::test]
async fn check_pins_a_grant_through_tokio_postgres_and_a_pooler() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let pooler = PgBouncer::start(&SERVER, "transaction");
    for address in [SERVER.address(), pooler.address()] {
        let client = connect(&database, &address).await;
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            // A character that the database has under another name.
            let name = "a\u{1}\0";
            let held = acquire(&locks, name).await;
            let binds = held.check_binds().expect("it is held");
            assert_eq!(binds.statement, CHECK);
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            client.batch_execute(&begin).await.expect("begun");
            check(&client, &binds).await.expect("it is held");
            let limit = idle_limit(&client).await;
            assert!(limit <= Duration::from_secs(30) && limit > Duration::from_secs(1));

            let waiting = queue_up(&locks, name).await;
            held.release().await.expect("released");
            assert!(!is_free(&locks, name).await, "{address} {level}");
            assert!(!waiting.is_finished());
            client.batch_execute("COMMIT").await.expect("committed");
            let next = granted(waiting).await;

            client.batch_execute(&begin).await.expect("begun");
            let late = check(&client, &binds).await.expect_err("it is over");
            assert_eq!(state(&late), "LH001", "{address} {level}");
            client.batch_execute("ROLLBACK").await.expect("ended");
            assert_eq!(idle_limit(&client).await, Duration::ZERO);
            next.release().await.expect("released");
        }
    }
}

/// Shows G-01.
#[tokio::test]
async fn check_pins_a_grant_through_sqlx() {
    let database = Database::new();
    let url = format!("{}?schema=orders", database.url());
    let locks = open(&url).await;
    let mut connection = PgConnection::connect(&database.url())
        .await
        .expect("connected");
    let held = acquire(&locks, "a").await;
    let binds = held.check_binds().expect("it is held");
    assert!(binds.statement.contains("orders.check("), "{binds:?}");

    let mut transaction = connection.begin().await.expect("begun");
    sqlx::query(&binds.statement)
        .bind(&binds.name)
        .bind(binds.token)
        .bind(&binds.claim)
        .bind(binds.remaining_ms)
        .execute(&mut *transaction)
        .await
        .expect("it is held");
    let waiting = queue_up(&locks, "a").await;
    held.release().await.expect("released");
    assert!(!is_free(&locks, "a").await);
    assert!(!waiting.is_finished());
    transaction.commit().await.expect("committed");
    granted(waiting).await.release().await.expect("released");
}

#[tokio::test]
async fn check_never_raises_the_limit_of_an_idle_transaction() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let client = connect(&database, &SERVER.address()).await;
    client
        .batch_execute("SET idle_in_transaction_session_timeout = '7s'; BEGIN")
        .await
        .expect("begun");
    let binds = held.check_binds().expect("it is held");
    check(&client, &binds).await.expect("it is held");
    assert_eq!(idle_limit(&client).await, Duration::from_secs(7));
}

/// Before PostgreSQL 17 there is no limit for a whole transaction.
#[tokio::test]
async fn transaction_is_limited_only_if_its_caller_says_so() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let version = database.run("SHOW server_version_num").remove(0);
    let has_limit = version.as_str() >= "170000";
    // Returns the setting after a check, and whether a statement of 200 ms ends the session.
    let check = async |set: &str, limit: &str| {
        let client = connect(&database, &SERVER.address()).await;
        let (token, claim) = (held.token(), held.claim_id());
        let check =
            format!("BEGIN; {set}; SELECT leasehold.check('a', {token}, '{claim}', NULL{limit})");
        client.batch_execute(&check).await.expect("it is held");
        let shown = "SELECT coalesce(current_setting('transaction_timeout', true), 'none')";
        let row = client
            .query_typed(shown, &[])
            .await
            .expect("shown")
            .remove(0);
        let ended = client.batch_execute("SELECT pg_sleep(0.2)").await.is_err();
        (row.get::<_, String>(0), ended)
    };
    let expected = |set: &str| if has_limit { set } else { "none" }.to_owned();
    assert_eq!(check("", "").await, (expected("0"), false));
    assert_eq!(check("", ", '5 s'").await, (expected("5s"), false));
    if has_limit {
        assert_eq!(check("", ", '50 ms'").await, (expected("50ms"), true));
        // It shortens a limit that runs already, and never raises one.
        let set = "SET LOCAL transaction_timeout = '7s'";
        assert_eq!(check(set, ", '50 ms'").await, (expected("50ms"), true));
        assert_eq!(check(set, ", '1 h'").await, (expected("7s"), false));
        // The timeout of an earlier check runs since that check, and not since the begin.
        let earlier = format!(
            "SELECT pg_sleep(1.9); SELECT leasehold.check('a', {}, NULL, NULL, '2 s')",
            held.token()
        );
        assert_eq!(
            check(&earlier, ", '150 ms'").await,
            (expected("150ms"), true)
        );
        assert_eq!(check(&earlier, ", '1 h'").await, (expected("2s"), false));
    }
}

#[tokio::test]
async fn guard_that_no_transaction_can_pin_is_refused() {
    let memory = open("memory:").await;
    let held = acquire(&memory, "a").await;
    let error = held.check_binds().expect_err("it is in no database");
    assert!(error.is_unsupported(), "{error}");

    let database = Database::new();
    let locks = open(&database.url()).await;
    let cohort = locks.mutex("cohort").cohort(4);
    let held = cohort.acquire().await.expect("granted");
    let error = held.check_binds().expect_err("the next one shares it");
    assert!(error.is_unsupported(), "{error}");

    let held = acquire(&locks, "a").await;
    let broken = locks.break_hold("a", held.token()).await;
    broken.expect("broken");
    held.lost().await;
    assert!(held.check_binds().expect_err("it is lost").is_lost());
}

/// The pin goes with the statement that took it.
#[tokio::test]
async fn rollback_to_a_savepoint_releases_the_pin() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let client = connect(&database, &SERVER.address()).await;
    let binds = held.check_binds().expect("it is held");
    client
        .batch_execute("BEGIN; SAVEPOINT s")
        .await
        .expect("begun");
    check(&client, &binds).await.expect("it is held");
    assert_eq!(pins(&locks, "a").await.len(), 1);
    client.batch_execute("ROLLBACK TO s").await.expect("back");
    assert!(pins(&locks, "a").await.is_empty());
    held.release().await.expect("released");
    assert!(is_free(&locks, "a").await);
}

/// No session ends it, so nobody but the owner of the transaction can.
///
/// Shows G-01.
#[tokio::test]
async fn prepared_transaction_keeps_the_pin_and_is_shown() {
    let server = Postgres::configured(&["max_prepared_transactions=4"]);
    let database = Database::on(&server);
    let locks = open(&format!("{}?pin-limit=100ms", database.url())).await;
    let client = connect(&database, &server.address()).await;
    acquire_until_lost(&locks, async |held| {
        client.batch_execute("BEGIN").await.expect("begun");
        let binds = held.check_binds().expect("it is held");
        check(&client, &binds).await.expect("it is held");
        let prepare = "PREPARE TRANSACTION 'deposit 42'";
        client.batch_execute(prepare).await.expect("prepared");
    })
    .await;

    let waiting = queue_up(&locks, "a").await;
    eventually("the waiter has tried to end it", || async {
        let pins = pins(&locks, "a").await;
        pins.iter()
            .any(|pin| pin.overdue > Some(Duration::from_millis(500)))
    })
    .await;
    let shown = pins(&locks, "a").await;
    assert_eq!(shown[0].by, PinnedBy::Prepared("deposit 42".to_owned()));
    assert!(!waiting.is_finished());
    client
        .batch_execute("COMMIT PREPARED 'deposit 42'")
        .await
        .expect("committed");
    granted(waiting).await.release().await.expect("released");
}

/// The session of a client that is stopped stays idle in its transaction.
///
/// Shows G-01, G-02.
#[tokio::test]
async fn waiter_ends_the_session_that_pins_a_grant_for_too_long() {
    let database = Database::new();
    let url = database.url();
    let patient = open(&format!("{url}?pin-limit=off")).await;
    let locks = open(&format!("{url}?pin-limit=300ms")).await;
    let client = connect(&database, &SERVER.address()).await;
    acquire_until_lost(&locks, async |held| {
        let token = held.token();
        let begin = format!("BEGIN; SELECT leasehold.check('a', {token})");
        client.batch_execute(&begin).await.expect("it is held");
    })
    .await;

    let first = queue_up(&patient, "a").await;
    let second = queue_up(&locks, "a").await;
    eventually("the limit has passed", || async {
        let pins = pins(&locks, "a").await;
        pins[0].overdue > Some(Duration::from_secs(1))
    })
    .await;
    assert!(!first.is_finished() && !second.is_finished());
    let [pin] = &pins(&locks, "a").await[..] else {
        panic!("one session pins it");
    };
    assert!(matches!(pin.by, PinnedBy::Session(_)), "{pin:?}");
    assert_eq!(pin.missing_right, None);

    // Now the waiter with a limit is the next one.
    first.abort();
    granted(second).await.release().await.expect("released");
    let late = client.batch_execute("COMMIT").await;
    late.expect_err("the session has ended");
}

/// The waiters ahead have no session, and end nothing.
///
/// Shows G-01, G-02.
#[tokio::test]
async fn waiter_behind_crashed_ones_ends_the_session_that_pins_a_grant() {
    let database = Database::new();
    let locks = open(&format!("{}?pin-limit=300ms", database.url())).await;
    let client = connect(&database, &SERVER.address()).await;
    acquire_until_lost(&locks, async |held| {
        let begin = format!("BEGIN; SELECT leasehold.check('a', {})", held.token());
        client.batch_execute(&begin).await.expect("it is held");
    })
    .await;
    let crashed = enter(1..=3, 1, "1000 + g", Duration::from_secs(600));
    assert_eq!(database.run(&crashed), ["3"]);

    let waiting = queue_up(&locks, "a").await;
    granted(waiting).await.release().await.expect("released");
    let late = client.batch_execute("COMMIT").await;
    late.expect_err("the session has ended");
}

/// The holder was killed, or cannot be reached. Its transaction has a session of its own, which
/// goes on.
///
/// Shows G-01, G-02.
#[tokio::test]
async fn limit_counts_from_the_end_of_the_hold_of_a_crashed_client() {
    let database = Database::new();
    let url = format!("{}?crash-grace=500ms&pin-limit=500ms", database.url());
    let mut holder = Program::start(&url, &[]);
    assert_eq!(holder.outcome, "holds");
    let locks = open(&url).await;
    let token = locks.inspect("a").await.expect("inspected").last_token;
    let token = token.expect("it is held");
    let client = connect(&database, &SERVER.address()).await;
    let check = format!("SELECT leasehold.check('a', {token})");
    let begin = format!("BEGIN; {check}");
    client.batch_execute(&begin).await.expect("it is held");

    holder.kill();
    let waiting = queue_up(&locks, "a").await;
    eventually("the hold is over", || async {
        let pins = pins(&locks, "a").await;
        pins.iter().any(|pin| pin.overdue.is_some())
    })
    .await;
    // Long before the end of its lease. Another transaction cannot pin it any more.
    let second = connect(&database, &SERVER.address()).await;
    let late = second.batch_execute(&check).await.expect_err("it is over");
    assert_eq!(state(&late), "LH001");
    granted(waiting).await.release().await.expect("released");
}

/// Of several holders, one cannot be reached, and its grant is not the last one.
///
/// Shows G-01, G-02.
#[tokio::test]
async fn older_grant_of_a_crashed_reader_stays_pinned() {
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let settings = "crash-grace=500ms&pin-limit=off";
    let cut = open(&format!("{}?{settings}", database.url_at(&wire.address()))).await;
    let locks = open(&format!("{}?{settings}", database.url())).await;
    let crashed = cut.rwlock("a").shared().acquire().await.expect("granted");
    let other = locks.rwlock("a").shared().acquire().await.expect("granted");
    let client = connect(&database, &SERVER.address()).await;
    let begin = format!("BEGIN; SELECT leasehold.check('a', {})", crashed.token());
    client.batch_execute(&begin).await.expect("it is held");

    wire.refuse(true);
    wire.partition();
    let waiting = tokio::spawn(locks.rwlock("a").exclusive().acquire());
    eventually("the hold is over", || async {
        pins(&locks, "a")
            .await
            .iter()
            .any(|pin| pin.overdue.is_some())
    })
    .await;
    other.release().await.expect("released");
    let refused = locks
        .rwlock("a")
        .exclusive()
        .try_acquire_for(Duration::from_secs(1))
        .await;
    refused
        .expect("it replies")
        .expect_err("its grant is pinned");
    assert!(!waiting.is_finished());
    client.batch_execute("COMMIT").await.expect("still pinned");
    granted(waiting).await.release().await.expect("released");
}

/// The roles of the clients and of the transaction differ.
///
/// Shows G-29.
#[tokio::test]
async fn session_of_another_role_is_ended_with_the_right_alone() {
    let database = Database::new();
    for role in ["pin_owner", "pin_weak", "pin_signal"] {
        database.role(role);
    }
    database.run("GRANT pg_signal_backend TO pin_signal");
    database
        .set_up(&["pin_owner", "pin_weak", "pin_signal"])
        .await;
    for (pinning, role, missing) in [
        (
            "pin_owner",
            "pin_weak",
            Some("membership in pg_signal_backend"),
        ),
        ("postgres", "pin_signal", Some("the rights of a superuser")),
        ("pin_owner", "pin_signal", None),
    ] {
        let locks = open(&format!("{}?pin-limit=100ms", database.url_of(role))).await;
        let mut session = database.session_of(pinning);
        acquire_until_lost(&locks, async |held| {
            let token = held.token();
            session.run("BEGIN");
            let pinned = session.run(&format!("SELECT leasehold.check('a', {token})"));
            assert_eq!(pinned, [""]);
        })
        .await;
        let shown = pins(&locks, "a").await;
        assert_eq!(shown[0].missing_right.as_deref(), missing, "{role}");

        let waiting = queue_up(&locks, "a").await;
        if missing.is_some() {
            eventually("the limit has passed", || async {
                pins(&locks, "a").await[0].overdue > Some(Duration::from_secs(1))
            })
            .await;
            assert!(!waiting.is_finished(), "{role}");
            session.run("ROLLBACK");
        }
        granted(waiting).await.release().await.expect("released");
    }
}

/// Nobody is notified of a user's commit, so the next holder looks for it. It prints how long it
/// takes.
#[tokio::test]
async fn next_holder_is_granted_soon_after_the_commit() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let client = connect(&database, &SERVER.address()).await;
    let mut times = Vec::new();
    for _ in 0..15 {
        let held = acquire(&locks, "a").await;
        client.batch_execute("BEGIN").await.expect("begun");
        let binds = held.check_binds().expect("it is held");
        check(&client, &binds).await.expect("it is held");
        let waiting = queue_up(&locks, "a").await;
        held.release().await.expect("released");
        // By then the next holder looks because of the pin, and not because of the release.
        eventually("it is pinned for a while", || async {
            pins(&locks, "a").await[0].overdue > Some(Duration::from_millis(100))
        })
        .await;
        client.batch_execute("COMMIT").await.expect("committed");
        let committed_at = Instant::now();
        let next = granted(waiting).await;
        times.push(committed_at.elapsed());
        next.release().await.expect("released");
    }
    times.sort();
    let median = times[7];
    println!(
        "commit to grant: median {median:?}, longest {:?}",
        times[14]
    );
    // The pauses between the looks beside a pin are 50 ms, and otherwise 400 ms.
    assert!(median < Duration::from_millis(200), "{median:?}");
}

#[tokio::test]
async fn label_is_shown_as_it_was_given() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let label = "50 % von \"Köln\" %zz";
    let lock = locks.mutex("a").label(label);
    let held = lock.acquire().await.expect("granted");
    let shown = database.run("SELECT label FROM leasehold.inspect('a')");
    assert_eq!(shown, [label]);
    held.release().await.expect("released");
}
