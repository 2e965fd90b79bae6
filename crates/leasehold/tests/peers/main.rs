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

use leasehold::Locks;
use leasehold_conformance::support::{claim, empty, waiters, within_timeout};

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("it opens")
}

/// Acquires and releases a lock.
async fn use_once(locks: &Locks, name: &str) {
    let held = locks.mutex(name).acquire().await.expect("granted");
    held.release().await.expect("released");
}
