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
///
/// ```
/// let guard = leasehold::blocking::open("memory:")?.mutex("nightly").acquire()?;
/// while guard.is_held() {
///     // one step of the work
///     # break;
/// }
/// guard.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(crate::Guard);

impl Guard {
    /// Waits until the lock is lost, for at most `timeout`; returns `None` if it was not lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// let guard = leasehold::blocking::open("memory:")?.mutex("nightly").acquire()?;
    /// assert_eq!(guard.lost_for(Duration::from_millis(10)), None);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn lost_for(&self, timeout: Duration) -> Option<LossReason> {
        block_on_timeout(timeout, self.0.lost())
    }
}

forward!(Guard of Guard {
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.mutex("orders/42").acquire()?;
    /// println!("UPDATE … WHERE token <= {}", guard.token());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    get token() -> Token;
    call fencing_token() -> Result<FencingToken>;
    call check_binds() -> Result<CheckBinds>;
    get claim_id() -> ClaimId;
    get name() -> &str;
    get slots() -> &[u32];
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.mutex("orders/42").acquire()?;
    /// for step in 1..=3 {
    ///     guard.check()?;
    ///     println!("step {step}");
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    call check() -> Result<()>;
    get is_held() -> bool;
    get loss() -> Option<LossReason>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("nightly").acquire()?;
    /// assert!(guard.remaining() > Duration::from_secs(10));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    get remaining() -> Duration;
    get renewal() -> RenewalStatus;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.mutex("nightly").acquire()?;
    /// let watch = guard.watch();
    /// let stopper = std::thread::spawn(move || watch.lost());
    /// guard.release()?;
    /// # stopper.join().expect("it ends with the hold");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert watch() -> Watch;
    wait until_remaining(margin: Duration) -> ();
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.rwlock("config").exclusive().acquire()?;
    /// guard.downgrade()?;
    /// assert!(locks.rwlock("config").shared().try_acquire()?.is_ok());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    wait downgrade() -> Result<()>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.mutex("orders/42").acquire()?;
    /// guard.release()?;
    /// assert!(locks.mutex("orders/42").try_acquire()?.is_ok());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
