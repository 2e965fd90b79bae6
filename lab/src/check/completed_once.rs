//! A job is completed once, by a claim that held.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use crate::history::in_time;
use crate::{Event, EventKind};

/// Checks that no job starts after its completion, and that only the claim that started it, and that
/// still held, completed it.
///
/// A completion whose reply did not arrive has no event.
///
/// # Errors
/// The first event that contradicts that.
pub fn completed_once(events: &[Event]) -> Result<()> {
    let mut started: HashMap<u32, u64> = HashMap::new();
    let mut completed: HashMap<(u16, u64), Event> = HashMap::new();
    for event in in_time(events) {
        match event.kind {
            EventKind::Started { id } => {
                let earlier = completed.get(&(event.name, id));
                ensure!(
                    earlier.is_none(),
                    "started after its completion: {event}, after {}",
                    earlier.unwrap_or(&event)
                );
                started.insert(event.thread, id);
            }
            EventKind::Completed { id } => {
                let holds = started.remove(&event.thread) == Some(id);
                ensure!(holds, "completed without a hold: {event}");
                let earlier = completed.insert((event.name, id), event);
                ensure!(earlier.is_none(), "completed twice: {event}");
            }
            EventKind::Granted { .. }
            | EventKind::Expired
            | EventKind::Revoked
            | EventKind::Killed => drop(started.remove(&event.thread)),
            _ => {}
        }
    }
    Ok(())
}
