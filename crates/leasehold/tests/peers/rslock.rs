//! rslock's `using` does not poll the work while it extends the lock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::stores::Memory;

use super::slow::Slow;
use super::within_timeout;

/// Shows G-12.
#[tokio::test]
async fn rslock_work_survives_renewals_and_ends_with_the_lock() {
    let store = Memory::new();
    let (ours, switches) = Slow::locks(&store);
    let theirs = leasehold::Locks::from_store(store, "memory:").expect("it runs");
    switches.late.store(true, Ordering::SeqCst);
    let held = ours
        .mutex("a")
        .lease(Duration::from_secs(6))
        .acquire()
        .await
        .expect("granted");
    let rounds = AtomicU32::new(0);
    let work = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    let entered = switches.requested();
    let breaking = async {
        while switches.requested() == entered {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(
            rounds.load(Ordering::Relaxed) > 10,
            "the work did not run during a renewal"
        );
        let broken = theirs.break_hold("a", held.token()).await;
        broken.expect("sent").expect("it was held");
    };

    let both = async { tokio::join!(held.while_held(work), breaking) };
    let (ended, ()) = within_timeout("the work stops", both).await;
    let ended: leasehold::Result<()> = ended;
    assert!(ended.expect_err("the lock was lost").is_lost());
}
