//! A lock that is taken again by its owner is held once.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};

use crate::{Event, EventKind};

/// What is held, and by how many guards.
#[derive(Clone, Copy)]
struct Held {
    token: u64,
    count: u32,
}

/// Nested acquires have the token of the outermost, each is one guard more, each that is given back one less, and the outermost
/// release comes when there is no other.
///
/// That nobody else is granted before that is what [`exclusion`](super::exclusion) finds, as a hold lasts until then.
///
/// # Errors
/// With the first that is otherwise.
pub fn nesting(events: &[Event]) -> Result<()> {
    let mut holds: HashMap<u32, Held> = HashMap::new();
    // In the order of telling: a loss is told of with the time when the hold was last good.
    for event in events {
        let held = holds.get_mut(&event.thread);
        match event.kind {
            EventKind::Granted { token, .. } => {
                holds.insert(event.thread, Held { token, count: 1 });
            }
            EventKind::Nested { token, count } => {
                let held = held.with_context(|| format!("nested in nothing: {event}"))?;
                ensure!(
                    token == held.token,
                    "another token than {}: {event}",
                    held.token
                );
                ensure!(
                    count == held.count + 1,
                    "not one more than {}: {event}",
                    held.count
                );
                held.count = count;
            }
            EventKind::Unnested { count } => {
                let held =
                    held.with_context(|| format!("given back what was not held: {event}"))?;
                ensure!(
                    count + 1 == held.count && count > 0,
                    "not one less than {}: {event}",
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
        let (first, last) = (
            ["1 7 0 requested", "3 7 0 granted 5 1 1"],
            ["8 7 0 releasing", "9 7 0 released"],
        );
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
