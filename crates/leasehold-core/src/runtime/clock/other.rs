//! A timer for systems without timer descriptors.

use std::io;
use std::time::Duration;

use super::BootInstant;

/// A timer that reads the clock at least once a second, because a suspend stops other timers.
#[derive(Debug)]
pub(crate) struct SleepingTimer;

impl SleepingTimer {
    #[allow(clippy::unnecessary_wraps, reason = "the timer of Linux may fail")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits until `deadline`; returns at once if it has passed.
    pub(crate) async fn fires_at(&self, deadline: BootInstant) -> io::Result<()> {
        const POLL_INTERVAL: Duration = Duration::from_secs(1);

        loop {
            let remaining = deadline.duration_since(BootInstant::now());
            if remaining.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(remaining.min(POLL_INTERVAL)).await;
        }
    }
}
