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

#[cfg(test)]
mod tests {
    use super::super::samples::{mutex, reader, writer};
    use super::*;

    fn waited(hold: Hold, requested: u64, seen: u64) -> Hold {
        Hold {
            requested,
            observed: Some(seen),
            ..hold
        }
    }

    #[test]
    fn fifo_order_passes() {
        assert_eq!(
            order(&[
                mutex(1, 10, 20),
                waited(mutex(2, 20, 30), 11, 12),
                waited(mutex(3, 31, 40), 13, 14)
            ]),
            None
        );
    }

    #[test]
    fn overtaking_is_detected() {
        let broken = order(&[
            waited(mutex(2, 20, 30), 13, 14),
            waited(mutex(3, 31, 40), 11, 12),
        ])
        .unwrap();
        assert_eq!((broken.first.token, broken.second.token), (3, 2));
    }

    #[test]
    fn reader_overtaking_a_writer_is_detected() {
        let late = Hold {
            requested: 14,
            ..reader(2, 15, 18)
        };
        assert!(order(&[reader(1, 10, 20), late, waited(writer(3, 21, 30), 12, 13)]).is_some());
        assert_eq!(order(&[late, waited(reader(3, 21, 30), 12, 13)]), None);
    }
}
