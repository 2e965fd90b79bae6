//! Where two may hold at once, it is not for long.

use std::time::Duration;

use super::{Fault, overlaps};
use crate::Hold;

/// For how long somebody went on holding after another was granted who excludes him, for each such pair that was found.
pub fn overlap_times(holds: &[Hold]) -> impl Iterator<Item = (Fault, Duration)> {
    overlaps(holds).map(|fault| (fault, Duration::from_nanos(fault.first.until - fault.second.granted)))
}

/// Of two who hold at once the first hears of it, or is done, within `bound`.
///
/// Finds a pair that held for longer.
#[must_use]
pub fn heard(holds: &[Hold], bound: Duration) -> Option<Fault> {
    let late = overlap_times(holds).find(|(_, time)| *time > bound);
    late.map(|(fault, _)| Fault { rule: "two held at once for too long", ..fault })
}

#[cfg(test)]
mod tests {
    use super::super::samples::mutex;
    use super::*;

    #[test]
    fn a_short_overlap_is_sound_here() {
        assert_eq!(heard(&[mutex(1, 10, 25), mutex(2, 20, 30)], Duration::from_nanos(5)), None);
    }

    #[test]
    fn a_long_one_is_caught() {
        assert!(heard(&[mutex(1, 10, 26), mutex(2, 20, 30)], Duration::from_nanos(5)).is_some());
        assert!(heard(&[mutex(1, 10, u64::MAX), mutex(2, 20, 30)], Duration::from_nanos(5)).is_some());
    }
}
