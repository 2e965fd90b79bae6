//! The one grant rule.

use crate::Share;
use crate::store::units;

/// Returns how many claims at the front of a queue are granted.
///
/// A claim is granted if it fits together with all claims ahead of it. No claim overtakes another:
/// a reader behind a waiting writer waits, and a small claim never overtakes a large one.
///
/// ```
/// use leasehold::store::{Share, admitted};
/// let (reader, writer) = (Share::READER, Share::WRITER);
/// assert_eq!(admitted([reader, reader, writer, reader]), 2);
/// assert_eq!(admitted([writer, reader]), 1);
/// assert_eq!(admitted([reader, Share::MUTEX]), 1);
/// ```
pub fn admitted(queue: impl IntoIterator<Item = Share>) -> usize {
    let mut taken = 0u64;
    queue
        .into_iter()
        .take_while(|share| {
            let (weight, capacity) = units(*share);
            taken += u64::from(weight);
            taken <= u64::from(capacity)
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(capacity: u32) -> impl Strategy<Value = Vec<Share>> {
        prop::collection::vec(
            (1..=capacity)
                .prop_map(move |permits| Share::slots(permits, capacity).expect("in range")),
            0..12,
        )
    }

    proptest! {
        #[test]
        fn granted_claims_fit_and_the_next_does_not(queue in (1u32..8).prop_flat_map(queue)) {
            let granted = admitted(queue.iter().copied());
            let weight = |n: usize| queue[..n].iter().map(|share| share.weight()).sum::<u32>();
            prop_assert!(queue.is_empty() || granted >= 1);
            prop_assert!(granted == 0 || weight(granted) <= queue[0].capacity());
            prop_assert!(granted == queue.len() || weight(granted + 1) > queue[0].capacity());
        }

        #[test]
        fn departure_never_revokes_grants_behind_it(
            queue in (1u32..8).prop_flat_map(queue),
            at in 0usize..12,
        ) {
            prop_assume!(at < queue.len());
            let granted = admitted(queue.iter().copied());
            let mut remaining = queue.clone();
            remaining.remove(at);
            let without = admitted(remaining);
            prop_assert!(without + usize::from(at < granted) >= granted);
        }
    }
}
