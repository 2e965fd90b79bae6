//! The cohorts of an open store.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Cohort, CohortState};
use crate::Name;
use crate::engine::AcquireOptions;

/// The cohorts that acquires or holds use at present.
#[derive(Debug, Default)]
pub(crate) struct Cohorts {
    pub(super) by_key: Mutex<HashMap<Key, Weak<Cohort>>>,
}

/// The options that all acquires of a cohort share, because they are those of its claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    name: Name,
    lease: Duration,
    label: String,
    passes_max: u32,
}

impl Cohorts {
    /// Returns the cohort of an acquire with these options.
    pub(super) fn get(self: &Arc<Self>, options: &AcquireOptions) -> Arc<Cohort> {
        let key = Key {
            name: options.name.clone(),
            lease: options.lease,
            label: options.label.clone(),
            passes_max: options.reserved,
        };
        let mut by_key = self.by_key.lock();
        if let Some(cohort) = by_key.get(&key).and_then(Weak::upgrade) {
            return cohort;
        }

        let cohort = Arc::new(Cohort {
            key: key.clone(),
            registry: Arc::downgrade(self),
            state: Mutex::new(CohortState::default()),
            acquisition_due: Notify::new(),
            unused: Notify::new(),
        });
        by_key.insert(key, Arc::downgrade(&cohort));
        cohort
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.lock().len()
    }

    /// Returns how many acquires wait for a name.
    pub(crate) fn waiters(&self, name: &str) -> usize {
        let by_key = self.by_key.lock();
        let of_name = by_key.iter().filter(|(key, _)| key.name.as_str() == name);
        let cohorts: Vec<_> = of_name.filter_map(|(_, cohort)| cohort.upgrade()).collect();
        drop(by_key);

        let waiters = cohorts
            .iter()
            .map(|cohort| cohort.state.lock().waiters.len());
        waiters.sum()
    }
}

/// A name that is no longer used occupies no memory.
impl Drop for Cohort {
    fn drop(&mut self) {
        let Some(registry) = self.registry.upgrade() else {
            return;
        };

        let mut by_key = registry.by_key.lock();
        let is_unused = by_key
            .get(&self.key)
            .is_some_and(|cohort| cohort.strong_count() == 0);
        if is_unused {
            by_key.remove(&self.key);
        }
    }
}
