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

#[cfg(test)]
mod tests {
    use super::super::samples::mutex;
    use super::*;

    #[test]
    fn grants_before_and_after_refusal_pass() {
        assert_eq!(refusal(&[mutex(1, 10, 20), mutex(2, 41, 50)], 10, 40), None);

        // Requested before the refusal: its reply was in flight.
        assert_eq!(
            refusal(
                &[Hold {
                    requested: 9,
                    ..mutex(1, 12, 20)
                }],
                10,
                40
            ),
            None
        );
    }

    #[test]
    fn grant_during_refusal_is_detected() {
        assert!(refusal(&[mutex(1, 12, 20)], 10, 40).is_some());
    }
}
