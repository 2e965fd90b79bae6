//! The five steps of Redlock, as its page describes them, without fencing.
//!
//! 1. Read the clock.
//! 2. Set the key on each master in turn.
//! 3. The lock is granted if a majority has set the key in less time than the lease.
//! 4. The validity is the rest of the lease.
//! 5. If the lock was not granted, delete the key on all masters.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use lab_servers::Reply;

use super::recipe::{COMPARE_AND_DELETE, Server, value};
use super::{Baseline, BaselineConfig};

/// The allowed clock drift, in addition to a hundredth of the lease.
const DRIFT: Duration = Duration::from_millis(2);
/// The upper limit of the random pause after a try.
const PAUSE_MILLIS: u64 = 100;

pub(super) struct Redlock {
    masters: Vec<Server>,
    key: String,
    value: String,
    lease: Duration,
    valid_until: Option<Instant>,
    random: crate::Random,
}

impl Redlock {
    pub(super) fn new(config: &BaselineConfig) -> Self {
        Self {
            masters: config.server.split(',').map(Server::new).collect(),
            key: config.name.clone(),
            value: value(),
            lease: config.lease,
            valid_until: None,
            random: crate::Random::seeded(u64::from(config.worker)),
        }
    }

    fn try_once(&mut self) -> bool {
        let begun = Instant::now();
        let votes = self.set_on_first(self.masters.len());
        let valid = self.lease.saturating_sub(self.lease / 100 + DRIFT);
        self.valid_until = Some(begun + valid);

        if votes > self.masters.len() / 2 && begun.elapsed() < valid {
            return true;
        }

        self.delete_everywhere();
        self.valid_until = None;
        false
    }

    /// Sets the key on the first `count` masters, and returns how many have set it.
    ///
    /// A master that does not reply counts as one that has not.
    fn set_on_first(&mut self, count: usize) -> usize {
        let millis = self.lease.as_millis().to_string();
        let set = ["SET", &self.key, &self.value, "NX", "PX", &millis];
        let masters = self.masters.iter_mut().take(count);
        masters
            .filter_map(|master| master.send(&set).ok())
            .filter(|reply| *reply == Reply::from("OK"))
            .count()
    }

    fn delete_everywhere(&mut self) {
        let delete = ["EVAL", COMPARE_AND_DELETE, "1", &self.key, &self.value];
        for master in &mut self.masters {
            // On a master that does not reply, the key expires with the lease.
            let _ = master.send(&delete);
        }
    }
}

impl Baseline for Redlock {
    fn begin(&mut self) -> Result<bool> {
        self.set_on_first(1);
        Ok(true)
    }

    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>> {
        let begun = Instant::now();
        while !self.try_once() {
            if begun.elapsed() >= timeout {
                return Ok(None);
            }
            sleep(Duration::from_millis(self.random.below(PAUSE_MILLIS)));
        }
        Ok(Some(0))
    }

    /// Returns whether the validity of step 4 has not passed.
    fn holds(&mut self) -> bool {
        self.valid_until.is_some_and(|until| Instant::now() < until)
    }

    fn release(&mut self) -> Result<()> {
        self.delete_everywhere();
        Ok(())
    }
}
