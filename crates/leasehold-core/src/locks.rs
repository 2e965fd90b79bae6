//! An open store, which creates locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::runtime::background::on_background;
use crate::store::Cleanup;
use crate::stores::url::{Setting, is_host};
use crate::{
    Claim, ClaimId, Entry, Guarantees, Lock, LockState, Name, Need, Reentrant, Result, RwLock,
    Share, Store, Token,
};

/// An open store, which creates locks.
///
/// Cloning is cheap, and clones share renewals and connections. A program opens each store once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let mutex = locks.mutex("nightly");
/// let slot = locks.semaphore("gpu", 4);
/// let reader = locks.rwlock("config").shared();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locks {
    pub(crate) engine: Arc<Engine>,
    pub(crate) reply_timeout: Duration,
}

impl Locks {
    /// Opens a store that was built without `leasehold::open`.
    ///
    /// Errors and logs show `url`, and `…@` in place of a user name and a password. The URL of a
    /// store's builder, such as `RedisBuilder::url`, has neither. Two stores with one URL count as
    /// one for an [`Owner`](crate::Owner) and for [`multi_lock`](crate::multi_lock()), except in
    /// memory.
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
        Self::from_arc(Arc::new(store), &without_user(url))
    }

    #[doc(hidden)]
    pub fn from_arc(store: Arc<dyn Store>, url: &str) -> Result<Self> {
        let engine = Engine::new(store, url)?;
        Ok(Self {
            engine,
            reply_timeout: REPLY_TIMEOUT,
        })
    }

    /// Sets how long a call that does not wait for a holder may wait for the store: from 10 ms to
    /// 10 s; 2 s by default.
    ///
    /// It bounds [`try_acquire`](Lock::try_acquire), what
    /// [`try_acquire_for`](Lock::try_acquire_for) takes beyond its own time limit,
    /// [`inspect`](Self::inspect) and [`list`](Self::list). Such a call then fails as
    /// [`is_unavailable`](crate::Error::is_unavailable). [`acquire`](Lock::acquire) and the
    /// renewals of a hold wait for 10 s, so that a failover fails no waiter.
    ///
    /// The setting `reply-timeout=` in the URL of any store does the same. This value applies to
    /// locks that are created from the returned value, and its clones.
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let locks = leasehold::open("memory:?reply-timeout=500ms").await?;
    /// let patient = locks.clone().reply_timeout(Duration::from_secs(5))?;
    /// # let _ = patient;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) for a time out of this range.
    pub fn reply_timeout(self, reply_timeout: Duration) -> Result<Self> {
        let reply_timeout = Setting::REPLY_TIMEOUT.check_duration(reply_timeout)?;
        Ok(Self {
            reply_timeout,
            ..self
        })
    }

    /// Creates a lock that one claim holds at a time.
    ///
    /// The name is a text or a [`Name`], owned or borrowed.
    /// On one name it excludes the readers and writers of [`rwlock`](Self::rwlock). A name of 0 or
    /// more than 512 bytes is rejected when the lock is acquired.
    ///
    /// It has no owner: a task that holds the name and acquires it again waits for itself, also if
    /// the hold is that of a [`reentrant`](Self::reentrant) mutex.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// assert!(locks.mutex("orders/42").try_acquire().await?.is_err());
    /// assert!(locks.mutex("orders/43").try_acquire().await?.is_ok());
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "lock")]
    #[must_use]
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock_of(name.as_ref(), Ok(Share::MUTEX))
    }

    /// Creates a lock that many readers or one writer hold at a time; neither side starves.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let config = locks.rwlock("config");
    /// let reader = config.shared().acquire().await?;
    /// assert!(config.shared().try_acquire().await?.is_ok());
    /// assert!(config.exclusive().try_acquire().await?.is_err());
    /// # drop(reader);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.clone(), name.as_ref())
    }

    /// Creates a lock on one slot of a semaphore with `slots` slots; [`Lock::permits`] takes more.
    ///
    /// All clients give the same number of slots for a name. While the name is in use, a claim with
    /// another number is rejected as a [mismatch](crate::Error::is_mismatch).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let slot = locks.semaphore("gpu", 2);
    /// let (one, two) = (slot.acquire().await?, slot.acquire().await?);
    /// assert!(slot.try_acquire().await?.is_err());
    /// # drop((one, two));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "permits")]
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>, slots: u32) -> Lock {
        self.lock_of(name.as_ref(), Share::slots(1, slots))
    }

    /// Creates a mutex that its owner may acquire again while it holds it.
    ///
    /// A [`mutex`](Self::mutex) of the same name has no owner, and waits for this one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let me = leasehold::Owner::new();
    /// let outer = locks.reentrant("ledger").acquire(&me).await?;
    /// let inner = locks.reentrant("ledger").acquire(&me).await?; // does not wait
    /// # drop((outer, inner));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reentrant(&self, name: impl AsRef<str>) -> Reentrant {
        Reentrant::new(self.mutex(name))
    }

    /// Returns the holders and waiters of a name.
    ///
    /// It takes at most the [reply timeout](Self::reply_timeout), 2 s by default.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("nightly").label("backup").acquire().await?;
    /// for entry in locks.inspect("nightly").await?.holders() {
    ///     println!("held by {}", entry.info);
    /// }
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    #[doc(alias = "ping")]
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<LockState> {
        self.inspect_within(name.as_ref(), self.reply_timeout).await
    }

    pub(crate) async fn inspect_within(&self, text: &str, limit: Duration) -> Result<LockState> {
        let name =
            Name::parse(text).map_err(|error| error.during("inspect", self.url(), Some(text)))?;
        on_background(self.engine.calls.inspect(&name, limit)).await
    }

    /// Returns the names with holders or waiters that begin with `prefix`, sorted.
    ///
    /// It returns at most `count_max` names, and takes at most the
    /// [reply timeout](Self::reply_timeout), 2 s by default.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// let names = locks.list("orders/", 100).await?;
    /// assert_eq!(names[0].as_str(), "orders/42");
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let limit = self.reply_timeout;
        on_background(self.engine.calls.list(prefix, count_max, limit)).await
    }

    /// Removes the files that free locks have left, of crashed processes too.
    ///
    /// A process removes the files of the locks that it leaves free. A crashed process leaves
    /// them, and so does one that may not remove the files of another user.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("doc-unused-{}", std::process::id()));
    /// # let url = format!("file:{}", folder.display());
    /// let cleanup = leasehold::open(&url).await?.remove_unused().await?;
    /// println!("{cleanup:?}");
    /// # std::fs::remove_dir_all(folder).ok();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_unsupported`](crate::Error::is_unsupported) on a store in which free locks leave
    /// nothing: all but the file store.
    ///
    /// # Cancel safety
    /// A dropped call may have removed a part. It can be repeated.
    pub async fn remove_unused(&self) -> Result<Cleanup> {
        on_background(self.engine.calls.remove_unused()).await
    }

    /// Ends the hold with this token; returns its entry, or `None` if no hold has this token.
    ///
    /// The holder is notified of [`LossReason::Revoked`](crate::LossReason::Revoked). This does not
    /// stop the holder's work: only a resource that checks tokens rejects its late writes. On the
    /// file store, the next waiter is granted when the broken holder's process drops its guard or
    /// ends. On Redlock, the votes of a claim that has no majority are taken back too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let stuck = locks.mutex("nightly").acquire().await?;
    ///
    /// let lock_state = locks.inspect("nightly").await?;
    /// if let Some(token) = lock_state.holders().next().and_then(|entry| entry.token()) {
    ///     locks.break_hold("nightly", token).await?;
    /// }
    /// assert!(!stuck.is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// A dropped call may have ended the hold. It can be repeated.
    pub async fn break_hold(&self, name: impl AsRef<str>, token: Token) -> Result<Option<Entry>> {
        let lock_state = self.inspect(name).await?;
        let held = lock_state
            .holders()
            .find(|entry| entry.has_token(token))
            .cloned();
        let is_minority = held.is_none();
        let Some(entry) = held.or_else(|| lock_state.vote(token)) else {
            return Ok(None);
        };

        let claim = Claim::of_entry(lock_state.name, &entry);
        let was_there = self.end_hold(&claim).await?;
        // A majority without the votes may have replied first.
        Ok((was_there || is_minority).then_some(entry))
    }

    /// Ends the hold of a run that was killed, for its watchdog; returns whether the claim held.
    ///
    /// Unlike a token in some formats, the id belongs to no other claim.
    ///
    /// # Cancel safety
    /// As [`break_hold`](Self::break_hold).
    #[doc(hidden)]
    pub async fn release_ended(&self, name: impl AsRef<str>, id: ClaimId) -> Result<bool> {
        let lock_state = self.inspect(name).await?;
        let Some(entry) = lock_state.holders().find(|entry| entry.id == id) else {
            return Ok(false);
        };
        let mut claim = Claim::of_entry(lock_state.name.clone(), entry);
        claim.by_watchdog = true;
        self.end_hold(&claim).await
    }

    async fn end_hold(&self, claim: &Claim) -> Result<bool> {
        // A guard of this process becomes invalid before the request is sent. The store treats the
        // request as a release by that guard.
        self.engine.revoke(claim.id);
        on_background(self.engine.calls.leave(claim)).await
    }

    /// Returns what the store guarantees.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// if !locks.guarantees().fifo {
    ///     println!("waiters may overtake each other");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.engine.calls.guarantees()
    }

    /// Checks that the store has what the program needs, so that a wrong store is refused at the
    /// start and not at the first acquire.
    ///
    /// ```
    /// use leasehold::Need;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let locks = leasehold::open("memory:").await?;
    /// locks.require([Need::Tokens, Need::Semaphores])?;
    ///
    /// let masters = leasehold::open_lazy("redlock://a,b,c")?;
    /// masters.require([Need::Tokens])?;
    /// assert!(masters.require([Need::Semaphores]).unwrap_err().is_unsupported());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_unsupported`](crate::Error::is_unsupported), for the first that the store does not have.
    pub fn require(&self, needs: impl IntoIterator<Item = Need>) -> Result<()> {
        let guarantees = self.guarantees();
        let checked = needs
            .into_iter()
            .try_for_each(|need| need.check(&guarantees));
        checked.map_err(|error| error.during("use the store", self.url(), None))
    }

    /// Returns the store's URL without its password.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// assert_eq!(locks.url(), "memory:");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn url(&self) -> &str {
        self.engine.calls.url()
    }

    /// Returns the store without its engine, for tests that send requests themselves.
    #[doc(hidden)]
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        self.engine.calls.store()
    }

    /// Returns how many acquires of this process wait for a hold that a cohort passes on.
    #[doc(hidden)]
    #[must_use]
    pub fn local_waiters(&self, name: &str) -> usize {
        self.engine.local_waiters(name)
    }

    pub(crate) fn lock_of(&self, name: &str, share: Result<Share>) -> Lock {
        Lock::new(self.clone(), name, share)
    }
}

/// Shows the store.
impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("store", &self.url())
            .finish_non_exhaustive()
    }
}

/// Returns a URL without what precedes its last `@`, which ends a user name and a password.
///
/// The path of a folder may contain `@`. Without one, what follows `://` is shown only if it begins
/// with hosts.
fn without_user(url: &str) -> String {
    let path = url
        .split('?')
        .next()
        .and_then(|url| url.strip_prefix("file:"));
    let folder = path
        .filter(|path| path.starts_with('/') && !path.starts_with("//") || path.starts_with("///"));
    let settings_at = folder.map_or(0, |path| "file:".len() + path.len());

    let rest = &url[settings_at..];
    let ends = ["@", "%40"].map(|end| rest.rfind(end).map(|at| at + end.len()));
    if let Some(end) = ends.into_iter().max().flatten() {
        return format!("…@{}", &rest[end..]);
    }
    match url.split_once("://") {
        Some((_, location)) if !begins_with_hosts(location) => "…".to_owned(),
        _ => url.to_owned(),
    }
}

/// Whether a text begins with hosts and their ports. Anything else may be a password.
fn begins_with_hosts(location: &str) -> bool {
    let hosts = location.split(['/', '?', '#']).next().unwrap_or_default();
    hosts.split(',').all(is_host)
}

/// A server that works replies sooner, even if it is busy, and a user of a service still waits for
/// the error.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
