//! Several locks at once: all of them are granted, or none.

mod guard;

use std::collections::HashMap;
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::engine::{StoreId, WaitLimit};
use crate::runtime::background::on_background;
use crate::store::ClaimId;
use crate::{Error, Guard, Lock, Locks, Refused, Result};

pub use guard::MultiGuard;

/// Combines locks, of one store or of several, into one that is granted as a whole.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let both = leasehold::multi_lock([locks.mutex("account/1"), locks.rwlock("rates").shared()]);
/// let guard = both.acquire().await?;
/// guard.check()?; // fails if one of the locks was lost
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// See [`MultiLock`] for the order in which the locks are acquired.
pub fn multi_lock(locks: impl IntoIterator<Item = Lock>) -> MultiLock {
    MultiLock {
        locks: locks.into_iter().collect(),
    }
}

/// Several locks that are granted all together or not at all.
///
/// [`Locks::multi_lock`] creates it from mutexes of one store, and [`multi_lock`] from any locks.
///
/// Every client acquires the locks in one order: by the URL of the store, then by the name. So two
/// clients never wait for each other. This needs the same URL for a store in all clients, because
/// the order is that of the URLs. A client that waits for one lock holds those before it, so other
/// clients wait for them too.
///
/// A lock must not occur twice. It would wait for itself, so it is rejected as invalid when the
/// locks are acquired.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let transfer = locks.multi_lock(["account/1", "account/2"]);
/// let guard = transfer.acquire().await?;
/// assert!(locks.mutex("account/2").try_acquire().await?.is_err());
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before `acquire`"]
pub struct MultiLock {
    /// In the order of the caller.
    locks: Vec<Lock>,
}

impl MultiLock {
    /// Changes the options of every lock, such as its lease or its label.
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let locks = leasehold::open("memory:").await?;
    /// let transfer = locks.multi_lock(["account/1", "account/2"]);
    /// let transfer = transfer.configure(|lock| lock.lease(Duration::from_secs(10)));
    /// transfer.acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn configure(self, change: impl FnMut(Lock) -> Lock) -> Self {
        multi_lock(self.locks.into_iter().map(change))
    }

    /// Waits until all locks are granted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lock::acquire`], for the first lock that fails. The others are released. Also
    /// [`is_invalid`](Error::is_invalid) without a lock, or with a lock that occurs twice.
    ///
    /// # Cancel safety
    /// If the future is dropped, it leaves the queue, and the background thread releases the locks
    /// that were granted.
    pub fn acquire(&self) -> impl Future<Output = Result<MultiGuard>> + Send + use<> {
        let acquiring = self.clone().acquire_within(WaitLimit::Forever);
        acquiring.map_ok(|granted| granted.expect("without a limit the wait ends with a grant"))
    }

    /// Acquires all locks if all are free; returns who holds the first one that is not.
    ///
    /// Each of the locks, one after the other, takes at most the
    /// [reply timeout](Locks::reply_timeout).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let other = locks.mutex("account/2").acquire().await?;
    /// let both = locks.multi_lock(["account/1", "account/2"]);
    /// let refused = both.try_acquire().await?.unwrap_err();
    /// assert_eq!(refused.name.as_str(), "account/2");
    /// # drop(other);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Result<MultiGuard, Refused>>> + Send + use<> {
        self.clone().acquire_within(WaitLimit::Never)
    }

    /// Waits for at most `timeout`; returns who holds the lock that was not granted in time.
    ///
    /// The time limit is one for all locks together. If it passes, all locks are released.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// let both = locks.multi_lock(["account/1", "account/2"]);
    /// match both.try_acquire_for(Duration::from_secs(2)).await? {
    ///     Ok(guard) => guard.release().await?,
    ///     Err(refused) => println!("{refused}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and as [`Lock::try_acquire_for`].
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Result<MultiGuard, Refused>>> + Send + use<> {
        self.clone().acquire_within(WaitLimit::AtMost(timeout))
    }

    /// Returns the locks in the order in which every client acquires them.
    ///
    /// It is for programs that acquire each lock themselves, for instance to report which one they
    /// wait for. [`MultiGuard::new`] joins the guards.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let both = locks.multi_lock(["account/2", "account/1"]);
    /// let order: Vec<_> = both.in_order()?.into_iter().map(|lock| lock.name()).collect();
    /// assert_eq!(order, ["account/1", "account/2"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) without a lock, or with a lock that occurs twice.
    pub fn in_order(&self) -> Result<Vec<&Lock>> {
        if self.locks.is_empty() {
            return Err(Error::invalid("no lock is named"));
        }

        let mut sorted: Vec<&Lock> = self.locks.iter().collect();
        sorted.sort_by(|one, next| identity(one).cmp(&identity(next)));

        let mut pairs = sorted.windows(2);
        match pairs.find(|pair| identity(pair[0]) == identity(pair[1])) {
            Some(twice) => Err(occurs_twice(twice[0])),
            None => Ok(sorted),
        }
    }

    /// Acquires each lock by `acquire`, in the order of all clients, until all are held at once.
    ///
    /// It is for the command, which prints whom it waits for, and goes on through an outage. If
    /// `acquire` fails or returns no guard, the locks that were granted before are released.
    #[doc(hidden)]
    pub async fn acquire_each<R, E: From<Error>>(
        self,
        mut acquire: impl AsyncFnMut(NextLock<'_>) -> Result<Result<Guard, R>, E>,
    ) -> Result<Result<MultiGuard, R>, E> {
        let order = self.in_order()?;

        loop {
            let mut granted = Vec::with_capacity(order.len());
            for lock in &order {
                let refused = match acquire(NextLock::new(lock, &granted)).await {
                    Ok(Ok(guard)) => {
                        granted.push(guard);
                        continue;
                    }
                    Ok(Err(refused)) => Ok(Err(refused)),
                    Err(error) => Err(error),
                };
                give_back(granted).await;
                return refused;
            }

            // A hold may have been lost during the wait for a later lock.
            if granted.iter().all(|guard| guard.check().is_ok()) {
                return Ok(Ok(self.join(granted)));
            }
            give_back(granted).await;
        }
    }

    async fn acquire_within(self, limit: WaitLimit) -> Result<Result<MultiGuard, Refused>> {
        let deadline = limit.deadline();

        let acquire = async move |next: NextLock<'_>| {
            let lock = next.checked_within(limit.rest(deadline)).await?;
            lock.acquire_within(limit.rest(deadline)).await
        };
        self.acquire_each(acquire).await
    }

    /// Joins the guards in the order of the caller.
    fn join(&self, granted: Vec<Guard>) -> MultiGuard {
        let positions: HashMap<_, usize> = self.locks.iter().map(identity).zip(0..).collect();

        let mut guards = granted;
        guards.sort_by_key(|guard| {
            let identity = (guard.store_url(), guard.hold().store_id(), guard.name());
            positions.get(&identity).copied()
        });
        MultiGuard::new(guards)
    }
}

/// The lock that is to be acquired next.
#[derive(Debug)]
#[doc(hidden)]
pub struct NextLock<'a> {
    lock: &'a Lock,
    /// The claims that were granted locks of the same name before.
    same_name: Vec<ClaimId>,
}

impl<'a> NextLock<'a> {
    fn new(lock: &'a Lock, granted: &[Guard]) -> Self {
        let same_name = granted.iter().filter(|guard| guard.name() == lock.name());
        Self {
            lock,
            same_name: same_name.map(Guard::claim_id).collect(),
        }
    }

    /// Returns the lock, unless it has already been granted through another URL of its store.
    ///
    /// The client would wait for itself. The request may be repeated.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the lock was granted before, or an error of the store.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn checked(&self) -> Result<&'a Lock> {
        self.checked_within(WaitLimit::Never).await
    }

    async fn checked_within(&self, limit: WaitLimit) -> Result<&'a Lock> {
        if self.lock.is_held_by(&self.same_name, limit).await? {
            return Err(occurs_twice(self.lock));
        }
        Ok(self.lock)
    }
}

impl Locks {
    /// Combines mutexes into one that is granted as a whole.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let locks = leasehold::open("memory:").await?;
    /// let guard = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
    /// let [one, two] = guard.tokens()[..] else { unreachable!("two locks have two tokens") };
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// [`multi_lock`] combines other locks, and those of several stores.
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        multi_lock(names.into_iter().map(|name| self.mutex(name.as_ref())))
    }
}

/// Releases the guards of locks that are not used.
///
/// It waits briefly for the replies, so that a caller that gave up finds no lock of its own held.
/// The background thread repeats a release that has no reply.
async fn give_back(guards: Vec<Guard>) {
    let releases = join_all(guards.into_iter().map(Guard::release));
    // No work ran under these holds, so neither an error nor a loss matters.
    let _ = on_background(async { timeout(GIVE_BACK_MAX, releases).await }).await;
}

/// The store and the name of a lock, which decide its position in the order. Stores in memory may
/// have one URL.
fn identity(lock: &Lock) -> (&str, StoreId, &str) {
    let locks = lock.locks();
    (locks.url(), locks.engine.calls.store_id(), lock.name())
}

fn occurs_twice(lock: &Lock) -> Error {
    let url = lock.locks().url();
    Error::invalid("the lock occurs twice and would wait for itself")
        .help("name each lock once; for several slots of a semaphore use permits")
        .during("acquire", url, Some(lock.name()))
}

/// A store that has not replied to a release by then is unavailable.
const GIVE_BACK_MAX: Duration = Duration::from_secs(1);
