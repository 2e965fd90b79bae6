//! leasehold, through its blocking API.

use std::time::Duration;

use anyhow::Result;
use leasehold::blocking::{self, Guard, Lock};

use super::{Baseline, BaselineConfig};

pub(super) struct Leasehold {
    lock: Lock,
    guard: Option<Guard>,
}

impl Leasehold {
    pub(super) fn new(config: &BaselineConfig) -> Result<Self> {
        let lock = blocking::open(&config.server)?
            .mutex(&config.name)
            .lease(config.lease);
        Ok(Self { lock, guard: None })
    }
}

impl Baseline for Leasehold {
    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>> {
        self.guard = self.lock.try_acquire_for(timeout)?.ok();
        Ok(self.guard.as_ref().map(|guard| guard.token().get()))
    }

    fn holds(&mut self) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|guard| guard.check().is_ok())
    }

    /// Releases the guard. Without a guard, this does nothing.
    fn release(&mut self) -> Result<()> {
        Ok(self.guard.take().map_or(Ok(()), Guard::release)?)
    }
}
