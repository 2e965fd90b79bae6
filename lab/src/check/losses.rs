//! A fault that lasts for a lease costs the cut-off holder its hold, and every fault meets a hold.

use std::collections::BTreeSet;

use crate::check::Span;
use crate::{Event, EventKind, Hold};

/// Whether a hold was in progress at some moment of the span.
#[must_use]
pub fn meets_hold(holds: &[Hold], (since, until): Span) -> bool {
    holds
        .iter()
        .any(|hold| hold.granted <= until && hold.until >= since)
}

/// The number of holds that were lost during the span.
///
/// The event of a loss has the time at which the hold was last known to be valid. For a process
/// that was stopped, this time is at most `before` nanoseconds before the span.
#[must_use]
pub fn losses_in(events: &[Event], (since, until): Span, before: u64) -> usize {
    let begin = since.saturating_sub(before);
    let is_loss = |event: &&Event| {
        let is_lost = matches!(event.kind, EventKind::Expired | EventKind::Revoked);
        is_lost && (begin..=until).contains(&event.at)
    };

    events.iter().filter(is_loss).count()
}

/// The names and tokens of the holds that were passed on. The store's tokens are times, so only a
/// pass has the next token.
#[must_use]
pub fn passed_on(all: &[Hold]) -> BTreeSet<(u16, u64)> {
    let tokens: BTreeSet<_> = all.iter().map(|hold| (hold.name, hold.token)).collect();
    let follows = |&(name, token): &(u16, u64)| tokens.contains(&(name, token - 1));

    tokens.iter().copied().filter(follows).collect()
}
