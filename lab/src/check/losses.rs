//! A fault that lasts for a lease costs the cut-off holder its hold, and every fault meets a hold.

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

#[cfg(test)]
mod tests {
    use super::super::samples::{events, mutex};
    use super::*;

    #[test]
    fn fault_meets_hold_that_it_touches() {
        let holds = [mutex(1, 10, 20), mutex(2, 40, 50)];

        assert!(meets_hold(&holds, (20, 30)) && meets_hold(&holds, (30, 40)));
        assert!(meets_hold(&holds, (12, 12)) && meets_hold(&holds, (5, 90)));
        assert!(!meets_hold(&holds, (21, 39)) && !meets_hold(&holds, (51, 90)));
    }

    #[test]
    fn loss_counts_only_within_the_fault() {
        let lost = |line: &str| losses_in(&events(&[line]), (10, 20), 3);

        assert_eq!((lost("7 1 0 expired"), lost("20 1 0 revoked")), (1, 1));
        assert_eq!((lost("6 1 0 expired"), lost("21 1 0 revoked")), (0, 0));
        assert_eq!(lost("15 1 0 releasing"), 0);
    }
}
