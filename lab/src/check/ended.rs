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

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;

    fn recorded(last: &[&str]) -> Result<()> {
        let first = [
            "1 7 0 requested",
            "3 7 0 granted 5 1 1",
            "4 7 0 valid-until 99",
            "4 7 0 nested 5 2",
            "5 7 0 unnested 1",
        ];
        ended(&events(&[&first[..], last].concat()))
    }

    #[test]
    fn validity_until_release_passes() {
        recorded(&[
            "6 7 0 releasing",
            "7 7 0 released",
            "8 7 0 requested",
            "9 7 0 granted 6 1 1",
            "9 7 0 valid-until 99",
        ])
        .unwrap();
        // Another thread has another hold.
        recorded(&["6 7 0 releasing", "7 8 0 valid-until 99"]).unwrap();
    }

    #[test]
    fn hold_valid_during_release_is_detected() {
        assert!(recorded(&["6 7 0 releasing", "7 7 0 valid-until 99", "8 7 0 released"]).is_err());
        assert!(recorded(&["6 7 0 releasing", "7 7 0 nested 5 2", "8 7 0 released"]).is_err());
    }

    #[test]
    fn revived_hold_is_detected() {
        assert!(recorded(&["6 7 0 expired", "7 7 0 valid-until 99"]).is_err());
        assert!(recorded(&["3 7 0 revoked", "7 7 0 valid-until 99"]).is_err());
    }
}
