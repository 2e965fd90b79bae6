//! Waiting for the departures that are under way in the background.

use std::future::pending;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use crate::runtime::background::on_background;
use crate::runtime::simulation;

/// The number of departures that the background completes.
static UNDER_WAY: Mutex<usize> = Mutex::new(0);
/// Tasks wait for `DRAINED`, and blocked threads for `DRAINED_BLOCKING`. The last departure
/// notifies both.
static DRAINED: Notify = Notify::const_new();
static DRAINED_BLOCKING: Condvar = Condvar::new();

/// The runtimes in which a store was opened. One that ends waits for departures until the instant.
static RUNTIMES: Mutex<Vec<(Id, Option<Instant>)>> = Mutex::new(Vec::new());

/// How long the end of a runtime waits for departures. A store replies within milliseconds.
const END_MAX: Duration = Duration::from_secs(1);

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
/// that are not released by then stay held until the store detects the crash or the lease ends.
///
/// The end of a tokio runtime in which a store was opened waits for the releases by itself, for up
/// to a second. So a program that returns from `main`, or panics there, need not call this. One
/// calls it before `std::process::exit`, which drops nothing, on another executor, and to wait for
/// longer:
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

/// Lets the end of the caller's runtime wait for departures.
///
/// A program that returns from `main`, or panics there, ends its runtime, and then the process ends
/// with the background thread.
pub(crate) fn wait_at_end_of_runtime() {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let id = runtime.id();
    {
        let mut runtimes = RUNTIMES.lock();
        let is_known = runtimes.iter().any(|(known, _)| *known == id);
        if is_known || simulation::is_active() {
            return;
        }
        let now = Instant::now();
        runtimes.retain(|(_, ends_by)| ends_by.is_none_or(|ends_by| ends_by > now));
        runtimes.push((id, None));
    }

    let end = EndOfRuntime(id);
    runtime.spawn(async move {
        let _end = end;
        pending::<()>().await;
    });
}

/// Is dropped when the runtime that runs its task ends.
struct EndOfRuntime(Id);

impl Drop for EndOfRuntime {
    fn drop(&mut self) {
        let ends_by = Instant::now() + END_MAX;
        for (id, runtime_ends_by) in &mut *RUNTIMES.lock() {
            if *id == self.0 {
                *runtime_ends_by = Some(ends_by);
            }
        }
        drain_blocking(END_MAX);
    }
}

/// Waits for departures if this thread's runtime is ending. It drops its other tasks after the one
/// that waits, and they may have guards.
pub(crate) fn wait_if_runtime_ends() {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let id = runtime.id();
    let ends_by = {
        let runtimes = RUNTIMES.lock();
        let known = runtimes.iter().find(|(known, _)| *known == id);
        known.and_then(|(_, ends_by)| *ends_by)
    };
    if let Some(ends_by) = ends_by {
        drain_blocking(ends_by.saturating_duration_since(Instant::now()));
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
