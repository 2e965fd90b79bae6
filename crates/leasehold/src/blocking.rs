//! The same locks for threads without a runtime.
//!
//! Every face of the crate is here under the same name, with the same terms, errors and guarantees; only waiting is
//! done by sleeping. Nothing is started per lock or thread: the one background thread serves these faces too.
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
//! Called from async code these functions block the thread they run on, as any blocking call does.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::time::Duration;

use pollster::block_on;

use crate::background::within;
use crate::{Entry, Line, Loss, Name, Owner, Promises, Renewal, Result, Token, Vote};

/// As [`leasehold::open`](crate::open).
///
/// # Errors
/// As [`leasehold::open`](crate::open).
pub fn open(url: &str) -> Result<Locks> {
    // Whatever runtime may be around this thread cannot drive anything while the thread is blocked.
    block_on(crate::open::open_on(url, None)).map(Locks::from)
}

/// A store, opened; see [`leasehold::Locks`](crate::Locks).
#[derive(Clone, Debug)]
pub struct Locks(crate::Locks);

/// Both kinds of faces share renewals and connections.
impl From<crate::Locks> for Locks {
    fn from(locks: crate::Locks) -> Self {
        Self(locks)
    }
}

impl Locks {
    /// As [`leasehold::Locks::mutex`](crate::Locks::mutex).
    #[must_use]
    pub fn mutex(&self, name: &str) -> Lock {
        Lock(self.0.mutex(name))
    }

    /// As [`leasehold::Locks::rwlock`](crate::Locks::rwlock).
    #[must_use]
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock(self.0.rwlock(name))
    }

    /// As [`leasehold::Locks::semaphore`](crate::Locks::semaphore).
    #[must_use]
    pub fn semaphore(&self, name: &str, slots: u32) -> Lock {
        Lock(self.0.semaphore(name, slots))
    }

    /// As [`leasehold::Locks::reentrant`](crate::Locks::reentrant).
    #[must_use]
    pub fn reentrant(&self, name: &str) -> Reentrant {
        Reentrant(self.0.reentrant(name))
    }

    /// As [`leasehold::Locks::look`](crate::Locks::look).
    pub fn look(&self, name: &str) -> Result<Line> {
        block_on(self.0.look(name))
    }

    /// As [`leasehold::Locks::names`](crate::Locks::names).
    pub fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        block_on(self.0.names(prefix, count_max))
    }

    /// As [`leasehold::Locks::break_hold`](crate::Locks::break_hold).
    pub fn break_hold(&self, name: &str, token: Token) -> Result<Option<Entry>> {
        block_on(self.0.break_hold(name, token))
    }

    /// As [`leasehold::Locks::settled`](crate::Locks::settled).
    pub fn settled(&self) {
        block_on(self.0.settled());
    }

    /// As [`leasehold::Locks::promises`](crate::Locks::promises).
    #[must_use]
    pub fn promises(&self) -> Promises {
        self.0.promises()
    }

    /// As [`leasehold::Locks::place`](crate::Locks::place).
    #[must_use]
    pub fn place(&self) -> &str {
        self.0.place()
    }
}

/// A lock to acquire; see [`leasehold::Lock`](crate::Lock).
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

impl Lock {
    /// As [`leasehold::Lock::lease`](crate::Lock::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// As [`leasehold::Lock::fixed`](crate::Lock::fixed).
    #[must_use]
    pub fn fixed(self) -> Self {
        Self(self.0.fixed())
    }

    /// As [`leasehold::Lock::max_hold`](crate::Lock::max_hold).
    #[must_use]
    pub fn max_hold(self, longest: Duration) -> Self {
        Self(self.0.max_hold(longest))
    }

    /// As [`leasehold::Lock::label`](crate::Lock::label).
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        Self(self.0.label(label))
    }

    /// As [`leasehold::Lock::take`](crate::Lock::take).
    #[must_use]
    pub fn take(self, slots: u32) -> Self {
        Self(self.0.take(slots))
    }

    /// As [`leasehold::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard)
    }

    /// As [`leasehold::Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard))
    }

    /// As [`leasehold::Lock::try_acquire_for`](crate::Lock::try_acquire_for).
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire_for(wait))?.map(Guard))
    }
}

impl From<crate::Lock> for Lock {
    fn from(lock: crate::Lock) -> Self {
        Self(lock)
    }
}

/// Many readers or one writer; see [`leasehold::RwLock`](crate::RwLock).
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock);

impl RwLock {
    /// As [`leasehold::RwLock::shared`](crate::RwLock::shared).
    #[must_use]
    pub fn shared(&self) -> Lock {
        Lock(self.0.shared())
    }

    /// As [`leasehold::RwLock::exclusive`](crate::RwLock::exclusive).
    #[must_use]
    pub fn exclusive(&self) -> Lock {
        Lock(self.0.exclusive())
    }
}

/// A granted lock; see [`leasehold::Guard`](crate::Guard). Dropping it releases in the background.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(crate::Guard);

impl Guard {
    /// As [`leasehold::Guard::token`](crate::Guard::token).
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// As [`leasehold::Guard::name`](crate::Guard::name).
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`leasehold::Guard::check`](crate::Guard::check).
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// As [`leasehold::Guard::loss`](crate::Guard::loss).
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.0.loss()
    }

    /// As [`leasehold::Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// As [`leasehold::Guard::votes`](crate::Guard::votes).
    #[must_use]
    pub fn votes(&self) -> Vec<Vote> {
        self.0.votes()
    }

    /// As [`leasehold::Guard::renewal`](crate::Guard::renewal).
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        self.0.renewal()
    }

    /// Sleeps until the lock is lost, but for no longer than `wait`; why it was lost, or `None` if it was not.
    #[must_use]
    pub fn lost_within(&self, wait: Duration) -> Option<Loss> {
        within_time(wait, self.0.lost())
    }

    /// As [`leasehold::Guard::anchors`](crate::Guard::anchors).
    pub fn anchors(&self) -> Result<Vec<OwnedFd>> {
        self.0.anchors()
    }

    /// As [`leasehold::Guard::downgrade`](crate::Guard::downgrade).
    pub fn downgrade(&self) -> Result<()> {
        block_on(self.0.downgrade())
    }

    /// As [`leasehold::Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

impl From<crate::Guard> for Guard {
    fn from(guard: crate::Guard) -> Self {
        Self(guard)
    }
}

/// The same hold, for async code.
impl From<Guard> for crate::Guard {
    fn from(guard: Guard) -> Self {
        guard.0
    }
}

/// A mutex that its owner may acquire again; see [`leasehold::Reentrant`](crate::Reentrant).
#[derive(Clone, Debug)]
pub struct Reentrant(crate::Reentrant);

impl Reentrant {
    /// As [`leasehold::Reentrant::terms`](crate::Reentrant::terms).
    #[must_use]
    pub fn terms(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        Self(self.0.terms(|lock| change(Lock(lock)).0))
    }

    /// As [`leasehold::Reentrant::acquire`](crate::Reentrant::acquire).
    pub fn acquire(&self, owner: &Owner) -> Result<ReentrantGuard> {
        block_on(self.0.acquire(owner)).map(ReentrantGuard)
    }

    /// As [`leasehold::Reentrant::try_acquire`](crate::Reentrant::try_acquire).
    pub fn try_acquire(&self, owner: &Owner) -> Result<Option<ReentrantGuard>> {
        Ok(block_on(self.0.try_acquire(owner))?.map(ReentrantGuard))
    }

    /// As [`leasehold::Reentrant::try_acquire_for`](crate::Reentrant::try_acquire_for).
    pub fn try_acquire_for(&self, owner: &Owner, wait: Duration) -> Result<Option<ReentrantGuard>> {
        Ok(block_on(self.0.try_acquire_for(owner, wait))?.map(ReentrantGuard))
    }
}

/// One of an owner's acquires; see [`leasehold::ReentrantGuard`](crate::ReentrantGuard).
#[derive(Debug)]
#[must_use = "this acquire is undone when the guard is dropped"]
pub struct ReentrantGuard(crate::ReentrantGuard);

impl ReentrantGuard {
    /// As [`leasehold::ReentrantGuard::token`](crate::ReentrantGuard::token).
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// As [`leasehold::ReentrantGuard::count`](crate::ReentrantGuard::count).
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// As [`leasehold::Guard::check`](crate::Guard::check).
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// As [`leasehold::ReentrantGuard::release`](crate::ReentrantGuard::release).
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

fn within_time<T>(wait: Duration, future: impl Future<Output = T>) -> Option<T> {
    block_on(within(async { tokio::time::timeout(wait, future).await.ok() }))
}
