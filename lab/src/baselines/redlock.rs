//! The five steps of Redlock, as its page has them, and no fencing: the time; the key on all masters in turn; a majority in less than
//! the lease; what is left of the lease; and, if it was not granted, the key taken back everywhere.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use lab_servers::Reply;

use super::bare::{COMPARE_AND_DELETE, Server, value};
use super::{Baseline, BaselineConfig};

/// By how much clocks may differ, beside a hundredth of the lease.
const DRIFT: Duration = Duration::from_millis(2);
/// The random pause after a try is below this.
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
            lease: config.lease(),
            valid_until: None,
            random: crate::Random::seeded(u64::from(config.worker)),
        }
    }

    fn try_once(&mut self) -> bool {
        let begun = Instant::now();
        let votes = self.request_first(self.masters.len());
        let valid = self.lease.saturating_sub(self.lease / 100 + DRIFT);
        self.valid_until = Some(begun + valid);
        if votes > self.masters.len() / 2 && begun.elapsed() < valid {
            return true;
        }
        self.take_back();
        self.valid_until = None;
        false
    }

    /// How many of the first `count` masters grant it. One that cannot be asked does not.
    fn request_first(&mut self, count: usize) -> usize {
        let millis = self.lease.as_millis().to_string();
        let set = ["SET", &self.key, &self.value, "NX", "PX", &millis];
        let masters = self.masters.iter_mut().take(count);
        masters
            .filter_map(|master| master.send(&set).ok())
            .filter(|reply| *reply == Reply::from("OK"))
            .count()
    }

    fn take_back(&mut self) {
        for master in &mut self.masters {
            // One that cannot be asked frees it when the lease ends.
            let _ = master.script_is_one(COMPARE_AND_DELETE, &self.key, &[&self.value]);
        }
    }
}

impl Baseline for Redlock {
    fn begin(&mut self) -> Result<()> {
        self.request_first(1);
        Ok(())
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

    /// Its fourth step tells how long the lock may be used.
    fn holds(&mut self) -> bool {
        self.valid_until.is_some_and(|until| Instant::now() < until)
    }

    fn release(&mut self) -> Result<()> {
        self.take_back();
        Ok(())
    }
}
