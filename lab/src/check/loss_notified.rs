//! Where two may hold at once, they do so for a short time only.

use std::time::Duration;

use super::{Violation, overlaps};
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

/// Checks that of two holds that exclude each other, the first ends or is reported lost within
/// `bound`.
///
/// Returns a pair that overlaps for longer.
///
/// Shows S3, L7.
#[must_use]
pub fn loss_notified(holds: &[Hold], bound: Duration) -> Option<Violation> {
    let late = overlap_times(holds).find(|(_, time)| *time > bound);
    late.map(|(violation, _)| Violation {
        rule: "two held at once for too long",
        ..violation
    })
}
