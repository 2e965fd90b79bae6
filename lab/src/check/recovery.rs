//! After a fault every lock is granted again.

use std::time::Duration;

use crate::{Event, What};

/// Which locks were granted since a fault ended.
#[derive(Clone, Debug)]
pub struct Recovery {
    since: u64,
    granted: Vec<Option<u64>>,
}

impl Recovery {
    /// So many locks, of which none is known to have been granted.
    #[must_use]
    pub fn of(names: usize, since: u64) -> Self {
        Self { since, granted: vec![None; names] }
    }

    /// Takes in what was told.
    pub fn hear(&mut self, event: &Event) {
        if matches!(event.what, What::Granted { .. }) && event.at > self.since {
            let first = &mut self.granted[usize::from(event.name)];
            *first = Some(first.map_or(event.at, |known| known.min(event.at)));
        }
    }

    /// Those that were not granted yet.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        self.granted.iter().enumerate().filter(|(_, granted)| granted.is_none()).map(|(name, _)| name)
    }

    /// How long it took until the last of them was granted; `None` while one is missing.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        let last = self.granted.iter().copied().collect::<Option<Vec<u64>>>()?.into_iter().max()?;
        Some(Duration::from_nanos(last - self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;

    fn after(since: u64, lines: &[&str]) -> Recovery {
        let mut recovery = Recovery::of(2, since);
        for event in &events(lines) {
            recovery.hear(event);
        }
        recovery
    }

    #[test]
    fn it_takes_until_the_last_is_granted_for_the_first_time() {
        let told = ["12 7 0 granted 5 1 1", "15 7 1 granted 5 1 1", "19 7 0 granted 6 1 1", "11 7 1 asked"];
        assert_eq!(after(10, &told).took(), Some(Duration::from_nanos(5)));
    }

    #[test]
    fn one_that_never_is_is_missed() {
        let recovery = after(10, &["9 7 1 granted 5 1 1", "12 7 0 granted 5 1 1", "14 7 1 asked"]);
        assert_eq!((recovery.took(), recovery.missing().collect::<Vec<_>>()), (None, vec![1]));
    }
}
