//! The same locks for threads without a runtime.
//!
//! Every public type of the crate is here under the same name, with the same options, errors and
//! guarantees. A call that waits blocks its thread. The one background thread serves these types
//! too, so no thread is started per lock.
//!
//! ```
//! use leasehold::blocking;
//! use std::time::Duration;
//!
//! let locks = blocking::open("memory:")?;
//! let lock = locks.mutex("orders/42").label("billing");
//! if let Some(guard) = lock.try_acquire_for(Duration::from_secs(5))? {
//!     guard.check()?;
//!     guard.release()?;
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! In async code these functions block the thread that calls them.
//!
//! # The end of a program
//!
//! A dropped guard is released by the background thread, which ends with the process. So when a
//! process drops its last value of this module, the drop blocks for up to one second, until the
//! departures have reached the store. Inside a runtime, the drop does not block.
//!
//! [`drain`] waits for the departures at any time. A program calls it before it exits if it keeps
//! [`Locks`] in a `static` (which is never dropped), uses other threads, or wants to wait for
//! longer.

mod election;
mod guard;
mod handle;
mod multi;
mod observer;
mod reentrant;

use std::time::Duration;

use crate::drain::drain_blocking;
use crate::runtime::background::block_on;
use crate::{Entry, Guarantees, LockState, Name, Result, Token};

pub use election::{
    BlockingElection as Election, BlockingLeaderObserver as LeaderObserver,
    BlockingLeadership as Leadership,
};
pub use guard::Guard;
use handle::Handle;
pub use multi::{BlockingMultiGuard as MultiGuard, BlockingMultiLock as MultiLock, all};
pub use observer::BlockingObserver as Observer;
pub use reentrant::{Reentrant, ReentrantGuard};

/// See [`leasehold::open`](crate::open).
///
/// # Errors
/// See [`leasehold::open`](crate::open).
pub fn open(url: &str) -> Result<Locks> {
    // A runtime around this thread cannot drive a connection while the thread is blocked.
    block_on(crate::open::open_on(url, None)).map(Locks::from)
}

/// Waits as [`leasehold::drain`](crate::drain()) does, for at most `timeout`.
///
/// Returns `true` if no departure is under way any more.
#[expect(
    clippy::must_use_candidate,
    reason = "a program that exits has no use for the result"
)]
pub fn drain(timeout: Duration) -> bool {
    drain_blocking(timeout)
}

/// An open store; see [`leasehold::Locks`](crate::Locks).
#[derive(Clone, Debug)]
pub struct Locks(crate::Locks, Handle);

/// Both APIs share renewals and connections.
///
/// A blocking call uses the background connection, so the thread that drives the caller's
/// connection may make the call too. While the call blocks that thread, an async waiter on it
/// notices its grant by polling, up to two seconds late.
impl From<crate::Locks> for Locks {
    fn from(locks: crate::Locks) -> Self {
        Self(locks, Handle::new())
    }
}

impl Locks {
    /// See [`leasehold::Locks::mutex`](crate::Locks::mutex).
    #[must_use]
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        Lock::from(self.0.mutex(name))
    }

    /// See [`leasehold::Locks::rwlock`](crate::Locks::rwlock).
    #[must_use]
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rwlock(name), Handle::new())
    }

    /// See [`leasehold::Locks::semaphore`](crate::Locks::semaphore).
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>, slots: u32) -> Lock {
        Lock::from(self.0.semaphore(name, slots))
    }

    /// See [`leasehold::Locks::reentrant`](crate::Locks::reentrant).
    #[must_use]
    pub fn reentrant(&self, name: impl AsRef<str>) -> Reentrant {
        Reentrant(self.0.reentrant(name), Handle::new())
    }

    /// See [`leasehold::Locks::inspect`](crate::Locks::inspect).
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<LockState> {
        block_on(self.0.inspect(name.as_ref()))
    }

    /// See [`leasehold::Locks::list`](crate::Locks::list).
    pub fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        block_on(self.0.list(prefix, count_max))
    }

    /// See [`leasehold::Locks::break_hold`](crate::Locks::break_hold).
    pub fn break_hold(&self, name: impl AsRef<str>, token: Token) -> Result<Option<Entry>> {
        block_on(self.0.break_hold(name.as_ref(), token))
    }

    /// See [`leasehold::Locks::guarantees`](crate::Locks::guarantees).
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    /// See [`leasehold::Locks::url`](crate::Locks::url).
    #[must_use]
    pub fn url(&self) -> &str {
        self.0.url()
    }
}

/// A lock to acquire; see [`leasehold::Lock`](crate::Lock).
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock, Handle);

impl Lock {
    /// See [`leasehold::Lock::lease`](crate::Lock::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease), self.1)
    }

    /// See [`leasehold::Lock::no_renewal`](crate::Lock::no_renewal).
    #[must_use]
    pub fn no_renewal(self) -> Self {
        Self(self.0.no_renewal(), self.1)
    }

    /// See [`leasehold::Lock::max_hold`](crate::Lock::max_hold).
    #[must_use]
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.max_hold(max_hold), self.1)
    }

    /// See [`leasehold::Lock::cohort`](crate::Lock::cohort).
    #[must_use]
    pub fn cohort(self, max: u32) -> Self {
        Self(self.0.cohort(max), self.1)
    }

    /// See [`leasehold::Lock::label`](crate::Lock::label).
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        Self(self.0.label(label), self.1)
    }

    /// See [`leasehold::Lock::permits`](crate::Lock::permits).
    #[must_use]
    pub fn permits(self, permits: u32) -> Self {
        Self(self.0.permits(permits), self.1)
    }

    /// See [`leasehold::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard::from)
    }

    /// See [`leasehold::Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard::from))
    }

    /// See [`leasehold::Lock::try_acquire_for`](crate::Lock::try_acquire_for).
    pub fn try_acquire_for(&self, timeout: Duration) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire_for(timeout))?.map(Guard::from))
    }
}

impl From<crate::Lock> for Lock {
    fn from(lock: crate::Lock) -> Self {
        Self(lock, Handle::new())
    }
}

/// Many readers or one writer; see [`leasehold::RwLock`](crate::RwLock).
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock, Handle);

impl RwLock {
    /// See [`leasehold::RwLock::shared`](crate::RwLock::shared).
    #[must_use]
    pub fn shared(&self) -> Lock {
        Lock::from(self.0.shared())
    }

    /// See [`leasehold::RwLock::exclusive`](crate::RwLock::exclusive).
    #[must_use]
    pub fn exclusive(&self) -> Lock {
        Lock::from(self.0.exclusive())
    }
}
