//! Concurrent holds fit the capacity.

use super::Violation;
use crate::Hold;

/// Checks that at no instant the holds of one name take more than the capacity. The holds are
/// sorted by the time of their grant.
///
/// Returns the first hold that does not fit, with one that it overlaps.
///
/// Shows S3, S9, S10, S11.
#[must_use]
pub fn exclusion(holds: &[Hold]) -> Option<Violation> {
    overlaps(holds).next()
}

/// All holds that do not fit. Each comes with the earlier hold whose end makes it fit.
pub fn overlaps(holds: &[Hold]) -> impl Iterator<Item = Violation> {
    let mut present: Vec<Hold> = Vec::new();
    holds.iter().filter_map(move |hold| {
        present.retain(|other| other.until > hold.granted);
        present.sort_unstable_by_key(|other| other.until);

        let mut taken: u64 = present
            .iter()
            .map(|other| u64::from(other.weight))
            .sum::<u64>()
            + u64::from(hold.weight);

        let ends = present.iter().take_while(|other| {
            let did_not_fit = taken > u64::from(hold.capacity);
            taken -= u64::from(other.weight);
            did_not_fit
        });

        let first = ends.last().copied();
        present.push(*hold);
        Some(Violation {
            rule: "more held at once than fits",
            first: first?,
            second: *hold,
        })
    })
}
