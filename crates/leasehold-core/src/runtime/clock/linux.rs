//! A timer by `CLOCK_BOOTTIME`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe;

use super::BootInstant;

/// A timer on the same clock, which also fires on time after a suspend.
///
/// A timer descriptor is read like a pipe, and tokio waits for a pipe without unsafe code.
#[derive(Debug)]
pub(crate) struct DescriptorTimer {
    timer: OwnedFd,
    readiness: pipe::Receiver,
}

impl DescriptorTimer {
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
            it_value: timespec(deadline),
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

fn timespec(time: BootInstant) -> Timespec {
    // Zero would disarm the timer.
    let nanos = time.as_nanos().max(1);
    Timespec {
        tv_sec: (nanos / 1_000_000_000).cast_signed(),
        tv_nsec: (nanos % 1_000_000_000).cast_signed(),
    }
}
