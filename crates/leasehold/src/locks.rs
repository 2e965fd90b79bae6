//! A store, opened.

use std::sync::Arc;

use crate::engine::Engine;
use crate::runtime::background::on_background;
use crate::{
    Claim, Entry, Guarantees, Lock, LockState, Name, Reentrant, Result, RwLock, Share, Store, Token,
};

/// A store, opened: where locks come from.
///
/// Cloning is cheap, and clones share renewals and connections. Make one per store and program.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let mutex = locks.mutex("nightly");
/// let slot = locks.semaphore("gpu", 4);
/// let reader = locks.rwlock("config").shared();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    engine: Arc<Engine>,
}

impl Locks {
    /// Opens a store that was built without [`open`](crate::open()).
    ///
    /// `url` is the store's URL without its password. Errors and logs show it.
    ///
    /// ```
    /// use leasehold::{Locks, stores::Memory};
    /// let locks = Locks::from_store(Memory::new(), "memory:")?;
    /// # assert!(locks.guarantees().tokens);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_unavailable`](crate::Error::is_unavailable) if the background thread cannot be started.
    pub fn from_store(store: impl Store, url: &str) -> Result<Self> {
        Self::from_arc(Arc::new(store), url)
    }

    pub(crate) fn from_arc(store: Arc<dyn Store>, url: &str) -> Result<Self> {
        let engine = Engine::new(store, url)?;
        Ok(Self { engine })
    }

    /// A lock that one claim holds at a time; on one name, the same as the writer of [`rwlock`](Self::rwlock).
    ///
    /// A name of 0 or more than 512 bytes is refused when it is acquired.
    #[must_use]
    pub fn mutex(&self, name: &str) -> Lock {
        self.lock(name, Ok(Share::MUTEX))
    }

    /// A lock that many readers or one writer hold at a time; neither starves the other.
    #[must_use]
    pub fn rwlock(&self, name: &str) -> RwLock {
        RwLock::new(self.clone(), name)
    }

    /// One slot of a semaphore with `slots` slots; [`Lock::permits`] takes more.
    ///
    /// Everybody must give the same number of slots for a name; a claim with another number is refused as a
    /// [mismatch](crate::Error::is_mismatch) while the name is in use.
    #[must_use]
    pub fn semaphore(&self, name: &str, slots: u32) -> Lock {
        self.lock(name, Share::slots(1, slots))
    }

    /// A mutex that its owner may acquire again while holding it.
    #[must_use]
    pub fn reentrant(&self, name: &str) -> Reentrant {
        Reentrant::new(self.mutex(name))
    }

    /// Who holds a name and who waits for it.
    ///
    /// *Cancel safety*: reads only.
    pub async fn inspect(&self, name: &str) -> Result<LockState> {
        let name =
            Name::parse(name).map_err(|error| error.during("look at", self.url(), Some(name)))?;
        on_background(self.engine.calls().inspect(&name)).await
    }

    /// The names that begin with `prefix` and have somebody in line, sorted; at most `count_max` of them.
    ///
    /// *Cancel safety*: reads only.
    pub async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        on_background(self.engine.calls().list(prefix, count_max)).await
    }

    /// Ends the hold that has this token, whoever has it; says who it was, or `None` if nobody holds it any more.
    ///
    /// The holder hears [`LossReason::Revoked`](crate::LossReason::Revoked). Work that is under way is not stopped by this: only a
    /// resource that checks tokens is safe from it. On the file store the next holder follows as soon as the broken
    /// one's process lets go of the file, which it does when its guard is dropped or the process ends.
    ///
    /// *Cancel safety*: dropped, it may have happened; repeating it does no harm.
    pub async fn break_hold(&self, name: &str, token: Token) -> Result<Option<Entry>> {
        let lock_state = self.inspect(name).await?;
        let Some(entry) = lock_state
            .holders()
            .find(|entry| entry.token() == Some(token))
            .cloned()
        else {
            return Ok(None);
        };
        let claim = claim_for_entry(lock_state.name, &entry);
        // A guard of our own is invalid before the request leaves: the store takes ours for a release.
        self.engine.revoke(claim.id);
        let was_there = on_background(self.engine.calls().leave(&claim)).await?;
        Ok(was_there.then_some(entry))
    }

    /// What the store guarantees.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.engine.calls().guarantees()
    }

    /// The store's URL, without its password.
    #[must_use]
    pub fn url(&self) -> &str {
        self.engine.calls().url()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn lock(&self, name: &str, share: Result<Share>) -> Lock {
        Lock::new(self.clone(), name, share)
    }
}

/// Enough of a claim to take it out of a line.
fn claim_for_entry(name: Name, entry: &Entry) -> Claim {
    Claim {
        name,
        id: entry.id,
        share: entry.share,
        lease: Lock::LEASE,
        auto_renew: true,
        info: entry.info.clone().into(),
    }
}

/// Two handles are the same if they share renewals and connections.
impl PartialEq for Locks {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.engine, &other.engine)
    }
}
