//! Waiting for the departures that are under way in the background.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::runtime::background::{is_forked, on_background};

/// The number of departures that the background completes.
static UNDER_WAY: Mutex<usize> = Mutex::new(0);
/// Tasks wait for `DRAINED`, which the last departure notifies.
static DRAINED: Notify = Notify::const_new();
/// Blocked threads wait for `DEPARTED`, which every departure notifies.
static DEPARTED: Condvar = Condvar::new();

thread_local! {
    static BEGUN_HERE: BegunHere = BegunHere::default();
}

/// One departure that the background completes.
pub(crate) struct Departure {
    /// `None` if its thread was ending already.
    begun_by: Option<Arc<()>>,
}

impl Departure {
    /// Begins the departure that the background completes. The caller has tried it since `since`.
    pub(crate) fn begin(since: Instant) -> Self {
        let mut under_way = UNDER_WAY.lock();
        *under_way += 1;

        let begun_by = BEGUN_HERE.try_with(|begun_here| begun_here.add(since));
        Self {
            begun_by: begun_by.ok(),
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut under_way = UNDER_WAY.lock();
        *under_way -= 1;
        self.begun_by = None;

        DEPARTED.notify_all();
        if *under_way == 0 {
            DRAINED.notify_waiters();
        }
    }
}

/// The departures that a thread has begun. The end of the thread waits for them.
///
/// A program that returns from `main`, or panics there, drops its guards and its runtime on the
/// main thread, and the runtime waits for the ends of its own threads. So the process ends after
/// their departures, although the background thread ends with it.
#[derive(Default)]
struct BegunHere {
    /// Each departure has a clone.
    departures: Arc<()>,
    wait_until: Cell<Option<Instant>>,
}

impl BegunHere {
    fn add(&self, since: Instant) -> Arc<()> {
        let wait_until = Some(since + REPLY_MAX);
        self.wait_until.set(self.wait_until.get().max(wait_until));
        Arc::clone(&self.departures)
    }
}

impl Drop for BegunHere {
    fn drop(&mut self) {
        let Some(wait_until) = self.wait_until.get().filter(|_| !is_forked()) else {
            return;
        };
        let mut under_way = UNDER_WAY.lock();
        let are_under_way = |_: &mut usize| Arc::strong_count(&self.departures) > 1;
        DEPARTED.wait_while_until(&mut under_way, are_under_way, wait_until);
    }
}

/// How long the end of a thread waits for a reply. A release takes one round trip. If the store has
/// not replied by then, the lease or the crash detection frees the lock.
const REPLY_MAX: Duration = Duration::from_secs(1);

/// Waits until every release and cancellation that this process has begun has reached its store.
///
/// A dropped guard is released by the background thread, which ends when the process exits. A
/// thread that ends waits up to a second for the releases that it has begun. So a program that
/// returns from `main`, or panics there, leaves no lock behind, and need not call this. One that is
/// ended by `std::process::exit` in another thread, or that wants to wait for longer, calls it
/// first:
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

        if is_forked() || *UNDER_WAY.lock() == 0 {
            return;
        }
        drained.await;
    }
}

/// As [`drain`], on a thread that may block; returns whether all departures ended within `timeout`.
pub(crate) fn drain_blocking(timeout: Duration) -> bool {
    if is_forked() {
        return true;
    }
    let mut under_way = UNDER_WAY.lock();

    match Instant::now().checked_add(timeout) {
        Some(deadline) => {
            DEPARTED.wait_while_until(&mut under_way, |count| *count > 0, deadline);
        }
        None => DEPARTED.wait_while(&mut under_way, |count| *count > 0),
    }

    *under_way == 0
}
