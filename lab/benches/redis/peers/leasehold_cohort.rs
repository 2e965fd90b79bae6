//! leasehold with a cohort: a released hold passes to the next task of the process.

use anyhow::Result;
use leasehold::{Guard, Locks};

use super::{Library, Peer, Tasks};

/// The passes that each grant permits.
const PASSES_MAX: u32 = 1_000;

struct Cohort(Locks);

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    Tasks::<Cohort>::connect(url)
}

impl Library for Cohort {
    type Held = Guard;

    async fn open(url: &str) -> Result<Self> {
        Ok(Self(leasehold::open(url).await?))
    }

    async fn acquire(&self, name: &str) -> Result<Guard> {
        Ok(self.0.mutex(name).cohort(PASSES_MAX).acquire().await?)
    }

    async fn release(&self, held: Guard) -> Result<()> {
        Ok(held.release().await?)
    }
}
