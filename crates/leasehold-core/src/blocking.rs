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

use crate::runtime::background::block_on;
use crate::runtime::departures::drain_blocking;
use crate::{Cleanup, Entry, Guarantees, LockState, Name, Need, Record, Refused, Result, Token};

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
#[expect(
    clippy::must_use_candidate,
    reason = "a program that exits has no use for the result"
)]
pub fn drain(timeout: Duration) -> bool {
    drain_blocking(timeout)
}

/// An open store; see [`leasehold::Locks`](crate::Locks).
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
    convert mutex(name: impl AsRef<str>) -> Lock;
    convert rwlock(name: impl AsRef<str>) -> RwLock;
    convert semaphore(name: impl AsRef<str>, slots: u32) -> Lock;
    convert reentrant(name: impl AsRef<str>) -> Reentrant;
    convert once(name: impl AsRef<str>) -> Once;
    convert election(name: impl AsRef<str>) -> Election;
    grant observe(name: impl AsRef<str>) -> Result<Observer>;
    wait inspect(name: impl AsRef<str>) -> Result<LockState>;
    wait list(prefix: &str, count_max: usize) -> Result<Vec<Name>>;
    wait record(name: impl AsRef<str>) -> Result<Record>;
    wait list_records(prefix: &str, count_max: usize) -> Result<Vec<Name>>;
    wait break_hold(name: impl AsRef<str>, token: Token) -> Result<Option<Entry>>;
    wait remove_unused() -> Result<Cleanup>;
    get guarantees() -> Guarantees;
    call require(needs: impl IntoIterator<Item = Need>) -> Result<()>;
    get url() -> &str;
});

/// A lock to acquire; see [`leasehold::Lock`](crate::Lock).
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

forward!(Lock of Lock {
    get name() -> &str;
    set lease(lease: Duration) -> Self;
    set no_renewal() -> Self;
    set max_hold(max_hold: Duration) -> Self;
    set cohort(max: u32) -> Self;
    set label(label: &str) -> Self;
    set permits(permits: u32) -> Self;
    set numbered() -> Self;
    grant acquire() -> Result<Guard>;
    try_grant try_acquire() -> Result<Result<Guard, Refused>>;
    try_grant try_acquire_for(timeout: Duration) -> Result<Result<Guard, Refused>>;
});
from_async!(Lock => Lock);

/// Many readers or one writer; see [`leasehold::RwLock`](crate::RwLock).
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock);

forward!(RwLock of RwLock {
    get name() -> &str;
    convert shared() -> Lock;
    convert exclusive() -> Lock;
});
from_async!(RwLock => RwLock);
