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
//!
//! # The end of a program
//!
//! A guard that is dropped is released in the background, and the background ends with the process. So that the last
//! drop of `main` still reaches the store, the last value of this module that a process drops waits for up to one
//! second for departures that are under way. Inside a runtime it does not wait.
//!
//! [`drain`] does the same at any time. A program calls it before it exits if it keeps [`Locks`] in a `static` (which
//! is never dropped), uses other threads, or waits for longer than a second.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime;

use crate::drain::drain_blocking;
use crate::runtime::background::{block_on, on_background};
use crate::{
    Entry, FencingToken, Guarantees, LockState, LossReason, Name, Owner, RenewalStatus, Result,
    ServerVote, Token,
};

/// As [`leasehold::open`](crate::open).
///
/// # Errors
/// As [`leasehold::open`](crate::open).
pub fn open(url: &str) -> Result<Locks> {
    // Whatever runtime may be around this thread cannot drive anything while the thread is blocked.
    block_on(crate::open::open_on(url, None)).map(Locks::from)
}

/// As [`leasehold::drain`](crate::drain()), for at most `timeout`; returns whether nothing is under way any more.
#[expect(
    clippy::must_use_candidate,
    reason = "a program that exits has no use for the answer"
)]
pub fn drain(timeout: Duration) -> bool {
    drain_blocking(timeout)
}

/// A store, opened; see [`leasehold::Locks`](crate::Locks).
#[derive(Clone, Debug)]
pub struct Locks(crate::Locks, Handle);

/// Both APIs share renewals and connections. Blocking calls send their requests on the background's connection, so they
/// may be called on the thread that drives the caller's own. While that thread is blocked, a waiter there learns of its
/// grant by polling, up to two seconds late.
impl From<crate::Locks> for Locks {
    fn from(locks: crate::Locks) -> Self {
        Self(locks, Handle::new())
    }
}

impl Locks {
    /// As [`leasehold::Locks::mutex`](crate::Locks::mutex).
    #[must_use]
    pub fn mutex(&self, name: &str) -> Lock {
        Lock::from(self.0.mutex(name))
    }

    /// As [`leasehold::Locks::rwlock`](crate::Locks::rwlock).
    #[must_use]
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock(self.0.rwlock(name), Handle::new())
    }

    /// As [`leasehold::Locks::semaphore`](crate::Locks::semaphore).
    #[must_use]
    pub fn semaphore(&self, name: &str, slots: u32) -> Lock {
        Lock::from(self.0.semaphore(name, slots))
    }

    /// As [`leasehold::Locks::reentrant`](crate::Locks::reentrant).
    #[must_use]
    pub fn reentrant(&self, name: &str) -> Reentrant {
        Reentrant(self.0.reentrant(name), Handle::new())
    }

    /// As [`leasehold::Locks::inspect`](crate::Locks::inspect).
    pub fn inspect(&self, name: &str) -> Result<LockState> {
        block_on(self.0.inspect(name))
    }

    /// As [`leasehold::Locks::list`](crate::Locks::list).
    pub fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        block_on(self.0.list(prefix, count_max))
    }

    /// As [`leasehold::Locks::break_hold`](crate::Locks::break_hold).
    pub fn break_hold(&self, name: &str, token: Token) -> Result<Option<Entry>> {
        block_on(self.0.break_hold(name, token))
    }

    /// As [`leasehold::Locks::guarantees`](crate::Locks::guarantees).
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    /// As [`leasehold::Locks::url`](crate::Locks::url).
    #[must_use]
    pub fn url(&self) -> &str {
        self.0.url()
    }
}

/// A lock to acquire; see [`leasehold::Lock`](crate::Lock).
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock, Handle);

impl Lock {
    /// As [`leasehold::Lock::lease`](crate::Lock::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease), self.1)
    }

    /// As [`leasehold::Lock::no_renewal`](crate::Lock::no_renewal).
    #[must_use]
    pub fn no_renewal(self) -> Self {
        Self(self.0.no_renewal(), self.1)
    }

    /// As [`leasehold::Lock::max_hold`](crate::Lock::max_hold).
    #[must_use]
    pub fn max_hold(self, longest: Duration) -> Self {
        Self(self.0.max_hold(longest), self.1)
    }

    /// As [`leasehold::Lock::label`](crate::Lock::label).
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        Self(self.0.label(label), self.1)
    }

    /// As [`leasehold::Lock::permits`](crate::Lock::permits).
    #[must_use]
    pub fn permits(self, slots: u32) -> Self {
        Self(self.0.permits(slots), self.1)
    }

    /// As [`leasehold::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard::from)
    }

    /// As [`leasehold::Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard::from))
    }

    /// As [`leasehold::Lock::try_acquire_for`](crate::Lock::try_acquire_for).
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire_for(wait))?.map(Guard::from))
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
    /// As [`leasehold::RwLock::shared`](crate::RwLock::shared).
    #[must_use]
    pub fn shared(&self) -> Lock {
        Lock::from(self.0.shared())
    }

    /// As [`leasehold::RwLock::exclusive`](crate::RwLock::exclusive).
    #[must_use]
    pub fn exclusive(&self) -> Lock {
        Lock::from(self.0.exclusive())
    }
}

/// A granted lock; see [`leasehold::Guard`](crate::Guard). Dropping it releases in the background; see
/// [the end of a program](self#the-end-of-a-program).
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(crate::Guard, Handle);

impl Guard {
    /// As [`leasehold::Guard::token`](crate::Guard::token).
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// As [`leasehold::Guard::fencing_token`](crate::Guard::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
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
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss()
    }

    /// As [`leasehold::Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// As [`leasehold::Guard::votes`](crate::Guard::votes).
    #[must_use]
    pub fn votes(&self) -> Vec<ServerVote> {
        self.0.votes()
    }

    /// As [`leasehold::Guard::renewal`](crate::Guard::renewal).
    #[must_use]
    pub fn renewal(&self) -> RenewalStatus {
        self.0.renewal()
    }

    /// Sleeps until the lock is lost, but for no longer than `wait`; why it was lost, or `None` if it was not.
    #[must_use]
    pub fn lost_timeout(&self, wait: Duration) -> Option<LossReason> {
        block_on_timeout(wait, self.0.lost())
    }

    /// As [`leasehold::Guard::inheritable_fds`](crate::Guard::inheritable_fds).
    pub fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.0.inheritable_fds()
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
        Self(guard, Handle::new())
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
pub struct Reentrant(crate::Reentrant, Handle);

impl Reentrant {
    /// As [`leasehold::Reentrant::configure`](crate::Reentrant::configure).
    #[must_use]
    pub fn configure(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        Self(self.0.configure(|lock| change(Lock::from(lock)).0), self.1)
    }

    /// As [`leasehold::Reentrant::acquire`](crate::Reentrant::acquire).
    pub fn acquire(&self, owner: &Owner) -> Result<ReentrantGuard> {
        block_on(self.0.acquire(owner)).map(ReentrantGuard::from)
    }

    /// As [`leasehold::Reentrant::try_acquire`](crate::Reentrant::try_acquire).
    pub fn try_acquire(&self, owner: &Owner) -> Result<Option<ReentrantGuard>> {
        Ok(block_on(self.0.try_acquire(owner))?.map(ReentrantGuard::from))
    }

    /// As [`leasehold::Reentrant::try_acquire_for`](crate::Reentrant::try_acquire_for).
    pub fn try_acquire_for(&self, owner: &Owner, wait: Duration) -> Result<Option<ReentrantGuard>> {
        Ok(block_on(self.0.try_acquire_for(owner, wait))?.map(ReentrantGuard::from))
    }
}

/// One of an owner's acquires; see [`leasehold::ReentrantGuard`](crate::ReentrantGuard).
#[derive(Debug)]
#[must_use = "this acquire is undone when the guard is dropped"]
pub struct ReentrantGuard(crate::ReentrantGuard, Handle);

impl From<crate::ReentrantGuard> for ReentrantGuard {
    fn from(guard: crate::ReentrantGuard) -> Self {
        Self(guard, Handle::new())
    }
}

impl ReentrantGuard {
    /// As [`leasehold::ReentrantGuard::token`](crate::ReentrantGuard::token).
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// As [`leasehold::Guard::fencing_token`](crate::Guard::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
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

fn block_on_timeout<T>(wait: Duration, future: impl Future<Output = T>) -> Option<T> {
    block_on(on_background(async {
        tokio::time::timeout(wait, future).await.ok()
    }))
}

/// In every value of this module. The last one that a process drops drains.
#[derive(Debug)]
struct Handle(());

/// How many there are.
static HANDLES: AtomicUsize = AtomicUsize::new(0);

/// A release is one round trip. A store that has not replied by then frees the lock by itself.
const EXIT_DRAIN_MAX: Duration = Duration::from_secs(1);

impl Handle {
    fn new() -> Self {
        HANDLES.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new()
    }
}

/// A struct drops its fields in order, so the guard that this handle belongs to has begun its departure.
impl Drop for Handle {
    fn drop(&mut self) {
        let is_last = HANDLES.fetch_sub(1, Ordering::AcqRel) == 1;

        // A thread of a runtime must not be blocked by a drop, and a runtime outlives its tasks.
        if is_last && runtime::Handle::try_current().is_err() {
            drain_blocking(EXIT_DRAIN_MAX);
        }
    }
}
