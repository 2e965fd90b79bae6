//! A mutex that its owner may acquire again.

use std::time::Duration;

use super::guard::block_on_timeout;
use super::{Lock, Watch};
use crate::runtime::background::block_on;
use crate::{CheckBinds, ClaimId, FencingToken, LossReason, Owner};
use crate::{Refused, RenewalStatus, Result, Token};

/// A mutex that its owner may acquire again; see [`leasehold::Reentrant`](crate::Reentrant).
///
/// ```
/// let ledger = leasehold::blocking::open("memory:")?.reentrant("ledger");
/// let me = leasehold::Owner::new();
/// let outer = ledger.acquire(&me)?;
/// let inner = ledger.acquire(&me)?; // does not wait
/// # drop((outer, inner));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reentrant(crate::Reentrant);

impl Reentrant {
    /// See [`leasehold::Reentrant::configure`](crate::Reentrant::configure).
    #[must_use]
    pub fn configure(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        Self(self.0.configure(|lock| change(Lock::from(lock)).0))
    }
}

forward!(Reentrant of Reentrant {
    get name() -> &str;
    grant acquire(owner: &Owner) -> Result<ReentrantGuard>;
    try_grant try_acquire(owner: &Owner) -> Result<Result<ReentrantGuard, Refused>>;
    try_grant try_acquire_for(
        owner: &Owner,
        timeout: Duration
    ) -> Result<Result<ReentrantGuard, Refused>>;
});
from_async!(Reentrant => Reentrant);

/// One of an owner's acquires; see [`leasehold::ReentrantGuard`](crate::ReentrantGuard).
///
/// ```
/// let ledger = leasehold::blocking::open("memory:")?.reentrant("ledger");
/// let guard = ledger.acquire(&leasehold::Owner::new())?;
/// assert_eq!(guard.count(), 1);
/// guard.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "this acquire is undone when the guard is dropped"]
pub struct ReentrantGuard(crate::ReentrantGuard);

impl ReentrantGuard {
    /// Waits until the lock is lost, for at most `timeout`; returns `None` if it was not lost.
    #[must_use]
    pub fn lost_for(&self, timeout: Duration) -> Option<LossReason> {
        block_on_timeout(timeout, self.0.lost())
    }
}

forward!(ReentrantGuard of ReentrantGuard {
    get token() -> Token;
    get count() -> usize;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let me = leasehold::Owner::new();
    /// let outer = locks.reentrant("ledger").acquire(&me)?;
    /// locks.reentrant("ledger").acquire(&me)?.release()?;
    /// outer.check()?; // the lock is still held
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    end release() -> Result<()>;
});
forward!(ReentrantGuard of Guard {
    call fencing_token() -> Result<FencingToken>;
    call check_binds() -> Result<CheckBinds>;
    get claim_id() -> ClaimId;
    get name() -> &str;
    call check() -> Result<()>;
    get is_held() -> bool;
    get loss() -> Option<LossReason>;
    get remaining() -> Duration;
    get renewal() -> RenewalStatus;
    convert watch() -> Watch;
    wait until_remaining(margin: Duration) -> ();
});
from_async!(ReentrantGuard => ReentrantGuard);
