//! Whoever waits no longer than he said is told so in time.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{Event, What};

/// Whoever has asked with a patience hears that he has it, or that he has not, within that and `more`.
///
/// # Errors
/// With the first who does not.
pub fn deadlines(events: &[Event], patience: impl Fn(u32) -> Option<Duration>, more: Duration) -> Result<()> {
    let mut asked: HashMap<u32, u64> = HashMap::new();
    for event in super::in_time(events) {
        match event.what {
            What::Asked => drop(asked.insert(event.hand, event.at)),
            What::Granted { .. } | What::GaveUp | What::Refused => {
                let Some(since) = asked.remove(&event.hand) else { continue };
                let (took, within) = (Duration::from_nanos(event.at - since), patience(event.hand));
                let is_late = within.is_some_and(|within| took > within + more);
                ensure!(!is_late, "answered after {took:?}: {event}");
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
        let patience = |hand| (hand == 7).then_some(Duration::from_nanos(10));
        deadlines(&events(lines), patience, Duration::from_nanos(5))
    }

    #[test]
    fn in_time_is_sound() {
        told(&["1 7 0 asked", "16 7 0 gave-up", "17 7 0 asked", "20 7 0 granted 5 1 1"]).unwrap();
        told(&["1 8 0 asked", "99 8 0 granted 5 1 1"]).unwrap();
    }

    #[test]
    fn a_late_answer_is_caught() {
        assert!(told(&["1 7 0 asked", "17 7 0 gave-up"]).is_err());
        assert!(told(&["1 7 0 asked", "17 7 0 refused"]).is_err());
        assert!(told(&["1 7 0 asked", "17 7 0 granted 5 1 1"]).is_err());
    }
}
