//! PgBouncer in front of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lab_servers::PgBouncer;
use leasehold::{CrashRelease, Locks};
use leasehold_conformance::support::eventually;
use tokio::task::JoinSet;

use crate::sessions::refuse_notifications;
use crate::{Database, Program, SERVER, acquire, granted, open, queue_up};

/// Acquires and releases a lock often, in several clients at once.
pub(crate) async fn contend(clients: Vec<Locks>, rounds: u32) {
    let holders = Arc::new(AtomicU32::new(0));
    let mut contenders = JoinSet::new();
    for locks in clients {
        let holders = Arc::clone(&holders);
        contenders.spawn(async move {
            for _ in 0..rounds {
                let held = acquire(&locks, "contended").await;
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                tokio::task::yield_now().await;
                holders.fetch_sub(1, Ordering::SeqCst);
                held.release().await.expect("released");
            }
        });
    }
    while let Some(ended) = contenders.join_next().await {
        ended.expect("the contender ends");
    }
}

/// Behind a pooler in transaction mode, advisory locks and LISTEN succeed and belong to anybody.
///
/// Shows G-01, G-02.
#[tokio::test]
async fn pooler_in_transaction_mode_leaves_the_lease_alone() {
    let database = Database::new();
    let pooler = PgBouncer::start(&SERVER, "transaction");
    let url = database.url_at(&pooler.address());
    // A second client finds the connections of the pool used.
    for _ in 0..2 {
        let locks = open(&url).await;
        assert_eq!(locks.guarantees().crash_release, CrashRelease::LeaseExpiry);
    }

    let clients = [
        open(&url).await,
        open(&url).await,
        open(&database.url()).await,
    ];
    contend(clients.to_vec(), 5).await;
    let held = acquire(&clients[0], "a").await;
    let waiting = queue_up(&clients[1], "a").await;
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");

    let leaked = database.run(
        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
         WHERE locktype = 'advisory' AND datname = current_database()",
    );
    assert_eq!(leaked, ["1"], "only the direct client has one");
}

/// A setting of the session would stay with a connection that other clients use.
///
/// Shows G-02.
#[tokio::test]
async fn full_queue_of_notifications_behind_a_pooler_changes_no_setting() {
    let database = Database::new();
    let pooler = PgBouncer::start(&SERVER, "transaction");
    let url = database.url_at(&pooler.address());
    let [locks, others] = [open(&url).await, open(&database.url()).await];
    let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .expect("connected");
    tokio::spawn(connection);
    let setting = async || {
        let query = "SELECT coalesce(current_setting('leasehold.quiet', true), '')";
        let row = other.query_typed(query, &[]).await.expect("replied");
        row[0].get::<_, String>(0)
    };
    refuse_notifications(&database, "leasehold");

    // A server that is full without having said so.
    let held = acquire(&locks, "a").await;
    let waiting = queue_up(&others, "a").await;
    let released = held.release().await;
    assert_eq!(setting().await, "");
    let refused = released.expect_err("its queue is full");
    assert!(refused.is_unavailable(), "{refused:?}");

    let usage = "DO $$ BEGIN EXECUTE replace(pg_get_functiondef( \
        'leasehold_private.notify'::regproc), 'pg_catalog.pg_notification_queue_usage()', '1'); \
        END $$";
    assert_eq!(database.run(usage), [""; 0]);
    let held = acquire(&locks, "b").await;
    let next = queue_up(&others, "b").await;
    held.release().await.expect("released");
    granted(next).await.release().await.expect("released");
    assert_eq!(setting().await, "");
    waiting.abort();
}

/// Shows G-02.
#[tokio::test]
async fn direct_address_behind_a_pooler_detects_crashes() {
    let database = Database::new();
    let pooler = PgBouncer::start(&SERVER, "transaction");
    let url = format!(
        "{}?direct={}&crash-grace=1s",
        database.url_at(&pooler.address()),
        SERVER.address()
    );
    let locks = open(&url).await;
    assert_ne!(locks.guarantees().crash_release, CrashRelease::LeaseExpiry);

    let mut holder = Program::start(&url, &[]);
    assert_eq!(holder.outcome, "holds");
    let waiting = queue_up(&locks, "a").await;
    holder.kill();
    granted(waiting).await.release().await.expect("released");
    contend(vec![open(&url).await, open(&url).await, locks], 5).await;
}

/// The pooler ends, and the client connects to the server itself. From then on, its holds are bound to
/// its session, with its grace.
///
/// Shows G-01, G-25.
#[tokio::test]
async fn client_of_a_pooler_that_ends_continues_at_the_server() {
    let database = Database::new();
    let pooler = PgBouncer::start(&SERVER, "transaction");
    let hosts = format!("{},{}", pooler.address(), SERVER.address());
    let url = format!("{}?crash-grace=3s", database.url_at(&hosts));
    let [locks, others] = [open(&url).await, open(&database.url()).await];
    let held = acquire(&locks, "a").await;
    let waiting = queue_up(&others, "a").await;
    let record = "SELECT (holder).link IS NULL, (holder).grace FROM leasehold_private.lock";
    assert_eq!(database.run(record), ["t|0"]);

    drop(pooler);
    eventually("the hold is bound", || async {
        database.run(record) == ["f|3000"]
    })
    .await;
    assert_ne!(locks.guarantees().crash_release, CrashRelease::LeaseExpiry);
    held.check().expect("still held");
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");
}

/// A pooler in session mode cannot be told from one in transaction mode.
#[tokio::test]
async fn pooler_in_session_mode_is_recognised() {
    let database = Database::new();
    let pooler = PgBouncer::start(&SERVER, "session");
    let url = database.url_at(&pooler.address());
    let clients = [open(&url).await, open(&url).await];
    for locks in &clients {
        assert_eq!(locks.guarantees().crash_release, CrashRelease::LeaseExpiry);
    }
    contend(clients.to_vec(), 5).await;

    // The lease decides, although the session of the holder has ended.
    let mut holder = Program::start(&format!("{url}?crash-grace=1s"), &[]);
    assert_eq!(holder.outcome, "holds");
    holder.kill();
    let wait = Duration::from_secs(2);
    let tried = clients[0].mutex("a").try_acquire_for(wait).await;
    tried
        .expect("replied")
        .expect_err("its lease has not ended");
}
