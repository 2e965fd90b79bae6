//! What a pin does not exclude, because two databases decide, or because a commit is not durable.

use lab_servers::{Postgres, until};
use leasehold::Guard;

use crate::{Database, acquire, granted, open, queue_up};

const TABLE: &str = "CREATE TABLE orders (id int PRIMARY KEY, total bigint); \
    INSERT INTO orders VALUES (42, 100)";
const TOTAL: &str = "SELECT total FROM orders";

fn check(held: &Guard) -> String {
    format!("SELECT leasehold.\"check\"('a', {})", held.token())
}

/// A crash of the server takes the commit back. No later holder has read it: a grant is durable, and so
/// is all that was committed before it.
#[tokio::test]
async fn commit_without_sync_is_lost_before_the_next_grant_alone() {
    let mut server = Postgres::configured(&["wal_writer_delay=10s"]);
    let name = Database::on(&server).name;
    let url = format!(
        "postgres://postgres@{}/{name}?crash-grace=20s",
        server.address()
    );
    let run = |server: &Postgres, text: &str| server.session_as("postgres", &name).run(text);
    run(&server, TABLE);
    let commit = |server: &Postgres, held: &Guard, total: u32| {
        let mut session = server.session_as("postgres", &name);
        session.run("BEGIN; SET LOCAL synchronous_commit = off");
        assert_eq!(session.run(&check(held)), [""]);
        session.run(&format!("UPDATE orders SET total = {total}"));
        assert_eq!(session.run("COMMIT"), [""; 0]);
    };

    // The server writes its log every 10 s, and may do so just now.
    let mut total = 100;
    loop {
        let locks = open(&url).await;
        let held = acquire(&locks, "a").await;
        commit(&server, &held, total + 1);
        server.restart();
        if run(&server, TOTAL) == [total.to_string()] {
            break;
        }
        total += 1;
        locks.break_hold("a", held.token()).await.expect("broken");
    }

    let locks = open(&url).await;
    let token = locks.inspect("a").await.expect("inspected").last_token;
    let token = token.expect("its grant is durable");
    locks.break_hold("a", token).await.expect("broken");
    let held = acquire(&locks, "a").await;
    commit(&server, &held, 200);
    held.release().await.expect("released");
    let _next = acquire(&locks, "a").await;
    server.restart();
    assert_eq!(run(&server, TOTAL), ["200"]);
}

/// The old primary knows nothing of the next grant, and the new one nothing of the last commits.
#[tokio::test]
async fn asynchronous_replica_that_is_promoted_excludes_nothing() {
    let primary = Postgres::start();
    let database = Database::on(&primary);
    database.run(TABLE);
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "b").await;
    held.release().await.expect("released");
    let replica = primary.replica();
    replica.run("ALTER SYSTEM SET primary_conninfo = ''");
    replica.run("SELECT pg_reload_conf()");
    until("the replica does not follow any more", || {
        let receivers = replica.run("SELECT count(*) FROM pg_stat_wal_receiver");
        Ok((receivers == ["0"]).then_some(()))
    })
    .expect("it is told so");

    let held = acquire(&locks, "a").await;
    let mut session = database.session();
    let mut write = |total: u32| {
        session.run("BEGIN");
        assert_eq!(session.run(&check(&held)), [""]);
        session.run(&format!("UPDATE orders SET total = {total}"));
        assert_eq!(session.run("COMMIT"), [""; 0]);
    };
    write(107);
    replica.promote();
    let promoted = Database {
        server: &replica,
        name: database.name.clone(),
    };
    let next = acquire(&open(&promoted.url()).await, "a").await;
    assert_eq!(promoted.run(TOTAL), ["100"], "the commit is not there");
    write(114);
    next.check().expect("both hold");
    held.check().expect("both hold");
}

/// The subscriber has a commit some time after the next grant.
#[tokio::test]
async fn subscriber_of_a_logical_replication_is_not_covered() {
    let server = Postgres::configured(&["wal_level=logical"]);
    let database = Database::on(&server);
    database.run(TABLE);
    database.run("CREATE PUBLICATION p FOR TABLE orders");
    let other = Postgres::start();
    let subscriber = Database::on(&other);
    subscriber.run("CREATE TABLE orders (id int PRIMARY KEY, total bigint)");
    let reply = subscriber.run(&format!(
        "CREATE SUBSCRIPTION s CONNECTION 'host={} user=postgres dbname={}' PUBLICATION p",
        server.host().display(),
        database.name
    ));
    assert!(
        reply.iter().all(|line| line.starts_with("NOTICE")),
        "{reply:?}"
    );
    let has = |total: &str| {
        until("the subscriber to follow", || {
            Ok((subscriber.run(TOTAL) == [total]).then_some(()))
        })
        .expect("it follows");
    };
    has("100");
    subscriber.run("ALTER SUBSCRIPTION s DISABLE");

    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let mut session = database.session();
    session.run("BEGIN");
    assert_eq!(session.run(&check(&held)), [""]);
    session.run("UPDATE orders SET total = 107");
    assert_eq!(session.run("COMMIT"), [""; 0]);
    held.release().await.expect("released");
    let next = acquire(&locks, "a").await;
    assert_eq!(subscriber.run(TOTAL), ["100"], "the next holder reads here");
    subscriber.run("ALTER SUBSCRIPTION s ENABLE");
    has("107");
    next.release().await.expect("released");
}

/// The pin ends with the transaction in the database of the lock.
#[tokio::test]
async fn second_database_is_not_covered() {
    let database = Database::new();
    let second = Database::new();
    second.run(TABLE);
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let mut session = database.session();
    let mut orders = second.session();
    orders.run("\\set VERBOSITY sqlstate\n");
    assert_eq!(
        orders.run(&check(&held)),
        ["ERROR:  3F000"],
        "it has no locks"
    );
    second.set_up(&[]).await;
    assert_eq!(
        orders.run(&check(&held)),
        ["ERROR:  LH001"],
        "it has others"
    );

    session.run("BEGIN");
    assert_eq!(session.run(&check(&held)), [""]);
    orders.run("BEGIN");
    orders.run("UPDATE orders SET total = 107");
    let waiting = queue_up(&locks, "a").await;
    held.release().await.expect("released");
    session.run("COMMIT");
    let next = granted(waiting).await;
    assert_eq!(second.run(TOTAL), ["100"], "the next holder reads it");
    assert_eq!(orders.run("COMMIT"), [""; 0], "and then it changes");
    next.release().await.expect("released");
}
