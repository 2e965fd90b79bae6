//! What respected libraries get wrong, and ours must not: a test for each defect, named after where it was seen. Defects that
//! other tests show already are in docs/peer-defects.md, with those tests.
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

/// The longest that a test waits for what must come: less than a third of the usual lease.
const TIMEOUT: Duration = Duration::from_secs(9);

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("it opens")
}

async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

async fn waiters(locks: &Locks, name: &str, count: usize) {
    while locks.inspect(name).await.expect("looked").waiters().count() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn empty(locks: &Locks, name: &str) {
    while !locks
        .inspect(name)
        .await
        .expect("looked")
        .entries
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn claim(name: &str) -> Claim {
    let name = Name::parse(name).expect("a good name");
    let info = ClaimantInfo::here("").expect("a good label");
    Claim::new(name, Share::MUTEX, info.into())
}
