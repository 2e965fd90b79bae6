//! The clock of the events of all processes.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds of `CLOCK_BOOTTIME`. This clock is the same for all processes of a
/// machine, and never jumps.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Returns how long the machine was suspended, which the monotonic clock does not count.
#[must_use]
pub fn suspended() -> u64 {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let nanos = monotonic.tv_sec.unsigned_abs() * 1_000_000_000 + monotonic.tv_nsec.unsigned_abs();

    // The two clocks are read less than a millisecond apart.
    let ahead = now().saturating_sub(nanos);
    if ahead < 1_000_000 { 0 } else { ahead }
}
