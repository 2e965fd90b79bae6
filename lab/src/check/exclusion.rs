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

#[cfg(test)]
mod tests {
    use super::super::samples::{mutex, reader, writer};
    use super::*;

    #[test]
    fn sequential_holds_pass() {
        assert_eq!(
            exclusion(&[mutex(1, 10, 20), mutex(2, 20, 30), mutex(3, 31, u64::MAX)]),
            None
        );
    }

    #[test]
    fn nanosecond_overlap_is_detected() {
        let broken = exclusion(&[mutex(1, 10, 21), mutex(2, 20, 30)]).unwrap();
        assert_eq!((broken.first.token, broken.second.token), (1, 2));
    }

    #[test]
    fn unreleased_hold_counts_as_held() {
        assert!(exclusion(&[mutex(1, 10, u64::MAX), mutex(2, 20, 30)]).is_some());
    }

    #[test]
    fn readers_share_and_writers_exclude() {
        assert_eq!(
            exclusion(&[reader(1, 10, 30), reader(2, 15, 40), writer(3, 40, 50)]),
            None
        );
        assert!(exclusion(&[reader(1, 10, 30), reader(2, 15, 40), writer(3, 35, 50)]).is_some());
        assert!(exclusion(&[writer(1, 10, 30), reader(2, 15, 40)]).is_some());
    }

    #[test]
    fn overlaps_are_counted_by_weight() {
        let found: Vec<Violation> =
            overlaps(&[reader(1, 10, 90), reader(2, 15, 40), writer(3, 35, 50)]).collect();
        assert_eq!((found.len(), found[0].first.token), (1, 1));
        let slot = |token, granted, until| Hold {
            capacity: 2,
            ..mutex(token, granted, until)
        };
        let found: Vec<Violation> =
            overlaps(&[slot(1, 10, 90), slot(2, 15, 40), slot(3, 35, 50)]).collect();
        assert_eq!((found.len(), found[0].first.token), (1, 2));
    }

    #[test]
    fn ninth_of_eight_slots_is_detected() {
        let slots = |count| {
            (0..count)
                .map(|n| reader(n + 1, 10 + n, 100))
                .collect::<Vec<_>>()
        };
        assert_eq!(exclusion(&slots(8)), None);
        assert!(exclusion(&slots(9)).is_some());
    }
}
