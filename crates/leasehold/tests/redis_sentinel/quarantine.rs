//! `after-failover=wait`, on a replica that lacks the last grant.

use std::time::{Duration, Instant};

use lab_servers::Sentinels;
use leasehold::{Guard, Locks};

use super::{FAILOVER_MAX, Remote, open};

const LEASE: Duration = Duration::from_secs(12);

/// The failover of the articles: the master grants, is lost before the replicas have the grant, and
/// the new master grants again. The first holder is cut off, so its own clock ends its hold.
///
/// Returns how long the first hold was still valid when the second was granted.
async fn overlap_after_failover(settings: &str) -> Duration {
    let mut group = Sentinels::start();
    let settings = format!("crash-grace=off{settings}");
    let first = Remote::open(&group, &settings).await;
    let second = open(&group, &settings).await;
    wait_until_granting(&second).await;
    let old = group.master();
    group.wait_until_whole();

    group.freeze(old, true);
    let held = first.locks.mutex("a").lease(LEASE).acquire().await;
    let held = held.expect("granted by the old master");
    first.freeze(true);
    group.server_mut(old).kill();
    let _new = group.master_other_than(old);

    let again = acquire(&second).await;
    let overlap = held.remaining();
    assert!(again.token() > held.token(), "the tokens rise");
    overlap
}

/// The first client of a master waits too: no earlier one has seen the history of this master.
async fn wait_until_granting(locks: &Locks) {
    let lock = locks.mutex("free").lease(Duration::from_secs(5));
    let free = lock.acquire().await.expect("granted");
    free.release().await.expect("released");
}

async fn acquire(locks: &Locks) -> Guard {
    let lock = locks.mutex("a").lease(LEASE);
    let limit = FAILOVER_MAX + LEASE;
    let acquired = tokio::time::timeout(limit, lock.acquire()).await;
    acquired.expect("granted in time").expect("granted")
}

/// Without the wait, a lagging replica grants a lock that is held. The token shows it.
#[tokio::test]
async fn lagging_replica_grants_twice_without_the_wait() {
    let overlap = overlap_after_failover("").await;
    assert!(
        overlap > Duration::ZERO,
        "the failover shows no double grant"
    );
}

#[tokio::test]
async fn lagging_replica_grants_once_with_the_wait() {
    let settings = format!("&after-failover=wait&longest-lease={}s", LEASE.as_secs());
    let overlap = overlap_after_failover(&settings).await;
    assert_eq!(overlap, Duration::ZERO);
}

/// During the wait, a master still renews and releases what it knows as held, and waiters queue.
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
        matches!(refused, Ok(None)),
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

#[tokio::test]
async fn lease_beyond_the_wait_is_refused() {
    let group = Sentinels::start();
    let locks = open(&group, "after-failover=wait&longest-lease=1s").await;
    let lock = locks.mutex("a").lease(Duration::from_secs(2));
    let error = lock.acquire().await.expect_err("too long");
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("longest lease"), "{error}");
}
