//! A reentrant lock is one hold.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};

use crate::{Event, EventKind};

/// A hold and the number of its guards.
#[derive(Clone, Copy)]
struct NestedHold {
    token: u64,
    count: u32,
}

/// Checks that nested acquires have the token of the outermost, that each acquire adds one guard
/// and each release removes one, and that the outermost release comes last.
///
/// [`exclusion`](super::exclusion) finds a grant to another client before that, because the hold
/// lasts until then.
///
/// # Errors
/// The first event that is otherwise.
///
/// Shows S9.
pub fn nesting(events: &[Event]) -> Result<()> {
    let mut holds: HashMap<u32, NestedHold> = HashMap::new();
    // The events are in the order of recording: a loss carries the time at which the hold was last
    // valid.
    for event in events {
        let held = holds.get_mut(&event.thread);
        match event.kind {
            EventKind::Granted { token, .. } => {
                holds.insert(event.thread, NestedHold { token, count: 1 });
            }
            EventKind::Nested { token, count } => {
                let held = held.with_context(|| format!("nested without a hold: {event}"))?;
                ensure!(
                    token == held.token,
                    "the token differs from {}: {event}",
                    held.token
                );
                ensure!(
                    count == held.count + 1,
                    "the count is not one more than {}: {event}",
                    held.count
                );
                held.count = count;
            }
            EventKind::Unnested { count } => {
                let held = held.with_context(|| format!("unnested without a hold: {event}"))?;
                ensure!(
                    count + 1 == held.count && count > 0,
                    "the count is not one less than {}: {event}",
                    held.count
                );
                held.count = count;
            }
            EventKind::Releasing => {
                let left = held.map_or(1, |held| held.count);
                ensure!(left == 1, "released with {left} guards: {event}");
                holds.remove(&event.thread);
            }
            EventKind::Expired | EventKind::Revoked => drop(holds.remove(&event.thread)),
            _ => {}
        }
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;

    fn recorded(nested: &[&str]) -> Result<()> {
        let first = ["1 7 0 requested", "3 7 0 granted 5 1 1"];
        let last = ["8 7 0 releasing", "9 7 0 released"];
        nesting(&events(&[&first[..], nested, &last[..]].concat()))
    }

    #[test]
    fn balanced_nesting_passes() {
        recorded(&[]).unwrap();
        recorded(&[
            "4 7 0 nested 5 2",
            "4 7 0 nested 5 3",
            "5 7 0 unnested 2",
            "5 7 0 unnested 1",
        ])
        .unwrap();
        let lost = [
            "1 7 0 requested",
            "3 7 0 granted 5 1 1",
            "4 7 0 nested 5 2",
            "5 7 0 unnested 1",
            "3 7 0 revoked",
        ];

        nesting(&events(&lost)).unwrap();
    }

    #[test]
    fn nested_hold_with_own_token_is_detected() {
        assert!(recorded(&["4 7 0 nested 6 2", "5 7 0 unnested 1"]).is_err());
    }

    #[test]
    fn wrong_nesting_count_is_detected() {
        assert!(recorded(&["4 7 0 nested 5 3", "5 7 0 unnested 2", "5 7 0 unnested 1"]).is_err());
        assert!(recorded(&["4 7 0 nested 5 1"]).is_err());
        assert!(recorded(&["4 7 0 nested 5 2", "5 7 0 unnested 0"]).is_err());
        assert!(recorded(&["4 7 0 unnested 0"]).is_err());
    }

    #[test]
    fn outer_release_before_inner_is_detected() {
        assert!(recorded(&["4 7 0 nested 5 2"]).is_err());
    }

    #[test]
    fn nesting_without_hold_is_detected() {
        assert!(nesting(&events(&["1 7 0 requested", "4 7 0 nested 5 2"])).is_err());
        assert!(nesting(&events(&["1 7 0 requested", "4 7 0 unnested 1"])).is_err());
    }
}
