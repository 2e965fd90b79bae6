//! rslock: no token, no queue, no renewal. It polls every 200 ms.

use std::time::Duration;

use ::rslock::{LockGuard, LockManager};
use anyhow::Result;

use super::{Library, Peer, Tasks};

const LEASE: Duration = Duration::from_secs(30);

struct Rslock(LockManager);

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    Tasks::<Rslock>::connect(url)
}

impl Library for Rslock {
    type Held = LockGuard;

    async fn open(url: &str) -> Result<Self> {
        Ok(Self(LockManager::new(url.split(',').collect())))
    }

    async fn acquire(&self, name: &str) -> Result<LockGuard> {
        Ok(self.0.acquire(name.as_bytes(), LEASE).await?)
    }

    async fn release(&self, held: LockGuard) -> Result<()> {
        held.release().await;
        Ok(())
    }
}
