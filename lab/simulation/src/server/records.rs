//! The records of completed jobs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Completion, Record};

use super::Nanos;

/// The records of all names, by the server's clock.
#[derive(Debug, Default)]
pub(crate) struct Records(BTreeMap<u8, Record>);

impl Records {
    pub(crate) fn read(&self, name: u8, now: Nanos) -> Record {
        let record = self.0.get(&name).cloned();
        let mut record = record.unwrap_or_else(|| Record::empty(UNIX_EPOCH));
        record.read_at = at(now);
        record
    }

    pub(super) fn add(&mut self, name: u8, now: Nanos, completion: &Completion) {
        let mut record = self.read(name, now);
        record.add(completion);
        self.0.insert(name, record);
    }

    /// Returns whether a job was completed.
    pub(crate) fn is_done(&self, name: u8, job: u32) -> bool {
        let id = job.to_string();
        let record = self.0.get(&name);
        record.is_some_and(|record| record.completions.iter().any(|one| one.id == id))
    }
}

fn at(now: Nanos) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(now)
}
