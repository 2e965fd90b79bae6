//! What a guard has on the stores of one kind only.

use std::os::fd::OwnedFd;

use crate::engine::Hold;
use crate::{Guard, MultiGuard, Result, ServerVote};

/// What a guard has on the file store.
///
/// Every guard implements it. On other stores it returns nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::stores::FileGuardExt;
/// let guard = locks.mutex("nightly").acquire().await?;
/// assert!(guard.inheritable_fds()?.is_empty()); // the store is not a folder
/// # Ok(()) }
/// ```
pub trait FileGuardExt: sealed::AnyGuard {
    /// Returns descriptors that keep the lock held while any process has them open.
    ///
    /// They are for a child process that does the work: it keeps the lock even if this process is
    /// killed. A release still frees the lock. The list is empty on other stores.
    ///
    /// They keep alive every claim that this process has through the same [`Locks`](crate::Locks).
    /// Open the store a second time for work that a child continues.
    ///
    /// They are closed on exec. Clear that flag for the child that inherits them
    /// (`fcntl(F_SETFD)`).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::stores::FileGuardExt;
    ///
    /// # let folder = std::env::temp_dir().join(format!("doc-inherit-{}", std::process::id()));
    /// # let url = format!("file:{}", folder.display());
    /// let locks = leasehold::open(&url).await?;
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// assert!(!guard.inheritable_fds()?.is_empty());
    /// # guard.release().await?;
    /// # std::fs::remove_dir_all(folder).ok();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost), or [`is_unavailable`](crate::Error::is_unavailable) if
    /// the process has no descriptor left.
    fn inheritable_fds(&self) -> Result<Vec<OwnedFd>>;
}

/// What a guard has on Redlock, where several servers keep the lock together.
///
/// Every guard of one lock implements it. On other stores it returns nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::stores::RedlockGuardExt;
/// let guard = locks.mutex("nightly").acquire().await?;
/// assert!(guard.votes().is_empty()); // the store is not Redlock
/// # Ok(()) }
/// ```
pub trait RedlockGuardExt: sealed::AnyGuard {
    /// Returns the vote of each server.
    ///
    /// It sends no request and returns the votes of the grant or the last renewal.
    /// [`inspect`](crate::Locks::inspect) queries the servers. The hold is valid while a majority
    /// of the votes is valid, and [`Guard::remaining`] returns for how long.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::stores::RedlockGuardExt;
    ///
    /// let locks = leasehold::open("redlock://a,b,c,d,e").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// for vote in guard.votes().iter().filter(|vote| vote.remaining.is_zero()) {
    ///     eprintln!("{} has not voted", vote.server);
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    fn votes(&self) -> Vec<ServerVote>;
}

impl FileGuardExt for Guard {
    fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        let fds: Result<Vec<_>> = self.holds().map(Hold::inheritable_fds).collect();
        Ok(fds?.into_iter().flatten().collect())
    }
}

impl FileGuardExt for MultiGuard {
    fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        let fds: Result<Vec<_>> = self.guards().iter().map(Guard::inheritable_fds).collect();
        Ok(fds?.into_iter().flatten().collect())
    }
}

impl RedlockGuardExt for Guard {
    fn votes(&self) -> Vec<ServerVote> {
        self.hold().votes()
    }
}

pub(crate) mod sealed {
    /// A guard of this crate. No other type implements the traits, so that they can grow.
    pub trait AnyGuard {}

    impl AnyGuard for crate::Guard {}
    impl AnyGuard for crate::MultiGuard {}
    impl AnyGuard for crate::blocking::Guard {}
    impl AnyGuard for crate::blocking::MultiGuard {}
}
