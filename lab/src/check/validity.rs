//! Validity never exceeds a lease.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{Event, EventKind};

/// Checks that no guard reports more validity than the store guarantees after a renewal, and that
/// no lost hold is released as if it were held. A guard reports less, because it counts from before
/// the request.
///
/// # Errors
/// The first event that violates this.
///
/// Shows S4, L7.
pub fn validity(events: &[Event], lease: Option<Duration>) -> Result<()> {
    let lease = lease.map_or(u64::MAX, |lease| {
        u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX)
    });
    let mut lost: HashMap<u32, Event> = HashMap::new();

    for event in super::in_time(events) {
        match event.kind {
            EventKind::ValidUntil { until } => {
                ensure!(
                    until - event.at.min(until) <= lease,
                    "valid for longer than the store guarantees: {event}"
                );
            }
            EventKind::Expired | EventKind::Revoked => drop(lost.insert(event.thread, event)),
            EventKind::Requested => drop(lost.remove(&event.thread)),
            EventKind::Released => {
                let before = lost.get(&event.thread);
                ensure!(
                    before.is_none(),
                    "a lost hold was released: {event}, after {}",
                    before.unwrap_or(&event)
                );
            }
            _ => {}
        }
    }
    Ok(())
}
