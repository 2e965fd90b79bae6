//! Lock nodes whose sequence numbers are exhausted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab_servers::ZooKeeper;
use leasehold::{Error, Locks, Token};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode, Stat};

use crate::{is_free, open, plain_client, use_once, within_timeout};

/// A claim with this number or a larger one is not granted.
const EXHAUSTED_FROM: i32 = i32::MAX - (1 << 20) + 1;

/// Clients contend while the lock's node is exhausted. No two hold at once, tokens increase, and
/// all are granted: the first three with the last numbers of the old node, the others with numbers
/// of a new one.
///
/// Shows G-01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contended_lock_goes_on_in_a_new_node_when_numbers_are_used_up() {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 10;

    let mut server = ZooKeeper::start();
    exhaust(&mut server, "worn", "", &[("a", EXHAUSTED_FROM - 3)]).await;
    let client = plain_client(&server).await;
    let before = stat(&client, "/worn/a").await;

    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let locks = open(&format!("{}/worn", server.url())).await;
        clients.spawn(contend(locks, ROUNDS));
    }
    let mut tokens = Vec::new();
    while let Some(done) = within_timeout("all are granted", clients.join_next()).await {
        let of_one = done.expect("no client fails");
        assert!(of_one.is_sorted(), "{of_one:?}");
        tokens.extend(of_one);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), CLIENTS * ROUNDS);

    let after = stat(&client, "/worn/a").await;
    assert!(before.cversion < 0, "{before:?}");
    assert!(after.czxid > before.czxid, "{before:?} {after:?}");
    assert!(after.cversion >= 0, "{after:?}");
    let granted_later = tokens
        .iter()
        .filter(|token| token.get().cast_signed() > after.czxid)
        .count();
    assert_eq!(granted_later, CLIENTS * ROUNDS - 3);
}

/// The holder with the last number keeps its lock, and the waiters are granted afterwards without
/// an error.
///
/// Shows G-01.
#[tokio::test]
async fn waiters_outlast_the_holder_of_the_last_number() {
    let mut server = ZooKeeper::start();
    exhaust(&mut server, "last", "", &[("a", EXHAUSTED_FROM - 1)]).await;
    let ours = open(&format!("{}/last", server.url())).await;
    let theirs = open(&format!("{}/last", server.url())).await;

    let held = ours.mutex("a").acquire().await.expect("granted");
    let token = held.token();
    assert!(!is_free(&theirs, "a").await);
    let expired = theirs
        .mutex("a")
        .try_acquire_for(Duration::from_millis(100))
        .await;
    assert!(expired.expect("tried").is_err());

    // This is longer than one call waits for the node to become empty.
    let lock = theirs.mutex("a");
    let mut waiting = std::pin::pin!(lock.acquire());
    let granted = tokio::time::timeout(Duration::from_secs(4), &mut waiting).await;
    assert!(granted.is_err(), "{granted:?}");

    held.release().await.expect("it was held throughout");
    let next = within_timeout("the waiter is granted", waiting)
        .await
        .expect("granted");
    assert!(next.token() > token);
    assert!(!is_free(&ours, "a").await);
    next.release().await.expect("released");
}

/// Other clients that continue with the last numbers block the lock, with unique numbers and with
/// repeated ones.
///
/// Shows G-01.
#[tokio::test]
async fn claims_of_other_clients_with_the_last_numbers_are_refused_with_help() {
    let mut server = ZooKeeper::start();
    let counters = [("a", EXHAUSTED_FROM), ("b", i32::MAX)];
    exhaust(&mut server, "others", "", &counters).await;
    let locks = open(&format!("{}/others", server.url())).await;
    let client = plain_client(&server).await;

    let number = create_foreign(&client, "/others/a", 1).await;
    assert_eq!(number, i64::from(EXHAUSTED_FROM));
    let error = locks.mutex("a").try_acquire().await.expect_err("refused");
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("delete its node"), "{error}");
    assert_eq!(count_children(&client, "/others/a").await, 1);

    for id in [2, 3] {
        let number = create_foreign(&client, "/others/b", id).await;
        assert_eq!(number, i64::from(i32::MAX), "the server repeats the number");
    }
    let error = locks.mutex("b").try_acquire().await.expect_err("refused");
    check_damaged(&error, "delete its node");
    assert_eq!(count_children(&client, "/others/b").await, 2);
}

/// kazoo's clients rely on the lock's node, so no client may remove it.
///
/// Shows G-01.
#[tokio::test]
async fn exhausted_node_of_kazoo_is_refused_with_help() {
    let mut server = ZooKeeper::start();
    let counters = [("a", EXHAUSTED_FROM - 1)];
    exhaust(&mut server, "kazoo", "?dialect=kazoo", &counters).await;
    let client = plain_client(&server).await;
    let kazoo = open(&format!("{}/kazoo?dialect=kazoo", server.url())).await;

    use_once(&kazoo, "a").await;
    for _ in 0..2 {
        let error = kazoo.mutex("a").acquire().await.expect_err("refused");
        check_damaged(&error, "delete its node");
    }
    assert_eq!(count_children(&client, "/kazoo/a").await, 0);

    let deleted = client.delete("/kazoo/a", None).await;
    deleted.expect("as the help says");
    use_once(&kazoo, "a").await;
}

/// The next claim would not restore the data of the lock's node, so no client may remove it.
///
/// Shows G-01.
#[tokio::test]
async fn exhausted_node_with_data_is_refused_with_help() {
    let mut server = ZooKeeper::start();
    exhaust(&mut server, "data", "", &[("a", EXHAUSTED_FROM)]).await;
    let client = plain_client(&server).await;
    let curator = open(&format!("{}/data", server.url())).await;

    let written = client.set_data("/data/a", b"of an operator", None).await;
    written.expect("written");
    let error = curator.mutex("a").try_acquire().await.expect_err("refused");
    check_damaged(&error, "/data/a");
    assert_eq!(count_children(&client, "/data/a").await, 0);
}

/// Restarts a server with these counters in the nodes of the locks of a folder.
async fn exhaust(server: &mut ZooKeeper, folder: &str, settings: &str, counters: &[(&str, i32)]) {
    let locks = open(&format!("{}/{folder}{settings}", server.url())).await;
    for (name, _) in counters {
        use_once(&locks, name).await;
    }
    drop(locks);

    let paths: Vec<String> = counters
        .iter()
        .map(|(name, _)| format!("/{folder}/{name}"))
        .collect();
    let numbers = counters.iter().map(|(_, number)| *number);
    let counters: Vec<(&str, i32)> = paths.iter().map(String::as_str).zip(numbers).collect();
    server.restart_with_child_counters(&counters);
}

/// Acquires the lock repeatedly, and returns the tokens.
async fn contend(locks: Locks, rounds: usize) -> Vec<Token> {
    static IS_HELD: AtomicBool = AtomicBool::new(false);

    let mut tokens = Vec::new();
    for _ in 0..rounds {
        let held = locks.mutex("a").acquire().await.expect("granted");
        assert!(!IS_HELD.swap(true, Ordering::SeqCst), "two hold at once");
        tokens.push(held.token());
        tokio::task::yield_now().await;
        IS_HELD.store(false, Ordering::SeqCst);
        held.release().await.expect("released");
    }
    tokens
}

/// Creates a claim as Curator does, and returns its sequence number.
async fn create_foreign(client: &Client, lock_node: &str, id: u32) -> i64 {
    let path = format!("{lock_node}/_c_79e1da5a-36b5-4c33-8d0f-0000000000{id:02}-lock-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let created = client.create(&path, b"10.0.0.7", &options).await;
    created.expect("created").1.into_i64()
}

async fn count_children(client: &Client, lock_node: &str) -> usize {
    let children = client.list_children(lock_node).await;
    children.expect("listed").len()
}

async fn stat(client: &Client, lock_node: &str) -> Stat {
    let stat = client.check_stat(lock_node).await;
    stat.expect("read").expect("it exists")
}

fn check_damaged(error: &Error, text: &str) {
    assert!(error.is_damaged(), "{error}");
    assert!(error.to_string().contains(text), "{error}");
}
