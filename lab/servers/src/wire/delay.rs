//! The time that a piece spends in flight.

use std::ops::Range;
use std::time::Duration;

/// The time after which Linux sends a lost packet again. Each further loss doubles this time.
const RESENT_AFTER: Duration = Duration::from_millis(200);
/// The maximum number of losses. A piece with this number of losses arrives, three seconds late.
const LOSSES_MAX: u32 = 4;

/// The delay that a wire adds to each piece.
#[derive(Clone, Debug)]
pub(super) enum Delay {
    /// The same delay for each piece.
    Even(Duration),
    /// A random delay for each piece, in microseconds.
    Drawn(Range<u64>),
    /// A delay only for lost pieces. The probability applies to each attempt.
    Lossy(f64),
}

impl Delay {
    /// Returns the delay of one piece, and the number of its losses.
    ///
    /// The threads of all connections draw in the order in which pieces arrive. A seed could not
    /// repeat this order.
    pub(super) fn of_one(&self) -> (Duration, u32) {
        match self {
            Self::Even(delay) => (*delay, 0),
            Self::Drawn(micros) => (Duration::from_micros(fastrand::u64(micros.clone())), 0),
            Self::Lossy(probability) => {
                let count = (0..LOSSES_MAX)
                    .take_while(|_| fastrand::f64() < *probability)
                    .count();
                let losses = u32::try_from(count).expect("at most `LOSSES_MAX`");
                (RESENT_AFTER * ((1 << losses) - 1), losses)
            }
        }
    }
}

impl Default for Delay {
    fn default() -> Self {
        Self::Even(Duration::ZERO)
    }
}
