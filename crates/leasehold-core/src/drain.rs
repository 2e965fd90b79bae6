//! Waiting for the departures that are under way in the background.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::runtime::background::on_background;

/// The number of departures that the background completes.
static UNDER_WAY: Mutex<usize> = Mutex::new(0);
/// Tasks wait for `DRAINED`, and blocked threads for `DRAINED_BLOCKING`. The last departure
/// notifies both.
static DRAINED: Notify = Notify::const_new();
static DRAINED_BLOCKING: Condvar = Condvar::new();

/// One departure that the background completes.
pub(crate) struct Departure(());

impl Departure {
    pub(crate) fn begin() -> Self {
        *UNDER_WAY.lock() += 1;
        Self(())
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut under_way = UNDER_WAY.lock();
        *under_way -= 1;

        if *under_way == 0 {
            DRAINED.notify_waiters();
            DRAINED_BLOCKING.notify_all();
        }
    }
}

/// Waits until every release and cancellation that this process has begun has reached its store.
///
/// A dropped guard is released by the background thread, which ends when the process exits. Locks
/// that are not released by then stay held until the store detects the crash or the lease ends. So
/// a program calls this before it exits:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// drop(locks.mutex("nightly").acquire().await?);
/// leasehold::drain().await;
/// assert!(locks.inspect("nightly").await?.entries.is_empty());
/// # Ok(()) }
/// ```
///
/// It covers all stores of the process. A store that sends no reply delays it by at most the lease
/// of the claims to release. Wrap it in a timeout to wait for a shorter time.
///
/// # Cancel safety
/// It only waits; dropping it has no effect.
pub async fn drain() {
    on_background(drained()).await;
}

async fn drained() {
    loop {
        let drained = DRAINED.notified();

        if *UNDER_WAY.lock() == 0 {
            return;
        }
        drained.await;
    }
}

/// As [`drain`], on a thread that may block; returns whether all departures ended within `timeout`.
///
/// It needs neither a runtime nor thread-local state, so it also works while a thread ends.
pub(crate) fn drain_blocking(timeout: Duration) -> bool {
    let mut under_way = UNDER_WAY.lock();

    match Instant::now().checked_add(timeout) {
        Some(deadline) => {
            DRAINED_BLOCKING.wait_while_until(&mut under_way, |count| *count > 0, deadline);
        }
        None => DRAINED_BLOCKING.wait_while(&mut under_way, |count| *count > 0),
    }

    *under_way == 0
}
