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
