//! leasehold, through its blocking face.

use std::time::Duration;

use anyhow::Result;
use leasehold::blocking::{self, Guard, Lock};

use super::{Specimen, Terms};

/// So long it waits where nobody says how long.
const LONG: Duration = Duration::from_secs(60);

pub(super) struct Ours {
    lock: Lock,
    guard: Option<Guard>,
}

impl Ours {
    pub(super) fn new(terms: &Terms) -> Result<Self> {
        let lock = blocking::open(&terms.place)?.mutex(&terms.name).lease(terms.lease());
        Ok(Self { lock, guard: None })
    }
}

impl Specimen for Ours {
    fn begin(&mut self) -> Result<()> {
        self.acquire(LONG).map(drop)
    }

    fn acquire(&mut self, patience: Duration) -> Result<Option<u64>> {
        self.guard = self.lock.try_acquire_for(patience)?;
        Ok(self.guard.as_ref().map(|guard| guard.token().get()))
    }

    fn holds(&mut self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.check().is_ok())
    }

    /// There is nothing to release without a guard.
    fn release(&mut self) -> Result<()> {
        Ok(self.guard.take().map_or(Ok(()), Guard::release)?)
    }
}
