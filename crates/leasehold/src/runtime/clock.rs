//! A clock that runs while the machine is suspended.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe;

/// A time of `CLOCK_BOOTTIME`, in nanoseconds: the one clock of every decision here.
///
/// It never steps, and unlike `std::time::Instant` it counts the time for which the machine is
/// suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// Later than every other time.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Reads this machine's clock.
    #[must_use]
    pub fn now() -> Self {
        Self::from_timespec(clock_gettime(ClockId::Boottime))
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

    fn to_timespec(self) -> Timespec {
        // Zero would disarm the timer.
        let nanos = self.0.max(1);
        Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        }
    }

    fn from_timespec(time: Timespec) -> Self {
        let nanos = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
        Self(nanos)
    }
}

/// A timer on the same clock, which also fires on time after a suspend.
///
/// A timer descriptor is read like a pipe, and tokio waits for a pipe without unsafe code.
#[derive(Debug)]
pub(crate) struct BootTimer {
    timer: OwnedFd,
    readiness: pipe::Receiver,
}

impl BootTimer {
    /// Creates a timer; must be called, and waited on, inside the background runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let readiness = pipe::Receiver::from_owned_fd_unchecked(timer.try_clone()?)?;
        Ok(Self { timer, readiness })
    }

    /// Waits until `deadline`; returns at once if it has passed.
    pub(crate) async fn fires_at(&self, deadline: BootInstant) -> io::Result<()> {
        if deadline == BootInstant::FAR_FUTURE {
            return std::future::pending().await;
        }

        let at = Itimerspec {
            it_interval: Timespec::default(),
            it_value: deadline.to_timespec(),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &at)?;

        while BootInstant::now() < deadline {
            self.readiness.readable().await?;
            // The count of expirations does not matter. After a spurious wake-up it waits again.
            match self.readiness.try_read(&mut [0; 8]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
