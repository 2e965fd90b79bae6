//! A granted lock.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::handle::Handle;
use crate::runtime::background::{block_on, on_background};
use crate::{ClaimId, FencingToken, LossReason, RenewalStatus, Result, ServerVote, Token};

/// A granted lock; see [`leasehold::Guard`](crate::Guard).
///
/// Dropping it releases the lock in the background; see
/// [the end of a program](crate::blocking#the-end-of-a-program).
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(crate::Guard, Handle);

impl Guard {
    /// See [`leasehold::Guard::token`](crate::Guard::token).
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

    /// See [`leasehold::Guard::name`](crate::Guard::name).
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// See [`leasehold::Guard::check`](crate::Guard::check).
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// See [`leasehold::Guard::loss`](crate::Guard::loss).
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss()
    }

    /// See [`leasehold::Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// See [`leasehold::Guard::votes`](crate::Guard::votes).
    #[must_use]
    pub fn votes(&self) -> Vec<ServerVote> {
        self.0.votes()
    }

    /// See [`leasehold::Guard::renewal`](crate::Guard::renewal).
    #[must_use]
    pub fn renewal(&self) -> RenewalStatus {
        self.0.renewal()
    }

    /// Waits until the lock is lost, for at most `timeout`; returns `None` if it was not lost.
    #[must_use]
    pub fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        block_on_timeout(timeout, self.0.lost())
    }

    /// See [`leasehold::Guard::inheritable_fds`](crate::Guard::inheritable_fds).
    pub fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.0.inheritable_fds()
    }

    /// See [`leasehold::Guard::downgrade`](crate::Guard::downgrade).
    pub fn downgrade(&self) -> Result<()> {
        block_on(self.0.downgrade())
    }

    /// See [`leasehold::Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

impl From<crate::Guard> for Guard {
    fn from(guard: crate::Guard) -> Self {
        Self(guard, Handle::new())
    }
}

/// Converts the guard for async code; the hold stays the same.
impl From<Guard> for crate::Guard {
    fn from(guard: Guard) -> Self {
        guard.0
    }
}

pub(super) fn block_on_timeout<T>(timeout: Duration, future: impl Future<Output = T>) -> Option<T> {
    block_on(on_background(async {
        tokio::time::timeout(timeout, future).await.ok()
    }))
}
