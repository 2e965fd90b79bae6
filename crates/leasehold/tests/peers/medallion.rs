//! Medallion's `LeaseMonitor` lets a lifetime begin anew when the answer is there, so a loss is heard after the key has ended.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::Guard;
use leasehold::stores::Memory;

use super::slow::{Slow, Switches};
use super::{waiters, within_timeout};

const LEASE: Duration = Duration::from_secs(6);

/// Whatever is left of a lease ends before a lease from the question does.
fn check(held: &Guard, sent_at: Instant) {
    let left = held.remaining();
    assert!(
        sent_at.elapsed() + left <= LEASE,
        "{left:?} are left {:?} after the question",
        sent_at.elapsed()
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

/// A grant that is told is worth no more than the last question that was answered: what tells of it may have been long under way.
#[tokio::test]
async fn medallion_pushed_grant_counts_from_the_last_request() {
    let store = Memory::new();
    let (theirs, (ours, switches)) = (
        leasehold::Locks::from_store(store.clone(), "memory:").expect("it runs"),
        Slow::locks(&store),
    );
    let first = theirs.mutex("a").acquire().await.expect("granted");
    switches.drops_replies.store(true, Ordering::SeqCst);
    let lock = ours.mutex("a").lease(LEASE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, "a", 1).await;
    let requested: &Switches = &switches;
    let sent_at = requested.requested();
    tokio::time::sleep(Duration::from_millis(500)).await;
    first.release().await.expect("released");
    let held = within_timeout("it holds", waiting)
        .await
        .expect("it runs")
        .expect("granted");
    check(&held, sent_at);
}
