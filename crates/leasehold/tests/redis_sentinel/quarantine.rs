//! `after-failover=wait`, on a replica that lacks the last grant.

use std::time::{Duration, Instant};

use lab_servers::{Redis, Sentinels};
use leasehold::{Guard, Locks};

use super::{FAILOVER_MAX, Remote, open};

const LEASE: Duration = Duration::from_secs(12);

/// The failover of the articles: the master grants, is lost before the replicas have the grant, and
/// the new master grants again. The first holder is cut off, so its own clock ends its hold.
///
/// Returns how long the first hold was still valid when the second was granted.
async fn overlap_after_failover(first: &ClientSetup, second: &ClientSetup) -> Duration {
    let mut group = Sentinels::start();
    let ours = Remote::open(&group, &first.settings).await;
    let theirs = open(&group, &second.settings).await;
    let old = group.master();
    age_history(group.server(old));
    group.wait_until_whole();

    group.freeze(old, true);
    let held = ours
        .locks
        .mutex("a")
        .lease(first.lease)
        .acquire()
        .await
        .expect("granted by the old master");
    ours.freeze(true);
    group.server_mut(old).kill();
    let _new = group.master_other_than(old);

    let again = acquire(&theirs, first.lease, second.lease).await;
    let overlap = held.remaining();
    assert!(again.token() > held.token(), "the tokens rise");
    overlap
}

/// A client without crash detection, and the lease of its claims.
struct ClientSetup {
    settings: String,
    lease: Duration,
}

impl ClientSetup {
    fn with(settings: &str, lease: Duration) -> Self {
        Self {
            settings: format!("crash-grace=off{settings}"),
            lease,
        }
    }

    /// The longest lease of the URL is the lease of the claims.
    fn waiting(lease: Duration) -> Self {
        Self::with(&waiting_for(lease), lease)
    }
}

/// Makes a server one whose history was first seen long ago, so that no client waits for it.
fn age_history(server: &Redis) {
    let replication = server.info("replication");
    let id = replication
        .split("master_replid:")
        .nth(1)
        .expect("a server has a history");
    let seen = format!("{}{:016}", &id[..10], 1);
    server.command(&["SET", "leasehold:{history}:since", &seen]);
}

/// The first client of a master waits too: no earlier one has seen the history of this master.
async fn wait_until_granting(locks: &Locks) {
    let lock = locks.mutex("free").lease(Duration::from_secs(5));
    let free = lock.acquire().await.expect("granted");
    free.release().await.expect("released");
}

async fn acquire(locks: &Locks, longest: Duration, lease: Duration) -> Guard {
    let lock = locks.mutex("a").lease(lease);
    let limit = FAILOVER_MAX + longest;
    let acquired = tokio::time::timeout(limit, lock.acquire()).await;
    acquired.expect("granted in time").expect("granted")
}

/// Without the wait, a lagging replica grants a lock that is held. The token shows it.
///
/// Shows G-01.
#[tokio::test]
async fn lagging_replica_grants_twice_without_the_wait() {
    let client = ClientSetup::with("", LEASE);
    let overlap = overlap_after_failover(&client, &client).await;
    assert!(
        overlap > Duration::ZERO,
        "the failover shows no double grant"
    );
}

/// Shows G-01.
#[tokio::test]
async fn lagging_replica_grants_once_with_the_wait() {
    let client = ClientSetup::waiting(LEASE);
    let overlap = overlap_after_failover(&client, &client).await;
    assert_eq!(overlap, Duration::ZERO);
}

/// A client with a shorter `longest-lease=` waits for that of the first client.
///
/// Shows G-01.
#[tokio::test]
async fn client_with_a_shorter_longest_lease_waits_for_the_longer_one() {
    let long = ClientSetup::waiting(LEASE);
    let short = ClientSetup::waiting(Duration::from_secs(1));
    let overlap = overlap_after_failover(&long, &short).await;
    assert_eq!(overlap, Duration::ZERO);
}

/// Clients with the largest value keep it in the store. Once it has expired, a smaller one follows.
///
/// Shows G-01.
#[tokio::test]
async fn largest_longest_lease_is_kept_by_its_own_clients_alone() {
    const KEY: &str = "leasehold:{history}:longest";
    const SOON_MS: i64 = 100_000;
    let group = Sentinels::start();
    let server = group.server(group.master());
    let long = waiting_for(Duration::from_secs(12));
    let short = waiting_for(Duration::from_secs(5));
    let largest = || server.command(&["GET", KEY]).text().to_owned();
    let life = || server.command(&["PTTL", KEY]).int();

    let first = open(&group, &long).await;
    assert_eq!(largest(), "12000");
    assert_month(life());
    server.command(&["PEXPIRE", KEY, &SOON_MS.to_string()]);
    let second = open(&group, &short).await;
    assert_eq!(largest(), "12000");
    assert!(life() <= SOON_MS, "a client with a smaller value keeps it");
    let lock = first.mutex("b").lease(Duration::from_secs(10));
    drop(lock.try_acquire().await.expect("replied"));
    assert_month(life());
    server.command(&["PEXPIRE", KEY, &SOON_MS.to_string()]);
    let third = open(&group, &long).await;
    assert_month(life());

    drop((first, second, third));
    server.command(&["DEL", KEY]);
    let _fourth = open(&group, &short).await;
    assert_eq!(largest(), "5000");
}

/// A key that was written just now expires in a month.
#[track_caller]
fn assert_month(life_ms: i64) {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let is_month = (29 * DAY_MS..=31 * DAY_MS).contains(&life_ms);
    assert!(is_month, "the key expires in {life_ms} ms");
}

fn waiting_for(longest: Duration) -> String {
    format!("&after-failover=wait&longest-lease={}s", longest.as_secs())
}

/// During the wait, a master still renews and releases what it knows as held, and waiters queue.
///
/// Shows G-01.
#[tokio::test]
async fn known_hold_goes_on_during_the_wait() {
    let mut group = Sentinels::start();
    let settings = "crash-grace=20s&after-failover=wait&longest-lease=10s";
    let locks = open(&group, settings).await;
    wait_until_granting(&locks).await;
    let lock = |name: &str| locks.mutex(name).lease(Duration::from_secs(10));
    let held = lock("a").acquire().await.expect("granted");
    let old = group.master();
    group.wait_until_whole();

    group.server_mut(old).kill();
    let _new = group.master_other_than(old);
    let begun = Instant::now();
    let refused = lock("b").try_acquire_for(Duration::from_secs(4)).await;
    assert!(
        matches!(refused, Ok(Err(_))),
        "granted during the wait: {refused:?}"
    );
    held.check().expect("the hold is valid");
    held.release().await.expect("released during the wait");

    let next = lock("a").acquire().await.expect("granted after the wait");
    assert!(
        begun.elapsed() > Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    next.release().await.expect("released");
}

/// Shows G-01.
#[tokio::test]
async fn lease_beyond_the_wait_is_refused() {
    let group = Sentinels::start();
    let locks = open(&group, "after-failover=wait&longest-lease=1s").await;
    let lock = locks.mutex("a").lease(Duration::from_secs(2));
    let error = lock.acquire().await.expect_err("too long");
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("longest lease"), "{error}");
}
