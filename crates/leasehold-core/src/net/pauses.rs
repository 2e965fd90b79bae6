//! The pauses between the attempts to open a session.

use std::time::Duration;

use crate::runtime::backoff::Backoff;

/// A connection that lasted for less than this counts as a failed attempt: a proxy may accept a
/// connection and close it at once.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The longest pause before a server is asked again that holds the locks of a client.
const LONGEST: Duration = Duration::from_secs(1);

/// Pauses that grow while attempts fail.
#[derive(Clone, Debug)]
pub struct Pauses {
    backoff: Backoff,
    shortest: Duration,
    random: fn() -> f64,
    follow_outage: bool,
}

impl Pauses {
    /// `random` returns a number from 0 to 1, by which a pause is shortened to at most a half: the
    /// clients of one server must not return together.
    #[must_use]
    pub fn between(shortest: Duration, longest: Duration, random: fn() -> f64) -> Self {
        Self {
            backoff: Backoff::between(shortest, longest),
            shortest,
            random,
            follow_outage: false,
        }
    }

    /// Pauses after which a hold is still there: they stay below a twentieth of the crash grace.
    ///
    /// Without crash detection the lease limits the outage, but a connection does not know the
    /// lease. So a pause is a twelfth of the outage so far at most.
    #[must_use]
    pub fn within_grace(shortest: Duration, grace: Option<Duration>, random: fn() -> f64) -> Self {
        let longest = grace.map_or(LONGEST, |grace| LONGEST.min(grace / 20));
        Self {
            follow_outage: grace.is_none(),
            ..Self::between(shortest, longest, random)
        }
    }

    /// Returns the pause after a session that has ended.
    pub(super) fn after_end(&mut self, lasted: Duration) -> Duration {
        if lasted < STABLE_AFTER {
            return self.next();
        }
        self.backoff.reset();
        Duration::ZERO
    }

    /// Returns the pause after an attempt that failed.
    pub(super) fn after_failure(&mut self, outage: Duration) -> Duration {
        let pause = self.next();
        if self.follow_outage {
            return pause.min(self.shortest.max(outage / 12));
        }
        pause
    }

    fn next(&mut self) -> Duration {
        let part = 0.5 + (self.random)() / 2.0;
        self.backoff.next_pause().mul_f64(part)
    }
}

/// How long an attempt to open a session may take.
///
/// An outage may swallow what the first attempt to return sends, and then it hears nothing, also when
/// the outage is over. So it takes at most half of the crash grace, and another one keeps the holds. An
/// attempt that took longer gives the next one twice as much, up to the time that the first session
/// of all has: a server may be slow.
#[derive(Clone, Debug)]
pub struct AttemptLimit {
    longest: Duration,
    again: Duration,
    now: Duration,
}

impl AttemptLimit {
    #[must_use]
    pub fn new(longest: Duration, grace: Option<Duration>) -> Self {
        const AGAIN_MIN: Duration = Duration::from_secs(1);
        let again = grace.map_or(longest, |grace| (grace / 2).max(AGAIN_MIN));
        Self {
            longest,
            again: again.min(longest),
            now: longest,
        }
    }

    #[must_use]
    pub fn get(&self) -> Duration {
        self.now
    }

    /// Notes how long an attempt took, and whether it has opened a session.
    pub fn attempted(&mut self, took: Duration, is_open: bool) {
        if is_open {
            self.now = self.again;
        } else if took >= self.now {
            self.now = self.longest.min(self.now * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_millis(10);

    fn pauses() -> Pauses {
        Pauses::between(SHORTEST, LONGEST, || 0.5)
    }

    #[test]
    fn pauses_grow_while_attempts_fail() {
        let mut pauses = pauses();
        let hour = Duration::from_secs(3600);
        let after: Vec<Duration> = (0..20).map(|_| pauses.after_failure(hour)).collect();

        assert!(after.iter().all(|pause| *pause <= LONGEST), "{after:?}");
        assert!(after[0] <= SHORTEST, "{after:?}");
        assert!(after[10] >= LONGEST / 2, "{after:?}");
    }

    #[test]
    fn pauses_follow_the_outage() {
        let mut pauses = Pauses::within_grace(SHORTEST, None, || 0.5);

        for _ in 0..8 {
            let pause = pauses.after_failure(Duration::from_millis(600));
            assert!(pause <= Duration::from_millis(50), "{pause:?}");
        }
        assert!(pauses.after_failure(Duration::from_secs(60)) >= LONGEST / 2);
    }

    #[test]
    fn pauses_stay_within_the_grace() {
        let grace = Duration::from_millis(500);
        let mut pauses = Pauses::within_grace(SHORTEST, Some(grace), || 1.0);

        for _ in 0..8 {
            let failed = pauses.after_failure(Duration::from_secs(3600));
            let ended = pauses.after_end(Duration::ZERO);
            assert!(failed.max(ended) <= grace / 20, "{failed:?} {ended:?}");
        }
    }

    #[test]
    fn short_lived_session_counts_as_a_failed_attempt() {
        let mut pauses = pauses();

        let after: Vec<Duration> = (0..10).map(|_| pauses.after_end(Duration::ZERO)).collect();
        assert!(after[0] <= SHORTEST, "{after:?}");
        assert!(after[9] >= Duration::from_millis(250), "{after:?}");

        // A session that was stable is opened again at once.
        assert_eq!(pauses.after_end(STABLE_AFTER), Duration::ZERO);
        assert!(pauses.after_end(Duration::ZERO) <= SHORTEST);
    }

    /// The first session of all has the longest time. A later one has half of the grace, and on a slow
    /// network more after each attempt that took all of it.
    #[test]
    fn slow_server_is_given_more_time_after_each_attempt() {
        let [short, longest, grace] = [1, 15, 4].map(Duration::from_secs);
        let mut limit = AttemptLimit::new(longest, Some(grace));
        assert_eq!(limit.get(), longest);
        limit.attempted(longest, false);
        assert_eq!(limit.get(), longest);

        limit.attempted(short, true);
        for seconds in [2, 4, 8, 15, 15] {
            let expected = Duration::from_secs(seconds);
            assert_eq!(limit.get(), expected);
            // It was refused at once.
            limit.attempted(short, false);
            assert_eq!(limit.get(), expected);
            limit.attempted(expected, false);
        }
        limit.attempted(short, true);
        assert_eq!(limit.get(), grace / 2);

        for (grace, again) in [(None, longest), (Some(short), short)] {
            let mut limit = AttemptLimit::new(longest, grace);
            limit.attempted(short, true);
            assert_eq!(limit.get(), again);
        }
    }
}
