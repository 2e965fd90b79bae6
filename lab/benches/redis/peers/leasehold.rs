//! leasehold: the async API on a runtime with one thread, which drives the caller link.

use anyhow::Result;
use leasehold::{Guard, Locks};

use super::{Library, Peer, Tasks};

struct Leasehold(Locks);

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    Tasks::<Leasehold>::connect(url)
}

impl Library for Leasehold {
    type Held = Guard;

    async fn open(url: &str) -> Result<Self> {
        Ok(Self(leasehold::open(url).await?))
    }

    async fn acquire(&self, name: &str) -> Result<Guard> {
        Ok(self.0.mutex(name).acquire().await?)
    }

    async fn release(&self, held: Guard) -> Result<()> {
        Ok(held.release().await?)
    }
}
