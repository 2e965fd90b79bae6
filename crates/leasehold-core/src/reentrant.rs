//! A mutex that its owner may acquire again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::TryFutureExt;
use tokio::sync::futures::Notified;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify};
use tokio::time::timeout;

use crate::engine::{StoreId, WaitLimit};
use crate::runtime::background::on_background;
use crate::runtime::backoff::Backoff;
use crate::runtime::fork::check_not_forked;
use crate::store::replies;
use crate::{ClaimId, Error, Guard, Lock, Refused, Result, Token};

/// The owner of [`Reentrant`] mutexes: a task, a thread, a request.
///
/// This value and its clones identify the owner; a thread id does not. Every part of a program that
/// acts for one owner uses a clone. It is one owner in all [`Locks`](crate::Locks) of a store, also
/// if the store was opened twice. [`Locks::url`](crate::Locks::url) tells the store from others, and each
/// [`Memory`](crate::stores::Memory) is a store of its own.
///
/// ```
/// let owner = leasehold::Owner::new();
/// let also_me = owner.clone();
/// assert!(owner == also_me && owner != leasehold::Owner::new());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Owner {
    holds: Arc<parking_lot::Mutex<OwnedHolds>>,
    /// Notified when a first acquire of the owner is granted.
    granted: Arc<Notify>,
}

/// The holds by store and name. A guard keeps its store open; an owner does not.
type OwnedHolds = HashMap<(StoreId, String), Arc<OwnedHold>>;

/// The hold of an owner under one name of one store.
#[derive(Debug, Default)]
struct OwnedHold {
    /// Whoever upgrades it for a moment only keeps the mutex locked, because a release must find
    /// out whether its guard is the last one.
    hold: parking_lot::Mutex<Weak<Guard>>,
    /// The first acquire takes it, so that two tasks of one owner do not wait for each other.
    /// Nested acquires do not take it.
    first: AsyncMutex<()>,
}

impl Owner {
    /// Creates an owner that differs from all others.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn owned_hold(&self, lock: &Lock) -> Result<Arc<OwnedHold>> {
        let locks = lock.locks();
        let name = lock.name();
        check_not_forked().map_err(|error| error.during("acquire", locks.url(), Some(name)))?;

        let mut holds = self.holds.lock();
        // Each guard, and each acquire, has a clone of its entry.
        holds.retain(|_, hold| Arc::strong_count(hold) > 1);

        let key = (locks.engine.calls.store_id(), name.to_owned());
        Ok(Arc::clone(holds.entry(key).or_default()))
    }

    /// Refuses a lock that the owner holds through another URL of its store, before an acquire with
    /// this limit.
    async fn check_store_is_another(&self, lock: &Lock, limit: WaitLimit) -> Result<()> {
        let claims = self.claims_named(lock.name());
        if !lock.is_held_by(&claims, limit).await? {
            return Ok(());
        }

        let error = Error::invalid(
            "its owner holds it through another URL of this store, and would wait for itself",
        );
        let error = error.help("open the store by one URL");
        Err(error.during("acquire", lock.locks().url(), Some(lock.name())))
    }

    /// Waits until the owner is granted the lock through another URL, in an acquire that was under
    /// way. `next_grant` was created before the last check.
    async fn would_wait_for_itself(&self, lock: &Lock, mut next_grant: Notified<'_>) -> Error {
        let mut backoff = Backoff::default();
        loop {
            next_grant.await;
            next_grant = self.granted.notified();

            // The box keeps the future of every acquire small.
            while let Err(error) =
                Box::pin(self.check_store_is_another(lock, WaitLimit::Forever)).await
            {
                // The acquire itself decides how long the store may be away.
                if !error.is_unavailable() {
                    return error;
                }
                backoff.wait().await;
            }
        }
    }

    /// Returns the claims that the owner holds under this name, whatever their store.
    fn claims_named(&self, name: &str) -> Vec<ClaimId> {
        let holds = self.holds.lock();
        let named = holds.iter().filter(|((_, held), _)| held == name);
        let claims = named.filter_map(|(_, owned_hold)| {
            let hold = owned_hold.hold.lock();
            Some(hold.upgrade()?.claim_id())
        });
        claims.collect()
    }
}

impl OwnedHold {
    fn reenter(self: &Arc<Self>) -> Result<Option<ReentrantGuard>> {
        let hold = self.hold.lock();
        let Some(guard) = hold.upgrade() else {
            return Ok(None);
        };
        guard.check()?;
        let owned_hold = Arc::clone(self);
        Ok(Some(ReentrantGuard { guard, owned_hold }))
    }

    /// Waits until no other task acquires the lock for the owner; `None` if that takes too long.
    async fn enter(&self, limit: WaitLimit) -> Option<MutexGuard<'_, ()>> {
        match limit {
            WaitLimit::Forever => Some(self.first.lock().await),
            WaitLimit::Never => self.first.try_lock().ok(),
            WaitLimit::AtMost(limit) => {
                on_background(async { timeout(limit, self.first.lock()).await.ok() }).await
            }
        }
    }

    fn enter_first(self: &Arc<Self>, guard: Guard) -> ReentrantGuard {
        let guard = Arc::new(guard);
        *self.hold.lock() = Arc::downgrade(&guard);
        let owned_hold = Arc::clone(self);
        ReentrantGuard { guard, owned_hold }
    }

    /// Ends an acquire while another task of its owner acquires the lock.
    ///
    /// That task waits for a holder, or for a store that is down. Reading the store shows which.
    async fn refused(self: &Arc<Self>, lock: &Lock) -> Result<Result<ReentrantGuard, Refused>> {
        if let Some(again) = self.reenter()? {
            return Ok(Ok(again));
        }

        let lock_state = lock.locks().inspect(lock.name()).await?;
        match self.reenter()? {
            Some(again) => Ok(Ok(again)),
            None => Ok(Err(replies::refused(lock_state, None))),
        }
    }
}

/// Owners are equal if one is a clone of the other.
impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.holds, &other.holds)
    }
}

impl Eq for Owner {}

/// A mutex that its owner may acquire again while it holds it.
///
/// The first acquire sends a request to the store; nested acquires only count. The lock is free
/// when the last guard has been dropped or released. All guards of one hold share its token.
///
/// Only this lock knows the owner. A [mutex](crate::Locks::mutex) of the same name has none: if the
/// owner holds this lock, an acquire of that mutex waits for the owner, which must not await it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let lock = leasehold::open("memory:").await?.reentrant("ledger");
/// let me = leasehold::Owner::new();
/// let outer = lock.acquire(&me).await?;
/// let inner = lock.acquire(&me).await?;
/// assert_eq!(outer.token(), inner.token());
/// assert!(lock.try_acquire(&leasehold::Owner::new()).await?.is_err());
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

    /// Returns the name as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Changes the options of the first acquire, as on any [`Lock`]; nested acquires share them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let lock = locks.reentrant("ledger").configure(|lock| lock.label("billing"));
    /// let guard = lock.acquire(&leasehold::Owner::new()).await?;
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn configure(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        Self {
            lock: change(self.lock),
        }
    }

    /// Waits in the queue until the lock is granted. If `owner` holds the lock, it only counts one
    /// more acquire.
    ///
    /// # Errors
    /// As [`Lock::acquire`]. Also [`is_lost`](crate::Error::is_lost) if an outer guard of this
    /// owner has lost the lock: a nested acquire does not acquire it again. And
    /// [`is_invalid`](crate::Error::is_invalid) if the owner holds the lock through another URL of
    /// its store, because it would wait for itself.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn acquire(
        &self,
        owner: &Owner,
    ) -> impl Future<Output = Result<ReentrantGuard>> + Send + use<> {
        let acquiring = self
            .clone()
            .acquire_within(owner.clone(), WaitLimit::Forever);
        acquiring.map_ok(|granted| granted.expect("without a limit the wait ends with a grant"))
    }

    /// Acquires as [`acquire`](Self::acquire); returns who holds the lock if it would have to wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let me = leasehold::Owner::new();
    /// let guard = locks.reentrant("ledger").acquire(&me).await?;
    /// assert!(locks.reentrant("ledger").try_acquire(&me).await?.is_ok());
    /// let other = leasehold::Owner::new();
    /// assert!(locks.reentrant("ledger").try_acquire(&other).await?.is_err());
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn try_acquire(
        &self,
        owner: &Owner,
    ) -> impl Future<Output = Result<Result<ReentrantGuard, Refused>>> + Send + use<> {
        self.clone().acquire_within(owner.clone(), WaitLimit::Never)
    }

    /// Acquires as [`acquire`](Self::acquire); returns who holds the lock if that takes longer than
    /// `timeout`.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn try_acquire_for(
        &self,
        owner: &Owner,
        timeout: Duration,
    ) -> impl Future<Output = Result<Result<ReentrantGuard, Refused>>> + Send + use<> {
        self.clone()
            .acquire_within(owner.clone(), WaitLimit::AtMost(timeout))
    }

    async fn acquire_within(
        self,
        owner: Owner,
        limit: WaitLimit,
    ) -> Result<Result<ReentrantGuard, Refused>> {
        let deadline = limit.deadline();
        let owned_hold = owner.owned_hold(&self.lock)?;
        if let Some(again) = owned_hold.reenter()? {
            return Ok(Ok(again));
        }

        // Otherwise another task of this owner waits in the queue, or has just been granted.
        let Some(_first) = owned_hold.enter(limit).await else {
            return owned_hold.refused(&self.lock).await;
        };
        if let Some(again) = owned_hold.reenter()? {
            return Ok(Ok(again));
        }

        let next_grant = owner.granted.notified();
        let rest = limit.rest(deadline);
        owner.check_store_is_another(&self.lock, rest).await?;
        let acquiring = self.lock.acquire_within(limit.rest(deadline));
        let refused = on_background(owner.would_wait_for_itself(&self.lock, next_grant));
        let granted = tokio::select! {
            biased;
            granted = acquiring => granted?,
            error = refused => return Err(error),
        };

        Ok(granted.map(|guard| {
            let guard = owned_hold.enter_first(guard);
            owner.granted.notify_waiters();
            guard
        }))
    }
}

/// One of an owner's acquires of a [`Reentrant`] mutex; the release of the last one frees the lock.
///
/// It has all methods of a [`Guard`], and a release of its own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let me = leasehold::Owner::new();
/// let outer = locks.reentrant("ledger").acquire(&me).await?;
/// let inner = locks.reentrant("ledger").acquire(&me).await?;
/// inner.release().await?;
/// outer.check()?; // the lock is still held
/// outer.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "this acquire is undone when the guard is dropped"]
pub struct ReentrantGuard {
    guard: Arc<Guard>,
    owned_hold: Arc<OwnedHold>,
}

impl ReentrantGuard {
    /// Returns the token of the hold that all of this owner's guards share.
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// Returns how many guards the hold has now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let me = leasehold::Owner::new();
    /// let outer = locks.reentrant("ledger").acquire(&me).await?;
    /// let inner = locks.reentrant("ledger").acquire(&me).await?;
    /// assert_eq!(outer.count(), 2);
    /// # drop(inner);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.guard)
    }

    /// Undoes this acquire. The last guard releases the lock and waits for the store's reply.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost before; for the last guard also as
    /// [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        let before = self.guard.check();
        let hold = self.owned_hold.hold.lock();
        let last = Arc::into_inner(self.guard);
        drop(hold);

        match last {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Locks;
    use crate::stores::Memory;

    #[tokio::test]
    async fn owner_forgets_the_locks_that_it_no_longer_holds() {
        let locks = Locks::from_store(Memory::new(), "memory:").expect("it starts");
        let owner = Owner::new();
        let held = locks.reentrant("held").acquire(&owner).await;
        for name in ["a", "b", "c"] {
            let guard = locks.reentrant(name).acquire(&owner).await;
            guard.expect("granted").release().await.expect("released");
        }
        assert_eq!(owner.holds.lock().len(), 2, "the held one and the last one");

        let again = locks.reentrant("held").acquire(&owner).await;
        let again = again.expect("it does not wait for itself");
        assert_eq!(again.count(), 2);
        drop(held);
    }

    #[test]
    fn clones_of_an_owner_are_equal() {
        let owner = Owner::new();
        assert_eq!(owner, owner.clone());
        assert_ne!(owner, Owner::new());
    }

    /// Another task of the owner may look at its holds at any moment.
    #[tokio::test]
    async fn last_release_ends_after_the_reply_beside_other_tasks_of_the_owner() {
        let locks = Locks::from_store(Memory::new(), "memory:").expect("it starts");
        let lock = locks.reentrant("a");
        let owner = Owner::new();
        let is_over = Arc::new(AtomicBool::new(false));
        let looking = std::thread::spawn({
            let (owner, is_over) = (owner.clone(), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    owner.claims_named("a");
                }
            }
        });

        for _ in 0..30_000 {
            let guard = lock.acquire(&owner).await.expect("granted");
            guard.release().await.expect("released");
            let lock_state = locks.inspect("a").await.expect("a state");
            assert_eq!(lock_state.entries, [], "the release has returned before");
        }
        is_over.store(true, Ordering::Relaxed);
        looking.join().expect("it ends");
    }
}
