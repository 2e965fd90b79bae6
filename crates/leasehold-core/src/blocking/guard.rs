//! A granted lock.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Watch;
use crate::runtime::background::{block_on, on_background};
use crate::{
    CheckBinds, ClaimId, FencingToken, LossReason, RenewalStatus, Result, ServerVote, Token,
};
use crate::{FileGuardExt, RedlockGuardExt};

/// A granted lock; see [`leasehold::Guard`](crate::Guard).
///
/// Dropping it releases the lock in the background; see
/// [the end of a program](crate::blocking#the-end-of-a-program).
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(crate::Guard);

impl Guard {
    /// Waits until the lock is lost, for at most `timeout`; returns `None` if it was not lost.
    #[must_use]
    pub fn lost_for(&self, timeout: Duration) -> Option<LossReason> {
        block_on_timeout(timeout, self.0.lost())
    }
}

forward!(Guard of Guard {
    get token() -> Token;
    call fencing_token() -> Result<FencingToken>;
    call check_binds() -> Result<CheckBinds>;
    get claim_id() -> ClaimId;
    get name() -> &str;
    get slots() -> &[u32];
    call check() -> Result<()>;
    get loss() -> Option<LossReason>;
    get remaining() -> Duration;
    get renewal() -> RenewalStatus;
    convert watch() -> Watch;
    wait until_remaining(margin: Duration) -> ();
    wait downgrade() -> Result<()>;
    end release() -> Result<()>;
});
from_async!(Guard => Guard);

impl FileGuardExt for Guard {
    fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.0.inheritable_fds()
    }
}

impl RedlockGuardExt for Guard {
    fn votes(&self) -> Vec<ServerVote> {
        self.0.votes()
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
