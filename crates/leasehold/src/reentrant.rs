//! A mutex that its owner may acquire again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use crate::engine::Engine;
use crate::runtime::background::on_background;
use crate::{Guard, Lock, Locks, Result, Token};

/// Somebody who may hold a [`Reentrant`] mutex more than once: a task, a thread, a request.
///
/// Ownership is this value and its clones, never a thread id: hand a clone to whoever acts for the same owner, and make
/// a new one for whoever does not.
///
/// ```
/// let owner = leasehold::Owner::new();
/// let also_me = owner.clone();
/// assert!(owner == also_me && owner != leasehold::Owner::new());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Owner {
    holds: Arc<parking_lot::Mutex<HashMap<String, Vec<OwnerEntry>>>>,
}

/// What an owner has under one name of one store.
#[derive(Clone, Debug)]
struct OwnerEntry {
    /// Which store; a guard keeps it open, an owner does not.
    engine: Weak<Engine>,
    owned_hold: Arc<OwnedHold>,
}

#[derive(Debug, Default)]
struct OwnedHold {
    hold: parking_lot::Mutex<Weak<Guard>>,
    /// Taken for a first acquire, so that two of one owner's tasks cannot queue up behind each other. Nested ones do not
    /// take it, and so are in nobody's way.
    first: AsyncMutex<()>,
}

impl Owner {
    /// A new owner, the same as nobody else.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn owned_hold(&self, locks: &Locks, name: &str) -> Arc<OwnedHold> {
        let engine = Arc::downgrade(locks.engine());
        let mut holds = self.holds.lock();
        // What is neither held nor being acquired need not be remembered.
        holds.retain(|_, entries| {
            entries.retain(|entry| {
                Arc::strong_count(&entry.owned_hold) > 1 || entry.owned_hold.is_held()
            });
            !entries.is_empty()
        });
        let entries = holds.entry(name.to_owned()).or_default();
        if let Some(entry) = entries
            .iter()
            .find(|entry| Weak::ptr_eq(&entry.engine, &engine))
        {
            return Arc::clone(&entry.owned_hold);
        }
        let entry = OwnerEntry {
            engine,
            owned_hold: Arc::default(),
        };
        entries.push(entry.clone());
        entry.owned_hold
    }
}

impl OwnedHold {
    fn is_held(&self) -> bool {
        self.hold.lock().strong_count() > 0
    }

    fn reenter(&self) -> Result<Option<ReentrantGuard>> {
        let Some(guard) = self.hold.lock().upgrade() else {
            return Ok(None);
        };
        guard.check()?;
        Ok(Some(ReentrantGuard { guard }))
    }

    fn enter_first(&self, guard: Guard) -> ReentrantGuard {
        let guard = Arc::new(guard);
        *self.hold.lock() = Arc::downgrade(&guard);
        ReentrantGuard { guard }
    }
}

/// Owners are the same if one is a clone of the other.
impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.holds, &other.holds)
    }
}

impl Eq for Owner {}

/// A mutex that its owner may acquire again while holding it.
///
/// The first acquire asks the store; nested ones only count, and cost no store call. The lock is free when the last
/// guard is gone. All guards of one hold share its token.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let lock = leasehold::open("memory:").await?.reentrant("ledger");
/// let me = leasehold::Owner::new();
/// let outer = lock.acquire(&me).await?;
/// let inner = lock.acquire(&me).await?;
/// assert_eq!(outer.token(), inner.token());
/// assert!(lock.try_acquire(&leasehold::Owner::new()).await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Reentrant {
    lock: Lock,
}

impl Reentrant {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// Changes the terms of the first acquire, as on any [`Lock`]; nested ones share the first one's.
    #[must_use]
    pub fn configure(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        Self {
            lock: change(self.lock),
        }
    }

    /// Waits in line for as long as it takes, or counts one more if `owner` holds it already.
    ///
    /// # Errors
    /// As [`Lock::acquire`]; [`is_lost`](crate::Error::is_lost) if an outer guard of this owner has lost the lock: a nested
    /// acquire never takes it anew behind the outer one's back.
    ///
    /// *Cancel safety*: as [`Lock::acquire`].
    pub async fn acquire(&self, owner: &Owner) -> Result<ReentrantGuard> {
        let owned_hold = owner.owned_hold(self.lock.locks(), self.lock.name());
        if let Some(again) = owned_hold.reenter()? {
            return Ok(again);
        }
        let _first = owned_hold.first.lock().await;
        match owned_hold.reenter()? {
            Some(again) => Ok(again),
            None => Ok(owned_hold.enter_first(self.lock.acquire().await?)),
        }
    }

    /// As [`acquire`](Self::acquire), but `None` if it would have to wait.
    pub async fn try_acquire(&self, owner: &Owner) -> Result<Option<ReentrantGuard>> {
        let owned_hold = owner.owned_hold(self.lock.locks(), self.lock.name());
        if let Some(again) = owned_hold.reenter()? {
            return Ok(Some(again));
        }
        // Another of this owner's tasks is waiting in line, or has just been granted.
        let Ok(_first) = owned_hold.first.try_lock() else {
            return owned_hold.reenter();
        };
        match owned_hold.reenter()? {
            Some(again) => Ok(Some(again)),
            None => Ok(self
                .lock
                .try_acquire()
                .await?
                .map(|guard| owned_hold.enter_first(guard))),
        }
    }

    /// As [`acquire`](Self::acquire), but `None` if it was not granted within `wait`.
    pub async fn try_acquire_for(
        &self,
        owner: &Owner,
        wait: Duration,
    ) -> Result<Option<ReentrantGuard>> {
        let owned_hold = owner.owned_hold(self.lock.locks(), self.lock.name());
        if let Some(again) = owned_hold.reenter()? {
            return Ok(Some(again));
        }
        let started = std::time::Instant::now();
        let Ok(_first) =
            on_background(async { tokio::time::timeout(wait, owned_hold.first.lock()).await })
                .await
        else {
            return owned_hold.reenter();
        };
        let left = wait.saturating_sub(started.elapsed());
        match owned_hold.reenter()? {
            Some(again) => Ok(Some(again)),
            None => Ok(self
                .lock
                .try_acquire_for(left)
                .await?
                .map(|guard| owned_hold.enter_first(guard))),
        }
    }
}

/// One of an owner's acquires of a [`Reentrant`] mutex; the lock is free when the last of them is gone.
///
/// It is a [`Guard`] in all but its release.
#[derive(Debug)]
#[must_use = "this acquire is undone when the guard is dropped"]
pub struct ReentrantGuard {
    guard: Arc<Guard>,
}

impl ReentrantGuard {
    /// The token of the one hold all of this owner's guards share.
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// How many guards this hold has now.
    #[must_use]
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.guard)
    }

    /// Undoes this acquire; if it was the last, releases the lock and waits for the store's word.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost before; for the last guard also as [`Guard::release`].
    ///
    /// *Cancel safety*: as [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        let before = self.guard.check();
        match Arc::into_inner(self.guard) {
            Some(last) => last.release().await,
            None => before,
        }
    }
}

impl std::ops::Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
