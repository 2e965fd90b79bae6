//! Several locks at once.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::guard::block_on_timeout;
use super::handle::Handle;
use super::{Lock, Locks};
use crate::runtime::background::block_on;
use crate::{LossReason, RenewalStatus, Result, Token};

/// See [`leasehold::all`](crate::all()).
pub fn all(locks: impl IntoIterator<Item = Lock>) -> BlockingMultiLock {
    BlockingMultiLock::from(crate::all(locks.into_iter().map(|lock| lock.0)))
}

/// Several locks that are granted together; see [`leasehold::MultiLock`](crate::MultiLock).
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before `acquire`"]
pub struct BlockingMultiLock(crate::MultiLock, Handle);

impl BlockingMultiLock {
    /// See [`leasehold::MultiLock::configure`](crate::MultiLock::configure).
    pub fn configure(self, mut change: impl FnMut(Lock) -> Lock) -> Self {
        let change = |lock| change(Lock::from(lock)).0;
        Self(self.0.configure(change), self.1)
    }

    /// See [`leasehold::MultiLock::acquire`](crate::MultiLock::acquire).
    pub fn acquire(&self) -> Result<BlockingMultiGuard> {
        block_on(self.0.acquire()).map(BlockingMultiGuard::from)
    }

    /// See [`leasehold::MultiLock::try_acquire`](crate::MultiLock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<BlockingMultiGuard>> {
        Ok(block_on(self.0.try_acquire())?.map(BlockingMultiGuard::from))
    }

    /// See [`leasehold::MultiLock::try_acquire_for`](crate::MultiLock::try_acquire_for).
    pub fn try_acquire_for(&self, timeout: Duration) -> Result<Option<BlockingMultiGuard>> {
        Ok(block_on(self.0.try_acquire_for(timeout))?.map(BlockingMultiGuard::from))
    }
}

impl From<crate::MultiLock> for BlockingMultiLock {
    fn from(lock: crate::MultiLock) -> Self {
        Self(lock, Handle::new())
    }
}

impl Locks {
    /// See [`leasehold::Locks::all`](crate::Locks::all).
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> BlockingMultiLock {
        BlockingMultiLock::from(self.0.all(names))
    }
}

/// Several granted locks; see [`leasehold::MultiGuard`](crate::MultiGuard).
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct BlockingMultiGuard(crate::MultiGuard, Handle);

impl BlockingMultiGuard {
    /// See [`leasehold::MultiGuard::tokens`](crate::MultiGuard::tokens).
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        self.0.tokens()
    }

    /// See [`leasehold::MultiGuard::check`](crate::MultiGuard::check).
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// See [`leasehold::MultiGuard::loss`](crate::MultiGuard::loss).
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss()
    }

    /// See [`leasehold::MultiGuard::remaining`](crate::MultiGuard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// See [`leasehold::MultiGuard::renewal`](crate::MultiGuard::renewal).
    #[must_use]
    pub fn renewal(&self) -> RenewalStatus {
        self.0.renewal()
    }

    /// Waits until a lock is lost, for at most `timeout`; returns `None` if none was lost.
    #[must_use]
    pub fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        block_on_timeout(timeout, self.0.lost())
    }

    /// See [`leasehold::MultiGuard::inheritable_fds`](crate::MultiGuard::inheritable_fds).
    pub fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.0.inheritable_fds()
    }

    /// See [`leasehold::MultiGuard::release`](crate::MultiGuard::release).
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

impl From<crate::MultiGuard> for BlockingMultiGuard {
    fn from(guard: crate::MultiGuard) -> Self {
        Self(guard, Handle::new())
    }
}

/// Converts the guard for async code; the holds stay the same.
impl From<BlockingMultiGuard> for crate::MultiGuard {
    fn from(guard: BlockingMultiGuard) -> Self {
        guard.0
    }
}
