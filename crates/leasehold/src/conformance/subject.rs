//! What a suite works on: clients, locks through one of the faces, and waiting for conditions.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Service;
use crate::{ClaimId, Guard, Lock, Locks, Result, Share, Store, blocking};

/// The ways to ask for mutual exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// A mutex.
    Mutex,
    /// A semaphore of one slot.
    Slot,
    /// The writer of a reader-writer lock.
    Writer,
    /// A mutex through the blocking faces.
    Blocking,
}

impl Face {
    /// All of them, by the name of their tests.
    pub const ALL: [(&'static str, Self); 4] =
        [("mutex", Self::Mutex), ("slot", Self::Slot), ("writer", Self::Writer), ("blocking", Self::Blocking)];

    pub(super) fn lock(self, locks: &Locks, name: &str) -> Wanted {
        let lock = match self {
            Self::Mutex | Self::Blocking => locks.mutex(name),
            Self::Slot => locks.semaphore(name, 1),
            Self::Writer => locks.rwlock(name).exclusive(),
        };
        Wanted { lock, blocks: self == Self::Blocking }
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
pub(super) struct Wanted {
    lock: Lock,
    blocks: bool,
}

impl Wanted {
    pub(super) fn with(self, terms: impl FnOnce(Lock) -> Lock) -> Self {
        Self { lock: terms(self.lock), ..self }
    }

    pub(super) async fn acquire(&self) -> Result<Held> {
        if !self.blocks {
            return self.held(self.lock.acquire().await);
        }
        let lock = blocking::Lock::from(self.lock.clone());
        self.held(apart(move || lock.acquire().map(Guard::from)).await)
    }

    pub(super) async fn try_acquire(&self) -> Result<Option<Held>> {
        let guard = if self.blocks {
            let lock = blocking::Lock::from(self.lock.clone());
            apart(move || Ok(lock.try_acquire()?.map(Guard::from))).await?
        } else {
            self.lock.try_acquire().await?
        };
        guard.map(|guard| self.held(Ok(guard))).transpose()
    }

    pub(super) async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Held>> {
        let guard = if self.blocks {
            let lock = blocking::Lock::from(self.lock.clone());
            apart(move || Ok(lock.try_acquire_for(wait)?.map(Guard::from))).await?
        } else {
            self.lock.try_acquire_for(wait).await?
        };
        guard.map(|guard| self.held(Ok(guard))).transpose()
    }

    fn held(&self, guard: Result<Guard>) -> Result<Held> {
        Ok(Held { guard: guard?, blocks: self.blocks })
    }
}

/// A guard through a face.
#[derive(Debug)]
pub(super) struct Held {
    guard: Guard,
    blocks: bool,
}

impl Held {
    pub(super) async fn release(self) -> Result<()> {
        if self.blocks {
            let guard = blocking::Guard::from(self.guard);
            return apart(move || guard.release()).await;
        }
        self.guard.release().await
    }
}

impl std::ops::Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("a blocking face does not panic")
}

/// One more client of the service.
pub(super) async fn client(service: &dyn Service) -> Locks {
    over(store(service).await)
}

pub(super) async fn store(service: &dyn Service) -> Arc<dyn Store> {
    service.connect().await.expect("the service can be connected to")
}

pub(super) fn over(store: Arc<dyn Store>) -> Locks {
    Locks::over(store, "conformance:").expect("the background thread runs")
}

/// A name that no other suite or run uses.
pub(super) fn fresh_name(suite: &str) -> String {
    format!("conformance/{suite}/{}", ClaimId::draw())
}

/// The longest that a suite waits for what must come: less than a third of the usual lease, so that nothing that a waiter's
/// renewal would find passes for having been pushed. A holder renews sooner.
pub(super) const PATIENCE: Duration = Duration::from_secs(9);

/// Asks again and again until the answer is yes.
pub(super) async fn eventually<F: Future<Output = bool>>(what: &str, ask: impl Fn() -> F) {
    let started = Instant::now();
    while !ask().await {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until so many claims wait for a name.
pub(super) async fn waiters(locks: &Locks, name: &str, count: usize) {
    eventually(&format!("{count} waiters for {name}"), || async {
        locks.look(name).await.expect("a line can be looked at").waiters().count() == count
    })
    .await;
}

/// Waits until nobody holds a name or waits for it.
pub(super) async fn empty(locks: &Locks, name: &str) {
    eventually(&format!("nobody in the line of {name}"), || async {
        locks.look(name).await.expect("a line can be looked at").entries.is_empty()
    })
    .await;
}

/// The result of something that must come in time.
pub(super) async fn soon<T: Debug>(what: &str, answer: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    answer.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}
