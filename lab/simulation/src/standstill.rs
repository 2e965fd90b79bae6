//! Finds a task that works on without a pause.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How often the clock was read at its present time.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    at: AtomicU64,
    readings: AtomicU32,
}

impl Standstill {
    /// Counts a reading of the clock; returns whether there were too many at this time. Virtual time
    /// would never pass again.
    pub(crate) fn lasts_at(&self, now: u64) -> bool {
        /// The busiest moment of ten thousand histories needs fewer than a thousandth of these.
        const READINGS_MAX: u32 = 1_000_000;

        if self.at.swap(now, Ordering::Relaxed) != now {
            self.readings.store(0, Ordering::Relaxed);
        }
        self.readings.fetch_add(1, Ordering::Relaxed) == READINGS_MAX
    }
}
