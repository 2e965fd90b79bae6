//! Clients of one server, waiting and cut off.

use std::time::Duration;

use leasehold::{Guard, Lock, Locks};
use leasehold_conformance::support::waiters;

use super::{Redis, Wire};

pub(crate) async fn open(url: &str, settings: &str) -> Locks {
    leasehold::open(&format!("{url}?{settings}"))
        .await
        .expect("the store opens")
}

/// A client that the wire can cut off from the server.
pub(crate) async fn remote(server: &Redis, settings: &str) -> (Wire, Locks) {
    let wire = Wire::to(server.address());
    let locks = open(&wire.url_of("redis"), settings).await;
    (wire, locks)
}

pub(crate) fn cut_off(wire: &Wire) {
    wire.refuse(true);
    wire.partition();
}

/// Acquires and releases a lock.
pub(crate) async fn use_once(lock: &Lock) {
    let held = lock.acquire().await.expect("granted");
    held.release().await.expect("released");
}

/// How long a waiter may wait until the crashes of others are noticed.
pub(crate) const GRANT_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) type Waiting = tokio::task::JoinHandle<leasehold::Result<Guard>>;

/// One more waiter for the mutex `a`, in the queue behind `ahead` others.
pub(crate) async fn wait_behind(locks: &Locks, ahead: usize) -> Waiting {
    wait_with_lease(locks, ahead, Duration::from_secs(30)).await
}

pub(crate) async fn wait_with_lease(locks: &Locks, ahead: usize, lease: Duration) -> Waiting {
    let lock = locks.mutex("a").lease(lease);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(locks, "a", ahead + 1).await;
    waiting
}

pub(crate) async fn granted(waiting: Waiting) -> Guard {
    let granted = tokio::time::timeout(GRANT_TIMEOUT, waiting).await;

    granted
        .expect("the lock is granted in time")
        .expect("the task runs")
        .expect("granted")
}
