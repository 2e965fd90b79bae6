//! What only the Redis store promises, on real servers.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::time::Duration;

use lab_servers::{Redis, Wire};
use leasehold::Locks;

async fn client(server: &Redis, settings: &str) -> Locks {
    leasehold::open(&format!("{}?{settings}", server.url())).await.expect("it opens")
}

/// A holder judged by its connection must be heard of within the grace, which is shorter than its lease.
#[tokio::test]
async fn held_beyond_the_grace() {
    let server = Redis::start();
    let locks = client(&server, "crash-grace=500ms").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let waiting = locks.mutex("a");
    assert!(waiting.try_acquire_for(Duration::from_secs(2)).await.expect("asked").is_none());
    held.check().expect("still held");
}

/// After an answer that did not come, too, the next question comes within the grace, however long the lease.
#[tokio::test]
async fn a_short_break_costs_no_lock() {
    let server = Redis::start();
    let wire = Wire::to(server.address());
    let locks = leasehold::open(&format!("{}?crash-grace=2s", wire.url_of("redis"))).await.expect("it opens");
    let held = locks.mutex("a").lease(Duration::from_secs(3600)).acquire().await.expect("granted");
    wire.refuse(true);
    wire.cut();
    while held.renewal() != leasehold::Renewal::Late {
        held.check().expect("not yet over");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    wire.refuse(false);
    let lost = tokio::time::timeout(Duration::from_secs(5), held.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

/// Whoever takes over waits for as long as the holder trusts itself, whatever its own grace is.
#[tokio::test]
async fn a_holder_s_own_grace_counts() {
    let server = Redis::start();
    let wire = Wire::to(server.address());
    let patient = leasehold::open(&format!("{}?crash-grace=3s", wire.url_of("redis"))).await.expect("it opens");
    let hasty = client(&server, "crash-grace=500ms").await;
    let held = patient.mutex("a").acquire().await.expect("granted");
    wire.refuse(true);
    wire.cut();
    let next = hasty.mutex("a").acquire().await.expect("granted");
    assert!(held.check().is_err(), "two hold at once");
    next.release().await.expect("released");
}
