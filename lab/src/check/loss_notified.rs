//! Where two may hold at once, they do so for a short time only.

use std::time::Duration;

use super::{Span, Violation, overlaps};
use crate::Hold;

/// For each pair of holds that exclude each other: how long the first continued after the grant of
/// the second.
pub fn overlap_times(holds: &[Hold]) -> impl Iterator<Item = (Violation, Duration)> {
    overlaps(holds).map(|violation| {
        (
            violation,
            Duration::from_nanos(violation.first.until - violation.second.granted),
        )
    })
}

/// Checks that of two holds that exclude each other, the second is granted within `disturbed`, and
/// the first ends or is reported lost within `bound`.
///
/// Returns a pair that overlaps for longer, or without a fault.
///
/// Shows S3, L7.
#[must_use]
pub fn loss_notified(holds: &[Hold], disturbed: &[Span], bound: Duration) -> Option<Violation> {
    overlap_times(holds).find_map(|(violation, time)| {
        let at = violation.second.granted;
        let is_disturbed = disturbed
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&at));
        let rule = if !is_disturbed {
            "two held at once without a fault"
        } else if time > bound {
            "two held at once for too long"
        } else {
            return None;
        };
        Some(Violation { rule, ..violation })
    })
}
