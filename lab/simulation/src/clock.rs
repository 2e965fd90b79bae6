//! Virtual time, and the clocks of the clients, each of which runs at a rate of its own.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::simulation::BootInstant;
use tokio::time::Instant;

use crate::server::{Nanos, nanos};

/// The true time of a world.
#[derive(Debug)]
pub(crate) struct VirtualTime {
    start: Instant,
    standstill: Standstill,
}

impl VirtualTime {
    /// Begins now.
    pub(crate) fn begin() -> Self {
        Self {
            start: Instant::now(),
            standstill: Standstill::default(),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        nanos(self.start.elapsed())
    }

    /// Reads a clock.
    ///
    /// # Panics
    /// If a task works on without a pause.
    pub(crate) fn read(&self, clock: Clock) -> BootInstant {
        let now = self.now();
        assert!(!self.standstill.lasts_at(now), "a task never pauses");
        clock.at(now)
    }

    /// Returns when a clock shows `shown`, for a timer.
    pub(crate) fn instant_of(&self, clock: Clock, shown: BootInstant) -> Instant {
        // Both conversions round down, and the clock must show the time when the timer fires.
        self.start + Duration::from_nanos(clock.time_of(shown)) + Duration::from_micros(1)
    }
}

/// The clock of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What it shows when the history begins.
    base: u64,
    /// By how many millionths it is fast.
    drift: i64,
}

impl Clock {
    /// Creates the clock of a client. Machines have booted at different times.
    pub(crate) fn new(client: usize, drift: i64) -> Self {
        let days = 1 + u64::try_from(client).expect("few clients");
        Self {
            base: days * 86_400_000_000_000,
            drift,
        }
    }

    /// Returns what it shows at a time.
    pub(crate) fn at(self, time: Nanos) -> BootInstant {
        let passed = scale(time, MILLION + self.drift, MILLION);
        BootInstant::from_nanos(self.base.saturating_add(passed))
    }

    /// Returns when it shows `shown`.
    pub(crate) fn time_of(self, shown: BootInstant) -> Nanos {
        if shown == BootInstant::FAR_FUTURE {
            return Nanos::MAX;
        }
        let passed = shown.as_nanos().saturating_sub(self.base);
        scale(passed, MILLION, MILLION + self.drift)
    }
}

/// How often the clock was read at its present time.
#[derive(Debug, Default)]
struct Standstill {
    at: AtomicU64,
    readings: AtomicU32,
}

impl Standstill {
    /// Counts a reading of the clock; returns whether there were too many at this time. Virtual
    /// time would never pass again.
    fn lasts_at(&self, now: u64) -> bool {
        /// The busiest moment of ten thousand histories needs fewer than a thousandth of these.
        const READINGS_MAX: u32 = 1_000_000;

        if self.at.swap(now, Ordering::Relaxed) != now {
            self.readings.store(0, Ordering::Relaxed);
        }
        self.readings.fetch_add(1, Ordering::Relaxed) == READINGS_MAX
    }
}

const MILLION: i64 = 1_000_000;

fn scale(time: Nanos, numerator: i64, denominator: i64) -> Nanos {
    let scaled = i128::from(time) * i128::from(numerator) / i128::from(denominator);
    Nanos::try_from(scaled).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_clock_shows_more_and_is_inverted() {
        let clock = Clock::new(0, 200);
        let shown = clock.at(1_000_000_000);

        assert_eq!(shown.as_nanos() - clock.at(0).as_nanos(), 1_000_200_000);
        assert_eq!(clock.time_of(shown), 1_000_000_000);
    }
}
