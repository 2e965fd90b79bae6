//! The same locks for threads without a runtime; `leasehold::blocking` describes them.

#[macro_use]
mod forward;

mod election;
mod guard;
mod multi;
mod observer;
mod once;
mod reentrant;
mod watch;

use std::time::Duration;

use crate::run::ended;
use crate::runtime::background::block_on;
use crate::runtime::departures::drain_blocking;
use crate::{
    Cleanup, Entry, Guarantees, LockState, Name, Need, Record, Refused, Result, RunError, Token,
};

pub use election::{Election, LeaderObserver, Leadership};
pub use guard::Guard;
pub use multi::{MultiGuard, MultiLock, multi_lock};
pub use observer::Observer;
pub use once::{Once, OnceGuard};
pub use reentrant::{Reentrant, ReentrantGuard};
pub use watch::Watch;

/// Waits as [`leasehold::drain`](crate::drain()) does, for at most `timeout`.
///
/// Returns `true` if no departure is under way any more.
///
/// ```
/// use std::time::Duration;
/// use leasehold::blocking;
/// drop(blocking::open("memory:")?.mutex("nightly").acquire()?);
/// assert!(blocking::drain(Duration::from_secs(5)));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[expect(
    clippy::must_use_candidate,
    reason = "a program that exits has no use for the result"
)]
pub fn drain(timeout: Duration) -> bool {
    drain_blocking(timeout)
}

/// An open store; see [`leasehold::Locks`](crate::Locks).
///
/// ```
/// let locks = leasehold::blocking::open("memory:")?;
/// let guard = locks.mutex("orders/42").acquire()?;
/// guard.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Locks(crate::Locks);

/// Both APIs share renewals and connections.
///
/// A blocking call uses the background connection, so the thread that drives the caller's
/// connection may make the call too. While the call blocks that thread, an async waiter on it
/// notices its grant by polling, up to two seconds late.
impl From<crate::Locks> for Locks {
    fn from(locks: crate::Locks) -> Self {
        Self(locks)
    }
}

impl Locks {
    /// See [`leasehold::Locks::reply_timeout`](crate::Locks::reply_timeout).
    pub fn reply_timeout(self, reply_timeout: Duration) -> Result<Self> {
        self.0.reply_timeout(reply_timeout).map(Self)
    }
}

forward!(Locks of Locks {
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.mutex("orders/42").acquire()?;
    /// assert!(locks.mutex("orders/42").try_acquire()?.is_err());
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert mutex(name: impl AsRef<str>) -> Lock;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let reader = locks.rwlock("config").shared().acquire()?;
    /// assert!(locks.rwlock("config").exclusive().try_acquire()?.is_err());
    /// # drop(reader);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert rwlock(name: impl AsRef<str>) -> RwLock;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let slot = locks.semaphore("gpu", 2).acquire()?;
    /// assert!(locks.semaphore("gpu", 2).try_acquire()?.is_ok());
    /// # drop(slot);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert semaphore(name: impl AsRef<str>, slots: u32) -> Lock;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let me = leasehold::Owner::new();
    /// let guard = locks.reentrant("ledger").acquire(&me)?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert reentrant(name: impl AsRef<str>) -> Reentrant;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// if let Ok(guard) = locks.once("report").id("2026-11-28").acquire()? {
    ///     guard.complete()?;
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert once(name: impl AsRef<str>) -> Once;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let leadership = locks.election("scheduler").campaign("10.0.0.5:8080")?;
    /// leadership.resign()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert election(name: impl AsRef<str>) -> Election;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let mut observer = locks.observe("nightly")?;
    /// assert_eq!(observer.next()?.holders().count(), 0);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    grant observe(name: impl AsRef<str>) -> Result<Observer>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// for entry in locks.inspect("nightly")?.holders() {
    ///     println!("held by {}", entry.info);
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    wait inspect(name: impl AsRef<str>) -> Result<LockState>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// for name in locks.list("orders/", 100)? {
    ///     println!("{name} is in use");
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    wait list(prefix: &str, count_max: usize) -> Result<Vec<Name>>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// if let Some(success) = locks.record("report")?.last_success() {
    ///     println!("done by {}", success.by);
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    wait record(name: impl AsRef<str>) -> Result<Record>;
    wait list_records(prefix: &str, count_max: usize) -> Result<Vec<Name>>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let stuck = locks.mutex("nightly").acquire()?;
    /// assert!(locks.break_hold("nightly", stuck.token())?.is_some());
    /// assert!(!stuck.is_held());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    wait break_hold(name: impl AsRef<str>, token: Token) -> Result<Option<Entry>>;
    wait remove_unused() -> Result<Cleanup>;
    get guarantees() -> Guarantees;
    call require(needs: impl IntoIterator<Item = Need>) -> Result<()>;
    get url() -> &str;
});

/// A lock to acquire; see [`leasehold::Lock`](crate::Lock).
///
/// ```
/// use std::time::Duration;
/// let lock = leasehold::blocking::open("memory:")?.mutex("orders/42");
/// match lock.try_acquire_for(Duration::from_secs(2))? {
///     Ok(guard) => guard.release()?,
///     Err(refused) => println!("{refused}"),
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

impl Lock {
    /// Acquires the lock, runs `work`, and releases the lock; see
    /// [`leasehold::Lock::run`](crate::Lock::run).
    ///
    /// Nothing can stop the work of a thread, so long work calls [`Guard::check`] between its
    /// steps. If the lock was lost before the work returned, the error is [`RunError::Lost`], whatever the
    /// work has returned.
    ///
    /// ```
    /// # fn charge(order: u32, token: leasehold::Token) -> leasehold::Result<u32> { Ok(order) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let lock = leasehold::blocking::open("memory:")?.mutex("orders/42");
    /// let receipt = lock.run(|guard| charge(42, guard.token()))?;
    /// # assert_eq!(receipt, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RunError`] says which of the steps failed.
    pub fn run<T, E>(&self, work: impl FnOnce(&Guard) -> Result<T, E>) -> Result<T, RunError<E>> {
        let guard = self.acquire().map_err(RunError::Acquire)?;
        let worked = work(&guard);
        guard.check().map_err(RunError::Lost)?;
        ended(worked, guard.release())
    }
}

forward!(Lock of Lock {
    get name() -> &str;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("nightly").lease(Duration::from_secs(5)).acquire()?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    set lease(lease: Duration) -> Self;
    set no_renewal() -> Self;
    set max_hold(max_hold: Duration) -> Self;
    set cohort(max: u32) -> Self;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.mutex("deploy").label("release 481").acquire()?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    set label(label: &str) -> Self;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.semaphore("gpu", 4).permits(3).acquire()?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    set permits(permits: u32) -> Self;
    set numbered() -> Self;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let guard = locks.mutex("orders/42").acquire()?;
    /// guard.release()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    grant acquire() -> Result<Guard>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// match locks.mutex("orders/42").try_acquire()? {
    ///     Ok(guard) => guard.release()?,
    ///     Err(refused) => println!("{refused}"),
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    try_grant try_acquire() -> Result<Result<Guard, Refused>>;
    try_grant try_acquire_for(timeout: Duration) -> Result<Result<Guard, Refused>>;
});
from_async!(Lock => Lock);

/// Many readers or one writer; see [`leasehold::RwLock`](crate::RwLock).
///
/// ```
/// let config = leasehold::blocking::open("memory:")?.rwlock("config");
/// let (one, two) = (config.shared().acquire()?, config.shared().acquire()?);
/// assert!(config.exclusive().try_acquire()?.is_err());
/// # drop((one, two));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock);

forward!(RwLock of RwLock {
    get name() -> &str;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let reader = locks.rwlock("config").shared().acquire()?;
    /// # drop(reader);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert shared() -> Lock;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let writer = locks.rwlock("config").exclusive().acquire()?;
    /// writer.downgrade()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    convert exclusive() -> Lock;
});
from_async!(RwLock => RwLock);
