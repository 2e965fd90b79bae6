//! Claims are granted in order of arrival.

use super::Violation;
use crate::Hold;

/// Checks that a claim which arrived after another was observed waiting is not granted before it,
/// if the two exclude each other.
///
/// Grants are ordered by their tokens. The check covers only the waiters that the observer saw.
///
/// Returns the waiter and the claim that overtook it.
///
/// Shows L3.
#[must_use]
pub fn order(holds: &[Hold]) -> Option<Violation> {
    let seen = holds
        .iter()
        .filter_map(|hold| hold.observed.map(|seen| (seen, hold)));

    for (seen, waiter) in seen {
        let overtook = |other: &&Hold| {
            other.requested > seen && other.token < waiter.token && other.excludes(waiter)
        };
        if let Some(second) = holds.iter().find(overtook) {
            return Some(Violation {
                rule: "overtaken by a later claim",
                first: *waiter,
                second: *second,
            });
        }
    }

    None
}
