//! Waiting for a condition.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a test waits for a condition that must become true. This is not a guarantee: the limit
/// only ends a test that hangs.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// The interval between two checks of a condition that has no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until `look` returns a value.
///
/// # Errors
/// Fails after [`DEADLINE`] with a message that names `what`. Fails also if `look` fails.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(DEADLINE, what, look)
}

/// Waits as [`until`] does, with another time limit.
///
/// # Errors
/// As [`until`].
pub fn until_within<T>(
    timeout: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() > timeout {
            bail!("waited {} s in vain for {what}", timeout.as_secs());
        }
        sleep(POLL_INTERVAL);
    }
}
