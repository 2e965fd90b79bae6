//! Nobody counts on more than a lease.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{Event, What};

/// No guard ever says that it is good for longer than a lease from then on (it counts from before a question, so it is
/// less), and none that was lost is released as if it had been held.
///
/// # Errors
/// With the first that does.
pub fn trust(events: &[Event], lease: Option<Duration>) -> Result<()> {
    let lease = lease.map_or(u64::MAX, |lease| u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX));
    let mut lost: HashMap<u32, Event> = HashMap::new();
    for event in super::in_time(events) {
        match event.what {
            What::Trusted { until } => {
                ensure!(until - event.at.min(until) <= lease, "trusted for longer than a lease: {event}");
            }
            What::RanOut | What::Gone => drop(lost.insert(event.hand, event)),
            What::Asked => drop(lost.remove(&event.hand)),
            What::Released => {
                let before = lost.get(&event.hand);
                ensure!(before.is_none(), "released what was lost: {event}, after {}", before.unwrap_or(&event));
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

    fn told(lines: &[&str]) -> Result<()> {
        trust(&events(lines), Some(Duration::from_nanos(100)))
    }

    #[test]
    fn a_lease_is_sound() {
        told(&["1 7 0 asked", "3 7 0 granted 5 1 1", "4 7 0 trusted 104", "5 7 0 releasing", "6 7 0 released"])
            .unwrap();
        told(&["1 7 0 asked", "3 7 0 granted 5 1 1", "4 7 0 ran-out", "6 7 0 unsure"]).unwrap();
    }

    #[test]
    fn more_than_a_lease_is_caught() {
        assert!(told(&["1 7 0 asked", "3 7 0 granted 5 1 1", "4 7 0 trusted 105"]).is_err());
    }

    #[test]
    fn releasing_what_was_lost_is_caught() {
        assert!(told(&["1 7 0 asked", "3 7 0 granted 5 1 1", "4 7 0 gone", "6 7 0 released"]).is_err());
    }
}
