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

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;

    fn recorded(lines: &[&str]) -> Result<()> {
        validity(&events(lines), Some(Duration::from_nanos(100)))
    }

    #[test]
    fn validity_of_one_lease_passes() {
        recorded(&[
            "1 7 0 requested",
            "3 7 0 granted 5 1 1",
            "4 7 0 valid-until 104",
            "5 7 0 releasing",
            "6 7 0 released",
        ])
        .unwrap();

        recorded(&[
            "1 7 0 requested",
            "3 7 0 granted 5 1 1",
            "4 7 0 expired",
            "6 7 0 release-unknown",
        ])
        .unwrap();
    }

    #[test]
    fn validity_beyond_the_lease_is_detected() {
        assert!(
            recorded(&[
                "1 7 0 requested",
                "3 7 0 granted 5 1 1",
                "4 7 0 valid-until 105"
            ])
            .is_err()
        );
    }

    #[test]
    fn release_of_a_lost_hold_is_detected() {
        assert!(
            recorded(&[
                "1 7 0 requested",
                "3 7 0 granted 5 1 1",
                "4 7 0 revoked",
                "6 7 0 released"
            ])
            .is_err()
        );
    }
}
