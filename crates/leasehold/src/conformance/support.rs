//! What a suite works on: clients, locks through one of the faces, and waiting for conditions.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Service;
use crate::{ClaimId, Guard, Lock, Locks, Result, Share, Store, blocking};

/// The ways to ask for mutual exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A mutex.
    Mutex,
    /// A semaphore of one slot.
    Slot,
    /// The writer of a reader-writer lock.
    Writer,
    /// A mutex through the blocking faces.
    Blocking,
}

impl LockKind {
    /// All of them, by the name of their tests.
    pub const ALL: [(&'static str, Self); 4] = [
        ("mutex", Self::Mutex),
        ("slot", Self::Slot),
        ("writer", Self::Writer),
        ("blocking", Self::Blocking),
    ];

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

    /// A share of one mutual exclusion in this face.
    pub(super) fn share(self) -> Share {
        match self {
            Self::Mutex | Self::Slot | Self::Blocking => Share::MUTEX,
            Self::Writer => Share::WRITER,
        }
    }
}

/// A lock through a face.
#[derive(Clone)]
pub(super) struct TestLock {
    lock: Lock,
    blocks: bool,
}

impl TestLock {
    pub(super) fn with(self, terms: impl FnOnce(Lock) -> Lock) -> Self {
        Self {
            lock: terms(self.lock),
            ..self
        }
    }

    pub(super) async fn acquire(&self) -> Result<TestGuard> {
        if !self.blocks {
            return self.held(self.lock.acquire().await);
        }
        let lock = blocking::Lock::from(self.lock.clone());
        self.held(independent_clients(move || lock.acquire().map(Guard::from)).await)
    }

    pub(super) async fn try_acquire(&self) -> Result<Option<TestGuard>> {
        let guard = if self.blocks {
            let lock = blocking::Lock::from(self.lock.clone());
            independent_clients(move || Ok(lock.try_acquire()?.map(Guard::from))).await?
        } else {
            self.lock.try_acquire().await?
        };
        guard.map(|guard| self.held(Ok(guard))).transpose()
    }

    pub(super) async fn try_acquire_for(&self, wait: Duration) -> Result<Option<TestGuard>> {
        let guard = if self.blocks {
            let lock = blocking::Lock::from(self.lock.clone());
            independent_clients(move || Ok(lock.try_acquire_for(wait)?.map(Guard::from))).await?
        } else {
            self.lock.try_acquire_for(wait).await?
        };
        guard.map(|guard| self.held(Ok(guard))).transpose()
    }

    fn held(&self, guard: Result<Guard>) -> Result<TestGuard> {
        Ok(TestGuard {
            guard: guard?,
            blocks: self.blocks,
        })
    }
}

/// A guard through a face.
#[derive(Debug)]
pub(super) struct TestGuard {
    guard: Guard,
    blocks: bool,
}

impl TestGuard {
    pub(super) async fn release(self) -> Result<()> {
        if self.blocks {
            let guard = blocking::Guard::from(self.guard);
            return independent_clients(move || guard.release()).await;
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

async fn independent_clients<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work)
        .await
        .expect("a blocking face does not panic")
}

/// One more client of the service.
pub(super) async fn client(service: &dyn Service) -> Locks {
    locks_over(store(service).await)
}

pub(super) async fn store(service: &dyn Service) -> Arc<dyn Store> {
    service
        .connect()
        .await
        .expect("the service can be connected to")
}

pub(super) fn locks_over(store: Arc<dyn Store>) -> Locks {
    Locks::from_arc(store, "conformance:").expect("the background thread runs")
}

/// A name that no other suite or run uses.
pub(super) fn fresh_name(suite: &str) -> String {
    format!("conformance/{suite}/{}", ClaimId::draw())
}

/// The longest that a suite waits for what must come: less than a third of the usual lease, so that nothing that a waiter's
/// renewal would find passes for having been pushed. A holder renews sooner.
pub(super) const TIMEOUT: Duration = Duration::from_secs(9);

/// Asks again and again until the answer is yes.
pub(super) async fn eventually<F: Future<Output = bool>>(what: &str, ask: impl Fn() -> F) {
    let started = Instant::now();
    while !ask().await {
        assert!(
            started.elapsed() < TIMEOUT,
            "not within {TIMEOUT:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until so many claims wait for a name.
pub(super) async fn waiters(locks: &Locks, name: &str, count: usize) {
    eventually(&format!("{count} waiters for {name}"), || async {
        locks
            .inspect(name)
            .await
            .expect("a line can be looked at")
            .waiters()
            .count()
            == count
    })
    .await;
}

/// Waits until nobody holds a name or waits for it.
pub(super) async fn empty(locks: &Locks, name: &str) {
    eventually(&format!("nobody in the line of {name}"), || async {
        locks
            .inspect(name)
            .await
            .expect("a line can be looked at")
            .entries
            .is_empty()
    })
    .await;
}

/// The result of something that must come in time.
pub(super) async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}
