//! Several locks at once.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::guard::block_on_timeout;
use super::{Guard, Lock, Locks, Watch};
use crate::FileGuardExt;
use crate::runtime::background::block_on;
use crate::{LossReason, Refused, RenewalStatus, Result, Token};

/// See [`leasehold::multi_lock`](crate::multi_lock()).
///
/// ```
/// use leasehold::blocking;
/// let locks = blocking::open("memory:")?;
/// let both = blocking::multi_lock([locks.mutex("account/1"), locks.rwlock("rates").shared()]);
/// both.acquire()?.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn multi_lock(locks: impl IntoIterator<Item = Lock>) -> MultiLock {
    MultiLock::from(crate::multi_lock(locks.into_iter().map(|lock| lock.0)))
}

/// Several locks that are granted together; see [`leasehold::MultiLock`](crate::MultiLock).
///
/// ```
/// let locks = leasehold::blocking::open("memory:")?;
/// let guard = locks.multi_lock(["account/1", "account/2"]).acquire()?;
/// guard.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before `acquire`"]
pub struct MultiLock(crate::MultiLock);

impl MultiLock {
    /// See [`leasehold::MultiLock::configure`](crate::MultiLock::configure).
    pub fn configure(self, mut change: impl FnMut(Lock) -> Lock) -> Self {
        let change = |lock| change(Lock::from(lock)).0;
        Self(self.0.configure(change))
    }

    /// See [`leasehold::MultiLock::in_order`](crate::MultiLock::in_order).
    pub fn in_order(&self) -> Result<Vec<Lock>> {
        let order = self.0.in_order()?;
        Ok(order.into_iter().cloned().map(Lock::from).collect())
    }
}

forward!(MultiLock of MultiLock {
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.multi_lock(["account/1", "account/2"]).acquire()?;
    /// guard.check()?;
    /// guard.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    grant acquire() -> Result<MultiGuard>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let other = locks.mutex("account/2").acquire()?;
    /// assert!(locks.multi_lock(["account/1", "account/2"]).try_acquire()?.is_err());
    /// # drop(other);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    try_grant try_acquire() -> Result<Result<MultiGuard, Refused>>;
    try_grant try_acquire_for(timeout: Duration) -> Result<Result<MultiGuard, Refused>>;
});
from_async!(MultiLock => MultiLock);

impl Locks {
    /// See [`leasehold::Locks::multi_lock`](crate::Locks::multi_lock).
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::from(self.0.multi_lock(names))
    }
}

/// Several granted locks; see [`leasehold::MultiGuard`](crate::MultiGuard).
///
/// ```
/// let locks = leasehold::blocking::open("memory:")?;
/// let guard = locks.multi_lock(["account/1", "account/2"]).acquire()?;
/// assert_eq!(guard.tokens().len(), 2);
/// guard.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard(crate::MultiGuard);

impl MultiGuard {
    /// See [`leasehold::MultiGuard::new`](crate::MultiGuard::new).
    ///
    /// # Panics
    /// If `guards` is empty.
    pub fn new(guards: Vec<Guard>) -> Self {
        let guards = guards.into_iter().map(crate::Guard::from).collect();
        Self(crate::MultiGuard::new(guards))
    }

    /// See [`leasehold::MultiGuard::into_guards`](crate::MultiGuard::into_guards).
    #[must_use]
    pub fn into_guards(self) -> Vec<Guard> {
        let guards = self.0.into_guards();
        guards.into_iter().map(Guard::from).collect()
    }

    /// Waits until a lock is lost, for at most `timeout`; returns `None` if none was lost.
    #[must_use]
    pub fn lost_for(&self, timeout: Duration) -> Option<LossReason> {
        block_on_timeout(timeout, self.0.lost())
    }
}

forward!(MultiGuard of MultiGuard {
    call guards() -> &[crate::Guard];
    call weakest() -> &crate::Guard;
    get tokens() -> Vec<Token>;
    call check() -> Result<()>;
    get is_held() -> bool;
    get loss() -> Option<LossReason>;
    get remaining() -> Duration;
    get renewal() -> RenewalStatus;
    convert watch() -> Watch;
    wait until_remaining(margin: Duration) -> ();
    end release() -> Result<()>;
});
from_async!(MultiGuard => MultiGuard);

impl FileGuardExt for MultiGuard {
    fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.0.inheritable_fds()
    }
}

/// Converts the guard for async code; the holds stay the same.
impl From<MultiGuard> for crate::MultiGuard {
    fn from(guard: MultiGuard) -> Self {
        guard.0
    }
}
