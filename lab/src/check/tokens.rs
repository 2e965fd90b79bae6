//! A later grant has a larger token.

use std::collections::HashMap;

use super::Violation;
use crate::Hold;

/// Checks that the tokens of one name are unique and rise from each hold to any hold after it in
/// real time. A hold is after another if it was requested when the other was already granted, or
/// granted when the other, which excludes it, had already ended.
///
/// Returns two holds whose tokens are equal or in the wrong order.
///
/// Shows S2, S11.
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

/// Checks what holds even if the store loses its data. Tokens are unique, and rise from each hold
/// to any that was requested when the earlier one was already granted. They may fall by less than
/// `slack` where clients derive them from their clocks. A grant that was in flight when the data
/// was lost may arrive after a later one.
///
/// Shows S1, S2.
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

/// Checks two holds that are `related`, where the `end` of the earlier is before the `begin` of the
/// later. The later one has the larger token, or one that is smaller by less than `slack`.
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
    // The largest token of all ended holds, for each weight: only the weights decide whether two
    // holds exclude each other.
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
