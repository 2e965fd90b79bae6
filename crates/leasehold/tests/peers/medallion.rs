//! Medallion's `LeaseMonitor` counts a lease from the reply, so it reports a loss after the key has
//! expired.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::Guard;
use leasehold::stores::Memory;

use super::slow::Slow;
use super::{waiters, within_timeout};

const LEASE: Duration = Duration::from_secs(6);

/// Checks that a hold ends within a lease after its request was sent.
fn check(held: &Guard, sent_at: Instant) {
    let remaining = held.remaining();
    let age = sent_at.elapsed();
    assert!(
        age + remaining <= LEASE,
        "{remaining:?} remain {age:?} after the request"
    );
}

#[tokio::test]
async fn medallion_lease_counts_from_the_request() {
    let (locks, switches) = Slow::locks(&Memory::new());
    switches.late.store(true, Ordering::SeqCst);
    let held = locks
        .mutex("a")
        .lease(LEASE)
        .acquire()
        .await
        .expect("granted");
    check(&held, switches.requested());
}

/// Shows G-12.
#[tokio::test]
async fn medallion_renewal_counts_from_the_request() {
    let (locks, switches) = Slow::locks(&Memory::new());
    let held = locks
        .mutex("a")
        .lease(LEASE)
        .acquire()
        .await
        .expect("granted");
    switches.late.store(true, Ordering::SeqCst);
    let entered = switches.requested();
    let renewed = async {
        while switches.requested() == entered || held.remaining() + entered.elapsed() <= LEASE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within_timeout("it is renewed", renewed).await;
    check(&held, switches.requested());
}

/// A pushed grant is valid no longer than a lease from the last request with a reply, because the
/// notification may have been under way for long.
#[tokio::test]
async fn medallion_pushed_grant_counts_from_the_last_request() {
    let store = Memory::new();
    let theirs = leasehold::Locks::from_store(store.clone(), "memory:").expect("it runs");
    let (ours, switches) = Slow::locks(&store);
    let first = theirs.mutex("a").acquire().await.expect("granted");
    switches.drops_replies.store(true, Ordering::SeqCst);
    let lock = ours.mutex("a").lease(LEASE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, "a", 1).await;
    let sent_at = switches.requested();
    tokio::time::sleep(Duration::from_millis(500)).await;
    first.release().await.expect("released");
    let held = within_timeout("it holds", waiting).await;
    check(&held.expect("it runs").expect("granted"), sent_at);
}
