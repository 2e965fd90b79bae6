//! After a fault every lock is granted again.

use std::time::Duration;

use crate::{Event, EventKind};

/// The locks that were granted since the end of a fault.
///
/// Shows L1, L8.
#[derive(Clone, Debug)]
pub struct Recovery {
    since: u64,
    granted: Vec<Option<u64>>,
}

impl Recovery {
    /// The state at the end of a fault: none of this number of locks was granted since.
    #[must_use]
    pub fn of(names: usize, since: u64) -> Self {
        Self {
            since,
            granted: vec![None; names],
        }
    }

    /// Records an event. Locks beyond the number are not counted.
    pub fn observe(&mut self, event: &Event) {
        let Some(first) = self.granted.get_mut(usize::from(event.name)) else {
            return;
        };
        if matches!(event.kind, EventKind::Granted { .. }) && event.at > self.since {
            *first = Some(first.map_or(event.at, |known| known.min(event.at)));
        }
    }

    /// The locks that were not granted yet.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        self.granted
            .iter()
            .enumerate()
            .filter(|(_, granted)| granted.is_none())
            .map(|(name, _)| name)
    }

    /// How long it took until the last lock was granted; `None` while one is missing.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let last = self
            .granted
            .iter()
            .copied()
            .collect::<Option<Vec<u64>>>()?
            .into_iter()
            .max()?;
        Some(Duration::from_nanos(last - self.since))
    }
}
