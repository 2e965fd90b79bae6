//! The lock libraries in Rust.

use std::time::Duration;

use ::rslock::{LockGuard, LockManager};
use anyhow::Result;
use leasehold::{Guard, Locks};

/// A lock library.
pub(super) trait Library: Sized + Send + Sync + 'static {
    /// The value that a holder of a lock has.
    type Held: Send;

    /// Waits until the client holds the lock.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Held>> + Send;
    /// Releases the lock.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// leasehold, on any store.
pub(super) struct Leasehold {
    locks: Locks,
    /// The passes of a hold that a grant permits, with a cohort.
    passes_max: Option<u32>,
}

impl Leasehold {
    pub(super) async fn open(url: &str, passes_max: Option<u32>) -> Result<Self> {
        let locks = leasehold::open(url).await?;
        Ok(Self { locks, passes_max })
    }
}

impl Library for Leasehold {
    type Held = Guard;

    async fn acquire(&self, name: &str) -> Result<Guard> {
        let lock = self.locks.mutex(name);
        let lock = match self.passes_max {
            Some(passes) => lock.cohort(passes),
            None => lock,
        };
        Ok(lock.acquire().await?)
    }

    async fn release(&self, held: Guard) -> Result<()> {
        Ok(held.release().await?)
    }
}

/// rslock on one server or several: no token, no queue, no renewal. It polls every 200 ms.
pub(super) struct Rslock(LockManager);

impl Rslock {
    pub(super) fn new(url: &str) -> Self {
        match url.strip_prefix("redlock://") {
            Some(masters) => {
                let urls = masters.split(',').map(|master| format!("redis://{master}"));
                Self(LockManager::new(urls.collect()))
            }
            None => Self(LockManager::new(vec![url])),
        }
    }
}

impl Library for Rslock {
    type Held = LockGuard;

    async fn acquire(&self, name: &str) -> Result<LockGuard> {
        const LEASE: Duration = Duration::from_secs(30);
        Ok(self.0.acquire(name.as_bytes(), LEASE).await?)
    }

    async fn release(&self, held: LockGuard) -> Result<()> {
        held.release().await;
        Ok(())
    }
}
