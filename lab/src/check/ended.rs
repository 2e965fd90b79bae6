//! What has ended, or is being ended, is good for nothing any more.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use crate::{Event, What};

/// From the moment a hand begins to release, or hears of a loss, nothing of that hold is told to be good: no trust, and no nested
/// acquire.
///
/// # Errors
/// With the first that is.
pub fn ended(events: &[Event]) -> Result<()> {
    let mut ends: HashMap<u32, Event> = HashMap::new();
    // In the order of telling: a loss is told of with the time when the hold was last good.
    for &event in events {
        match event.what {
            What::Releasing | What::RanOut | What::Gone => drop(ends.insert(event.hand, event)),
            What::Granted { .. } => drop(ends.remove(&event.hand)),
            What::Trusted { .. } | What::Nested { .. } => {
                let end = ends.get(&event.hand);
                ensure!(end.is_none(), "good although it has ended: {event}, after {}", end.unwrap_or(&event));
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

    fn told(last: &[&str]) -> Result<()> {
        let first = ["1 7 0 asked", "3 7 0 granted 5 1 1", "4 7 0 trusted 99", "4 7 0 nested 5 2", "5 7 0 unnested 1"];
        ended(&events(&[&first[..], last].concat()))
    }

    #[test]
    fn good_until_the_end_is_sound() {
        told(&["6 7 0 releasing", "7 7 0 released", "8 7 0 asked", "9 7 0 granted 6 1 1", "9 7 0 trusted 99"]).unwrap();
        // Another hand is another hold.
        told(&["6 7 0 releasing", "7 8 0 trusted 99"]).unwrap();
    }

    #[test]
    fn a_hold_that_is_good_while_it_is_released_is_caught() {
        assert!(told(&["6 7 0 releasing", "7 7 0 trusted 99", "8 7 0 released"]).is_err());
        assert!(told(&["6 7 0 releasing", "7 7 0 nested 5 2", "8 7 0 released"]).is_err());
    }

    #[test]
    fn a_lost_hold_that_is_good_again_is_caught() {
        assert!(told(&["6 7 0 ran-out", "7 7 0 trusted 99"]).is_err());
        assert!(told(&["3 7 0 gone", "7 7 0 trusted 99"]).is_err());
    }
}
