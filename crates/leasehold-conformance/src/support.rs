//! Test support: clients, claims, and waiting for conditions.
//!
//! Suites, and tests of single stores, share these functions.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::Service;
use leasehold_core::store::{
    Claim, OnContention, Share, Standing, Store, claimant_here, draw_claim_id,
};
use leasehold_core::{Guard, Lock, Locks, Name, Refused, Result, Token, blocking};

/// The longest time for which a test waits for an event that must happen.
///
/// This is less than a third of the usual lease, so an event that only the renewal of a waiter
/// finds comes too late. A holder renews sooner; [`PUSHED_LEASE`] is for holders.
pub const TIMEOUT: Duration = Duration::from_secs(9);

/// A lease so long that no renewal of a holder is due within [`TIMEOUT`]. So a loss that a holder
/// observes in time was pushed by the store.
pub const PUSHED_LEASE: Duration = Duration::from_secs(120);

/// Returns the result of a future that must resolve within [`TIMEOUT`].
///
/// # Cancel safety
/// Dropping this drops the future.
pub async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, reply)
        .await
        .unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

/// Checks a condition again and again until it holds.
///
/// # Cancel safety
/// Dropping this ends the checks.
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let started = Instant::now();
    while !condition().await {
        assert!(
            started.elapsed() < TIMEOUT,
            "not within {TIMEOUT:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until a name has this number of waiters.
///
/// # Cancel safety
/// Dropping this changes nothing.
pub async fn waiters(locks: &Locks, name: &str, count: usize) {
    eventually(&format!("{count} waiters for {name}"), || async {
        let lock_state = locks.inspect(name).await.expect("inspected");
        lock_state.waiters().count() == count
    })
    .await;
}

/// Waits until a name has neither a holder nor a waiter.
///
/// # Cancel safety
/// Dropping this changes nothing.
pub async fn empty(locks: &Locks, name: &str) {
    eventually(&format!("an empty queue of {name}"), || async {
        let lock_state = locks.inspect(name).await.expect("inspected");
        lock_state.entries.is_empty()
    })
    .await;
}

/// A name that no other suite or run uses.
#[must_use]
pub fn fresh_name(suite: &str) -> String {
    format!("conformance/{suite}/{}", draw_claim_id())
}

/// A claim for the whole lock of a name, with a new id and the usual lease.
#[must_use]
pub fn claim(name: &str) -> Claim {
    let info = claimant_here("").expect("a valid label");
    Claim::new(
        Name::parse(name).expect("a valid name"),
        Share::MUTEX,
        info.into(),
    )
}

/// One more client of the service.
pub(super) async fn client(service: &dyn Service) -> Locks {
    locks_over(store(service).await)
}

pub(super) async fn store(service: &dyn Service) -> Arc<dyn Store> {
    service.connect().await.expect("the service is connected")
}

pub(super) fn locks_over(store: Arc<dyn Store>) -> Locks {
    Locks::from_arc(store, "conformance:").expect("the background thread runs")
}

/// Acquires a lock that must be granted within [`TIMEOUT`].
pub(super) async fn acquire(lock: &Lock) -> Guard {
    within_timeout("the lock is granted", lock.acquire())
        .await
        .expect("granted")
}

/// Acquires a lock without waiting; `None` if it is not free.
pub(super) async fn try_acquire(lock: &Lock) -> Option<Guard> {
    lock.try_acquire().await.expect("the store replies").ok()
}

/// A lease whose end a suite waits for. A store waits for a reply only as long as a part of the lease,
/// and a server on a busy machine needs more than the third of a second that a shorter one leaves.
pub(super) const BRIEF_LEASE: Duration = Duration::from_secs(3);

/// Starts an acquire in a task of its own.
pub(super) fn spawn_acquire(lock: &Lock) -> JoinHandle<Result<Guard>> {
    tokio::spawn(lock.acquire())
}

/// The result of a task that acquires, which must succeed within [`TIMEOUT`].
pub(super) async fn granted<T: Debug>(acquiring: JoinHandle<Result<T>>) -> T {
    let granted = within_timeout("the waiter is granted", acquiring).await;
    granted.expect("the task ran").expect("granted")
}

/// Waits until all tasks have ended, each within [`TIMEOUT`].
pub(super) async fn all_end(mut tasks: JoinSet<()>) {
    while let Some(done) = within_timeout("every task ends", tasks.join_next()).await {
        done.expect("no task fails");
    }
}

/// Releases a guard that must still be held.
pub(super) async fn release(guard: Guard) {
    guard.release().await.expect("released");
}

/// Breaks the hold with this token, which must exist.
pub(super) async fn break_held(operator: &Locks, name: &str, token: Token) {
    let broken = operator.break_hold(name, token).await;
    broken
        .expect("the store replies")
        .expect("the lock was held");
}

/// Sends a request to enter, and returns the standing in the reply.
pub(super) async fn enter(
    store: &dyn Store,
    claim: &Claim,
    on_contention: OnContention,
) -> Standing {
    let entered = store.enter(claim, on_contention).await;
    entered.expect("the store replies").standing
}

/// The ways to acquire a lock exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockKind {
    /// A mutex.
    Mutex,
    /// A semaphore of one slot.
    Slot,
    /// The writer of a reader-writer lock.
    Writer,
    /// A mutex through the blocking API.
    Blocking,
}

impl LockKind {
    pub(super) fn lock(self, locks: &Locks, name: &str) -> TestLock {
        let lock = match self {
            Self::Mutex | Self::Blocking => locks.mutex(name),
            Self::Slot => locks.semaphore(name, 1),
            Self::Writer => locks.rwlock(name).exclusive(),
        };
        TestLock {
            lock,
            blocks: self == Self::Blocking,
        }
    }

    /// The share of an exclusive claim of this kind.
    pub(super) fn share(self) -> Share {
        match self {
            Self::Mutex | Self::Slot | Self::Blocking => Share::MUTEX,
            Self::Writer => Share::WRITER,
        }
    }
}

/// A lock of one kind.
#[derive(Clone)]
pub(super) struct TestLock {
    lock: Lock,
    blocks: bool,
}

impl TestLock {
    pub(super) fn with(self, configure: impl FnOnce(Lock) -> Lock) -> Self {
        Self {
            lock: configure(self.lock),
            ..self
        }
    }

    pub(super) async fn acquire(&self) -> Result<TestGuard> {
        let guard = if self.blocks {
            let lock = blocking::Lock::from(self.lock.clone());
            on_blocking_thread(move || lock.acquire().map(Guard::from)).await?
        } else {
            self.lock.acquire().await?
        };
        Ok(self.held(guard))
    }

    pub(super) async fn try_acquire(&self) -> Result<Result<TestGuard, Refused>> {
        let guard = if self.blocks {
            let lock = blocking::Lock::from(self.lock.clone());
            on_blocking_thread(move || Ok(lock.try_acquire()?.map(Guard::from))).await?
        } else {
            self.lock.try_acquire().await?
        };
        Ok(guard.map(|guard| self.held(guard)))
    }

    pub(super) async fn try_acquire_for(
        &self,
        wait: Duration,
    ) -> Result<Result<TestGuard, Refused>> {
        let guard = if self.blocks {
            let lock = blocking::Lock::from(self.lock.clone());
            on_blocking_thread(move || Ok(lock.try_acquire_for(wait)?.map(Guard::from))).await?
        } else {
            self.lock.try_acquire_for(wait).await?
        };
        Ok(guard.map(|guard| self.held(guard)))
    }

    fn held(&self, guard: Guard) -> TestGuard {
        TestGuard {
            guard,
            blocks: self.blocks,
        }
    }
}

/// A guard of one kind.
#[derive(Debug)]
pub(super) struct TestGuard {
    guard: Guard,
    blocks: bool,
}

impl TestGuard {
    pub(super) async fn release(self) -> Result<()> {
        if self.blocks {
            let guard = blocking::Guard::from(self.guard);
            return on_blocking_thread(move || guard.release()).await;
        }
        self.guard.release().await
    }
}

impl std::ops::Deref for TestGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

pub(super) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    tokio::task::spawn_blocking(work)
        .await
        .expect("the blocking API does not panic")
}
