//! A clock that runs while the machine is suspended.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::simulation;

#[cfg(target_os = "linux")]
pub(crate) use linux::DescriptorTimer as SystemTimer;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::SleepingTimer as SystemTimer;

pub(crate) use super::simulation::BootTimer;

/// The clock that also runs while the machine is suspended.
#[cfg(target_os = "linux")]
pub(super) const CLOCK: ClockId = ClockId::Boottime;
/// On macOS, `CLOCK_MONOTONIC` also runs while the machine is asleep.
#[cfg(not(target_os = "linux"))]
pub(super) const CLOCK: ClockId = ClockId::Monotonic;

/// A time of `CLOCK_BOOTTIME`, in nanoseconds: the one clock of every decision here.
///
/// It never steps, and unlike `std::time::Instant` it counts the time for which the machine is
/// suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// Later than every other time.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Reads this machine's clock, or the clock of the simulated world that the thread is in.
    #[must_use]
    pub fn now() -> Self {
        match simulation::now() {
            Some(now) => now,
            None => Self::from_timespec(clock_gettime(CLOCK)),
        }
    }

    /// Returns the time that is `wait` later, or `FAR_FUTURE` if that is beyond the clock's range.
    #[must_use]
    pub fn saturating_add(self, wait: Duration) -> Self {
        Self(
            u64::try_from(wait.as_nanos())
                .ok()
                .and_then(|nanos| self.0.checked_add(nanos))
                .unwrap_or(u64::MAX),
        )
    }

    /// Returns the time that is `time` earlier, but not before the boot; `FAR_FUTURE` stays
    /// unchanged.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        if self == Self::FAR_FUTURE {
            return self;
        }
        Self(
            self.0
                .saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// Returns the time since `earlier`; zero if this is not later.
    ///
    /// It is `Duration::MAX` for `FAR_FUTURE`.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        if self == Self::FAR_FUTURE {
            Duration::MAX
        } else {
            Duration::from_nanos(self.0.saturating_sub(earlier.0))
        }
    }

    /// Returns the nanoseconds since the boot.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time that is `nanos` after the boot.
    #[must_use]
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(super) fn from_timespec(time: Timespec) -> Self {
        let nanos = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
        Self(nanos)
    }
}
