//! The later grant has the larger token.

use std::collections::HashMap;

use super::Violation;
use crate::Hold;

/// The tokens of one name are unique, and rise from each hold to any that came after it in real time: asked when the
/// earlier one was already granted, or granted when an earlier one that excludes it was already over.
///
/// Finds two holds whose tokens are equal or in the wrong order.
#[must_use]
pub fn tokens(holds: &[Hold]) -> Option<Violation> {
    tokens_over_loss(holds, 0).or_else(|| {
        rising(
            holds,
            0,
            |earlier| earlier.until,
            |later| later.granted,
            Hold::excludes,
        )
    })
}

/// What is true of them even if the store forgets: they are unique, and rise from each hold to any that was asked for when
/// the earlier one was already granted; or fall by less than `slack`, where they are times as clients guess them. A grant that was
/// on its way when the store forgot may arrive after a later one.
#[must_use]
pub fn tokens_over_loss(holds: &[Hold], slack: u64) -> Option<Violation> {
    unique(holds).or_else(|| {
        rising(
            holds,
            slack,
            |earlier| earlier.granted,
            |later| later.requested,
            |_, _| true,
        )
    })
}

fn unique(holds: &[Hold]) -> Option<Violation> {
    let mut known: HashMap<u64, Hold> = HashMap::new();
    for hold in holds {
        if let Some(first) = known.insert(hold.token, *hold) {
            return Some(Violation {
                rule: "one token for two grants",
                first,
                second: *hold,
            });
        }
    }
    None
}

/// Of any two holds that are `related` and of which one's `end` is before the other's `begin`, the later has the larger
/// token, or one that is smaller by less than `slack`.
fn rising(
    holds: &[Hold],
    slack: u64,
    end: impl Fn(&Hold) -> u64,
    begin: impl Fn(&Hold) -> u64,
    related: impl Fn(&Hold, &Hold) -> bool,
) -> Option<Violation> {
    let mut by_begin: Vec<&Hold> = holds.iter().collect();
    let mut by_end = by_begin.clone();
    by_begin.sort_unstable_by_key(|hold| begin(hold));
    by_end.sort_unstable_by_key(|hold| end(hold));
    let mut ended = by_end.into_iter().peekable();
    // The largest token among all that have ended, for each weight: who excludes whom depends on the weights only.
    let mut largest: HashMap<u32, &Hold> = HashMap::new();
    for later in by_begin {
        while let Some(earlier) = ended.next_if(|hold| end(hold) < begin(later)) {
            let known = largest.entry(earlier.weight).or_insert(earlier);
            if earlier.token > known.token {
                *known = earlier;
            }
        }
        if let Some(first) = largest
            .values()
            .find(|first| related(first, later) && first.token >= later.token.saturating_add(slack))
        {
            return Some(Violation {
                rule: "a later grant without a larger token",
                first: **first,
                second: *later,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::samples::{mutex, reader, writer};
    use super::*;

    #[test]
    fn increasing_tokens_pass() {
        assert_eq!(
            tokens(&[mutex(1, 10, 20), mutex(2, 20, 30), mutex(9, 31, u64::MAX)]),
            None
        );
    }

    #[test]
    fn duplicate_token_is_detected() {
        assert!(tokens(&[mutex(1, 10, 20), mutex(2, 20, 30), mutex(1, 31, 40)]).is_some());
        assert!(tokens(&[reader(1, 10, 20), reader(1, 10, 20)]).is_some());
    }

    #[test]
    fn decreasing_token_is_detected() {
        let broken = tokens(&[mutex(1, 10, 20), mutex(3, 21, 30), mutex(2, 31, 40)]).unwrap();
        assert_eq!((broken.first.token, broken.second.token), (3, 2));
    }

    #[test]
    fn decreasing_token_of_early_waiter_passes_only_after_data_loss() {
        let waited = crate::Hold {
            requested: 1,
            ..mutex(2, 31, 40)
        };
        assert!(tokens(&[mutex(3, 21, 30), waited]).is_some());
        assert_eq!(tokens_over_loss(&[mutex(3, 21, 30), waited], 0), None);
        assert!(tokens_over_loss(&[mutex(3, 21, 30), mutex(2, 31, 40)], 0).is_some());
        assert_eq!(
            tokens_over_loss(&[mutex(3, 21, 30), mutex(2, 31, 40)], 2),
            None
        );
        assert!(tokens_over_loss(&[mutex(4, 21, 30), mutex(2, 31, 40)], 2).is_some());
    }

    #[test]
    fn tokens_of_concurrent_readers_may_have_any_order() {
        let (one, two) = (
            reader(3, 10, 20),
            crate::Hold {
                requested: 9,
                ..reader(2, 11, 30)
            },
        );
        assert_eq!(tokens(&[one, two, writer(4, 31, 40)]), None);
        assert!(
            tokens(&[
                one,
                two,
                crate::Hold {
                    requested: 1,
                    ..writer(1, 31, 40)
                }
            ])
            .is_some()
        );
    }
}
