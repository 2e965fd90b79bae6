//! Growing pauses between retries.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Pauses that double, from the shortest to the longest.
///
/// The default is for one request: a lost packet costs 10 ms, and an unreachable store is sent one
/// request per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub fn between(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            next: min,
        }
    }

    /// Returns the next pause. The one after it is twice as long, up to the longest.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.max);
        self.next = pause.saturating_mul(2);
        pause
    }

    /// Starts again with the shortest pause, after a success.
    pub fn reset(&mut self) {
        self.next = self.min;
    }

    pub async fn wait(&mut self) {
        sleep(self.next_pause()).await;
    }

    /// Waits for the next pause; returns whether it ended before the deadline.
    pub async fn wait_before(&mut self, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else {
            self.wait().await;
            return true;
        };
        timeout_at(deadline, self.wait()).await.is_ok()
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::between(MIN, MAX)
    }
}

const MIN: Duration = Duration::from_millis(10);
const MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again() {
        let mut backoff = Backoff::default();

        let pauses: Vec<_> = (0..9).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);

        backoff.reset();
        assert_eq!(backoff.next_pause(), MIN);
    }
}
