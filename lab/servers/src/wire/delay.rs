//! For how long a piece is on its way.

use std::ops::Range;
use std::time::Duration;

/// When a sender sends again what was lost for the first time, as Linux has it; then after twice as long, and so on.
const RESENT_AFTER: Duration = Duration::from_millis(200);
/// What was lost so often gets through: three seconds late.
const LOSSES_MAX: u32 = 4;

/// What a wire adds to the time of each piece.
#[derive(Clone, Debug)]
pub(super) enum Delay {
    /// As long for each.
    Even(Duration),
    /// Drawn for each, in microseconds.
    Drawn(Range<u64>),
    /// None, unless it is lost, at this probability each time.
    Lossy(f64),
}

impl Delay {
    /// Of one piece, and how often it was lost.
    ///
    /// Pieces are drawn for by the threads of all connections as they come, which no seed would repeat.
    pub(super) fn of_one(&self) -> (Duration, u32) {
        match self {
            Self::Even(delay) => (*delay, 0),
            Self::Drawn(micros) => (Duration::from_micros(fastrand::u64(micros.clone())), 0),
            Self::Lossy(probability) => {
                let losses = (0..LOSSES_MAX)
                    .take_while(|_| fastrand::f64() < *probability)
                    .count();
                let losses = u32::try_from(losses).expect("a few");
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
