//! Where two may hold at once, it is not for long.

use std::time::Duration;

use super::{Violation, overlaps};
use crate::Hold;

/// For how long somebody went on holding after another was granted who excludes him, for each such pair that was found.
pub fn overlap_times(holds: &[Hold]) -> impl Iterator<Item = (Violation, Duration)> {
    overlaps(holds).map(|violation| {
        (
            violation,
            Duration::from_nanos(violation.first.until - violation.second.granted),
        )
    })
}

/// Of two who hold at once the first hears of it, or is done, within `bound`.
///
/// Finds a pair that held for longer.
#[must_use]
pub fn loss_notified(holds: &[Hold], bound: Duration) -> Option<Violation> {
    let late = overlap_times(holds).find(|(_, time)| *time > bound);
    late.map(|(violation, _)| Violation {
        rule: "two held at once for too long",
        ..violation
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::mutex;
    use super::*;

    #[test]
    fn overlap_within_notice_time_passes() {
        assert_eq!(
            loss_notified(
                &[mutex(1, 10, 25), mutex(2, 20, 30)],
                Duration::from_nanos(5)
            ),
            None
        );
    }

    #[test]
    fn overlap_beyond_notice_time_is_detected() {
        assert!(
            loss_notified(
                &[mutex(1, 10, 26), mutex(2, 20, 30)],
                Duration::from_nanos(5)
            )
            .is_some()
        );
        assert!(
            loss_notified(
                &[mutex(1, 10, u64::MAX), mutex(2, 20, 30)],
                Duration::from_nanos(5)
            )
            .is_some()
        );
    }
}
