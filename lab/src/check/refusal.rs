//! A store that must refuse requests grants no lock.

use super::Violation;
use crate::Hold;

/// Checks that no claim is both requested and granted between `since` and `until`.
///
/// Returns the first such hold.
#[must_use]
pub fn refusal(holds: &[Hold], since: u64, until: u64) -> Option<Violation> {
    let granted = holds
        .iter()
        .find(|hold| hold.requested > since && hold.granted < until)?;
    Some(Violation {
        rule: "granted by a store that must refuse",
        first: *granted,
        second: *granted,
    })
}
