//! Defects of other lock libraries that leasehold must not have.
//!
//! Each test is named after the library in which the defect was seen. `docs/peer-defects.md` also
//! lists the defects that tests elsewhere cover.
#![cfg(all(feature = "redis", feature = "zookeeper"))]
#![allow(missing_docs)]

mod curator;
mod distributed_lock_rs;
mod etcd;
mod kazoo;
mod medallion;
mod node_redlock;
mod redisson;
mod rslock;
mod slow;

use std::fmt::Debug;
use std::time::Duration;

use leasehold::store::{Claim, Share};
use leasehold::{ClaimantInfo, Locks, Name};

/// How long a test waits for an event that must happen: less than a third of the default lease.
const TIMEOUT: Duration = Duration::from_secs(9);

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("it opens")
}

async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

async fn waiters(locks: &Locks, name: &str, count: usize) {
    while locks
        .inspect(name)
        .await
        .expect("inspected")
        .waiters()
        .count()
        != count
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn empty(locks: &Locks, name: &str) {
    while !locks
        .inspect(name)
        .await
        .expect("inspected")
        .entries
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Acquires and releases a lock.
async fn use_once(locks: &Locks, name: &str) {
    let held = locks.mutex(name).acquire().await.expect("granted");
    held.release().await.expect("released");
}

fn claim(name: &str) -> Claim {
    let name = Name::parse(name).expect("a good name");
    let info = ClaimantInfo::here("").expect("a good label");
    Claim::new(name, Share::MUTEX, info.into())
}
