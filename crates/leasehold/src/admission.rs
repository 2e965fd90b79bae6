//! The one grant rule.

use crate::Share;

/// How many claims at the front of a line are granted: each of which fits, together with everything ahead of it.
///
/// Nobody overtakes: a reader behind a waiting writer waits, and a small claim never slips past a large one.
///
/// ```
/// use leasehold::{admitted, Share};
/// let (reader, writer) = (Share::READER, Share::WRITER);
/// assert_eq!(admitted([reader, reader, writer, reader]), 2);
/// assert_eq!(admitted([writer, reader]), 1);
/// assert_eq!(admitted([reader, Share::MUTEX]), 1);
/// ```
pub fn admitted(line: impl IntoIterator<Item = Share>) -> usize {
    let mut taken = 0u64;
    line.into_iter()
        .take_while(|share| {
            let (weight, capacity) = share.units();
            taken += u64::from(weight);
            taken <= u64::from(capacity)
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(capacity: u32) -> impl Strategy<Value = Vec<Share>> {
        prop::collection::vec(
            (1..=capacity).prop_map(move |take| Share::slots(take, capacity).expect("in range")),
            0..12,
        )
    }

    proptest! {
        #[test]
        fn the_granted_fit_and_the_next_would_not(line in (1u32..8).prop_flat_map(line)) {
            let granted = admitted(line.iter().copied());
            let weight = |n: usize| line[..n].iter().map(|share| share.weight()).sum::<u32>();
            prop_assert!(line.is_empty() || granted >= 1);
            prop_assert!(granted == 0 || weight(granted) <= line[0].capacity());
            prop_assert!(granted == line.len() || weight(granted + 1) > line[0].capacity());
        }

        #[test]
        fn whoever_leaves_only_helps_those_behind(line in (1u32..8).prop_flat_map(line), at in 0usize..12) {
            prop_assume!(at < line.len());
            let granted = admitted(line.iter().copied());
            let without = admitted(line.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, share)| *share));
            prop_assert!(without + usize::from(at < granted) >= granted);
        }
    }
}
