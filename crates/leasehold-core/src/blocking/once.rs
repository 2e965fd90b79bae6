//! A job that runs once.

use std::time::Duration;

use super::Watch;
use crate::runtime::background::block_on;
use crate::{ClaimId, Done, FencingToken, LossReason, NotGranted, RenewalStatus, Result, Token};

/// A job that runs once; see [`leasehold::Once`](crate::Once).
///
/// ```
/// let locks = leasehold::blocking::open("memory:")?;
/// let job = locks.once("report").id("2026-11-28");
/// if let Ok(guard) = job.acquire()? {
///     guard.complete()?;
/// }
/// assert!(job.acquire()?.is_err(), "it is done");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Once(crate::Once);

forward!(Once of Once {
    set id(id: impl Into<String>) -> Self;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// use std::time::Duration;
    /// let job = locks.once("sync").per(Duration::from_secs(3600));
    /// assert!(job.acquire()?.is_ok());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    set per(period: Duration) -> Self;
    set lease(lease: Duration) -> Self;
    set max_hold(longest: Duration) -> Self;
    set label(label: &str) -> Self;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// match locks.once("report").id("2026-11-28").acquire()? {
    ///     Ok(guard) => guard.complete()?,
    ///     Err(done) => println!("{done}"),
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    try_grant acquire() -> Result<Result<OnceGuard, Done>>;
    try_grant try_acquire() -> Result<Result<OnceGuard, NotGranted>>;
    try_grant try_acquire_for(timeout: Duration) -> Result<Result<OnceGuard, NotGranted>>;
});
from_async!(Once => Once);

/// A job that this process is to do; see [`leasehold::OnceGuard`](crate::OnceGuard).
///
/// ```
/// let job = leasehold::blocking::open("memory:")?.once("report").id("2026-11-28");
/// if let Ok(guard) = job.acquire()? {
///     guard.complete()?;
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct OnceGuard(crate::OnceGuard);

forward!(OnceGuard of OnceGuard {
    end complete() -> Result<()>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let job = locks.once("report").id("2026-11-28");
    /// if let Ok(guard) = job.acquire()? {
    ///     guard.fail()?;
    /// }
    /// assert!(job.acquire()?.is_ok(), "it runs again");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    end fail() -> Result<()>;
});
forward!(OnceGuard of Guard {
    get token() -> Token;
    call fencing_token() -> Result<FencingToken>;
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
from_async!(OnceGuard => OnceGuard);
