//! A hold that has ended, or is being released, is not reported valid.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use crate::{Event, EventKind};

/// Checks that no validity and no nested acquire of a hold is recorded after its loss or after the
/// beginning of its release.
///
/// # Errors
/// The first event that is recorded after such an end.
///
/// Shows S7, S8.
pub fn ended(events: &[Event]) -> Result<()> {
    let mut ends: HashMap<u32, Event> = HashMap::new();
    // The events are in the order of recording: a loss carries the time at which the hold was last
    // valid.
    for &event in events {
        match event.kind {
            EventKind::Releasing | EventKind::Expired | EventKind::Revoked => {
                ends.insert(event.thread, event);
            }
            EventKind::Granted { .. } => drop(ends.remove(&event.thread)),
            EventKind::ValidUntil { .. } | EventKind::Nested { .. } => {
                let end = ends.get(&event.thread);
                ensure!(
                    end.is_none(),
                    "valid after its end: {event}, after {}",
                    end.unwrap_or(&event)
                );
            }
            _ => {}
        }
    }

    Ok(())
}
