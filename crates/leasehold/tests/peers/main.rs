//! Defects of other lock libraries that leasehold must not have.
//!
//! Each test is named after the library in which the defect was seen. A suite that covers such a
//! defect names the library in its comment, and the defect has no test here.
#![cfg(all(feature = "redis", feature = "zookeeper"))]
#![allow(missing_docs)]

mod curator;
mod kazoo;
mod medallion;
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
