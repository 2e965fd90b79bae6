//! A mutex that its owner may acquire again.

use std::time::Duration;

use super::Lock;
use super::handle::Handle;
use crate::runtime::background::block_on;
use crate::{ClaimId, FencingToken, Owner, Result, Token};

/// A mutex that its owner may acquire again; see [`leasehold::Reentrant`](crate::Reentrant).
#[derive(Clone, Debug)]
pub struct Reentrant(pub(super) crate::Reentrant, pub(super) Handle);

impl Reentrant {
    /// See [`leasehold::Reentrant::configure`](crate::Reentrant::configure).
    #[must_use]
    pub fn configure(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        Self(self.0.configure(|lock| change(Lock::from(lock)).0), self.1)
    }

    /// See [`leasehold::Reentrant::acquire`](crate::Reentrant::acquire).
    pub fn acquire(&self, owner: &Owner) -> Result<ReentrantGuard> {
        block_on(self.0.acquire(owner)).map(ReentrantGuard::from)
    }

    /// See [`leasehold::Reentrant::try_acquire`](crate::Reentrant::try_acquire).
    pub fn try_acquire(&self, owner: &Owner) -> Result<Option<ReentrantGuard>> {
        Ok(block_on(self.0.try_acquire(owner))?.map(ReentrantGuard::from))
    }

    /// See [`leasehold::Reentrant::try_acquire_for`](crate::Reentrant::try_acquire_for).
    pub fn try_acquire_for(
        &self,
        owner: &Owner,
        timeout: Duration,
    ) -> Result<Option<ReentrantGuard>> {
        Ok(block_on(self.0.try_acquire_for(owner, timeout))?.map(ReentrantGuard::from))
    }
}

/// One of an owner's acquires; see [`leasehold::ReentrantGuard`](crate::ReentrantGuard).
#[derive(Debug)]
#[must_use = "this acquire is undone when the guard is dropped"]
pub struct ReentrantGuard(crate::ReentrantGuard, Handle);

impl From<crate::ReentrantGuard> for ReentrantGuard {
    fn from(guard: crate::ReentrantGuard) -> Self {
        Self(guard, Handle::new())
    }
}

impl ReentrantGuard {
    /// See [`leasehold::ReentrantGuard::token`](crate::ReentrantGuard::token).
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// See [`leasehold::Guard::fencing_token`](crate::Guard::fencing_token).
    pub fn fencing_token(&self) -> Result<FencingToken> {
        self.0.fencing_token()
    }

    /// See [`leasehold::Guard::claim_id`](crate::Guard::claim_id).
    #[must_use]
    pub fn claim_id(&self) -> ClaimId {
        self.0.claim_id()
    }

    /// See [`leasehold::ReentrantGuard::count`](crate::ReentrantGuard::count).
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// See [`leasehold::Guard::check`](crate::Guard::check).
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// See [`leasehold::ReentrantGuard::release`](crate::ReentrantGuard::release).
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}
