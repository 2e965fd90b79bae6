//! Waiting for a condition.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a test waits for what must come: no promise, only the end of patience.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// How often a condition is looked at that nobody announces.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until `look` finds something.
///
/// # Errors
/// After [`DEADLINE`], naming `what` was waited for; and if `look` fails.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(DEADLINE, what, look)
}

/// As [`until`], with another end of patience.
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
