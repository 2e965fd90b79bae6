//! The handles of the blocking API: dropping the last one waits for departures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime;

use crate::drain::drain_blocking;

/// Counts the values of the blocking API, each of which contains a handle. When a process drops its
/// last handle, the drop waits for the departures.
#[derive(Debug)]
pub(super) struct Handle(());

/// The number of handles.
static HANDLES: AtomicUsize = AtomicUsize::new(0);

/// A release takes one round trip. If the store has not replied by then, the lease or the crash
/// detection frees the lock.
const EXIT_DRAIN_MAX: Duration = Duration::from_secs(1);

impl Handle {
    pub(super) fn new() -> Self {
        HANDLES.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new()
    }
}

/// A struct drops its fields in order, so the guard of this handle has begun its departure.
impl Drop for Handle {
    fn drop(&mut self) {
        let is_last = HANDLES.fetch_sub(1, Ordering::AcqRel) == 1;

        // A thread of a runtime must not be blocked by a drop, and a runtime outlives its tasks.
        if is_last && runtime::Handle::try_current().is_err() {
            drain_blocking(EXIT_DRAIN_MAX);
        }
    }
}
