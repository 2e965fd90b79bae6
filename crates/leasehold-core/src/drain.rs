//! Waiting for the departures that are under way in the background.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::runtime::background::{is_forked, on_background};

static UNDER_WAY: Mutex<UnderWay> = Mutex::new(UnderWay {
    count: 0,
    wait_until: None,
});
/// Tasks wait for `DRAINED`, which the last departure notifies.
static DRAINED: Notify = Notify::const_new();
/// Blocked threads wait for `DEPARTED`, which every departure notifies.
static DEPARTED: Condvar = Condvar::new();

thread_local! {
    static END_OF_THREAD: EndOfThread = EndOfThread::default();
}

/// The departures that the background completes.
struct UnderWay {
    count: usize,
    /// Until when the end of a thread waits for them.
    wait_until: Option<Instant>,
}

/// One departure that the background completes.
#[derive(Debug)]
pub(crate) struct Departure {
    /// `None` if its thread was ending already.
    begun_by: Option<Arc<()>>,
}

impl Departure {
    /// Begins the departure that the background completes. The caller has tried it since `since`.
    pub(crate) fn begin(since: Instant) -> Self {
        let mut under_way = UNDER_WAY.lock();
        under_way.count += 1;
        under_way.wait_until = under_way.wait_until.max(Some(since + REPLY_MAX));

        let begun_by = END_OF_THREAD.try_with(|end| Arc::clone(&end.begun_here));
        Self {
            begun_by: begun_by.ok(),
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut under_way = UNDER_WAY.lock();
        under_way.count -= 1;
        self.begun_by = None;

        DEPARTED.notify_all();
        if under_way.count == 0 {
            DRAINED.notify_waiters();
        }
    }
}

/// Lets the end of this thread wait for departures, also if it begins none itself.
pub(crate) fn wait_at_end_of_thread() {
    // A thread that is ending already does not wait any more.
    let _ = END_OF_THREAD.try_with(|_| ());
}

/// Waits for departures at the end of a thread: the main thread for all of them, and other threads
/// for those that they have begun.
///
/// A program that returns from `main`, or panics there, drops its guards and its runtime on the
/// main thread, and the runtime waits for the ends of its own threads. So the process ends after
/// the departures, although the background thread ends with it.
struct EndOfThread {
    is_main: bool,
    /// Each departure that the thread has begun has a clone.
    begun_here: Arc<()>,
}

impl Default for EndOfThread {
    fn default() -> Self {
        Self {
            is_main: thread::current().name() == Some("main"),
            begun_here: Arc::default(),
        }
    }
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        // In a forked child no thread completes them, and another thread may have had the mutex.
        if is_forked() {
            return;
        }
        let mut under_way = UNDER_WAY.lock();
        let Some(wait_until) = under_way.wait_until else {
            return;
        };

        let are_under_way = |under_way: &mut UnderWay| {
            if self.is_main {
                under_way.count > 0
            } else {
                Arc::strong_count(&self.begun_here) > 1
            }
        };
        DEPARTED.wait_while_until(&mut under_way, are_under_way, wait_until);
    }
}

/// How long the end of a thread waits for a reply. A release takes one round trip. If the store has
/// not replied by then, the lease or the crash detection frees the lock.
const REPLY_MAX: Duration = Duration::from_secs(1);

/// Waits until every release and cancellation that this process has begun has reached its store.
///
/// A dropped guard is released by the background thread, which ends when the process exits. The end
/// of the main thread waits up to a second for all releases, and that of another thread for those
/// that it has begun. So a program that returns from `main`, or panics there, need not call this.
/// One that is ended by `std::process::exit` in another thread, or that wants to wait for longer,
/// calls it first:
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
/// It covers all stores of the process. A store that sends no reply delays it by about the lease of
/// the claims to release. Wrap it in a timeout to wait for a shorter time.
///
/// # Cancel safety
/// It only waits; dropping it has no effect.
pub async fn drain() {
    on_background(drained()).await;
}

async fn drained() {
    loop {
        let drained = DRAINED.notified();

        if is_forked() || UNDER_WAY.lock().count == 0 {
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
            DEPARTED.wait_while_until(&mut under_way, |under_way| under_way.count > 0, deadline);
        }
        None => DEPARTED.wait_while(&mut under_way, |under_way| under_way.count > 0),
    }

    under_way.count == 0
}
