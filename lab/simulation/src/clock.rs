//! The clocks of the clients, each of which runs at a rate of its own.

use leasehold::simulation::BootInstant;

use crate::server::Nanos;

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
