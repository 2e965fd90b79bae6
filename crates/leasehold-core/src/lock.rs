//! A lock to acquire.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;

use crate::engine::{AcquireOptions, NUMBERED_MAX, WaitLimit, acquire, cohort, first, numbers};
use crate::runtime::background::on_background;
use crate::{Claim, ClaimId, Error, Guard, Locks, Name, Need, Refused, Result, Share};

/// A lock to acquire: its name, the share to take, and the options.
///
/// [`Locks::mutex`], [`Locks::semaphore`], [`RwLock::shared`](crate::RwLock::shared) and
/// [`RwLock::exclusive`](crate::RwLock::exclusive) create it. Invalid options are rejected when the
/// lock is acquired, so that options can be chained without `?`.
///
/// The futures of its methods own what they need, so that they can be spawned and selected on:
/// `tokio::spawn(locks.mutex("a").acquire())`.
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let lock = locks.mutex("orders/42").lease(Duration::from_secs(10)).label("billing");
/// let Ok(guard) = lock.try_acquire_for(Duration::from_secs(5)).await? else { return Ok(()) };
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    locks: Locks,
    name: Arc<str>,
    share: Result<Share>,
    lease: Duration,
    label: String,
    is_candidate: bool,
    no_renewal: bool,
    max_hold: Option<Duration>,
    cohort: Option<u32>,
    is_numbered: bool,
}

impl Lock {
    /// The default lease: 30 seconds.
    pub const LEASE: Duration = Claim::DEFAULT_LEASE;
    /// The largest semaphore whose slots can be [numbered](Self::numbered).
    pub const NUMBERED_MAX: u32 = NUMBERED_MAX;

    pub(crate) fn new(locks: Locks, name: &str, share: Result<Share>) -> Self {
        Self {
            locks,
            name: name.into(),
            share,
            lease: Self::LEASE,
            label: String::new(),
            is_candidate: false,
            no_renewal: false,
            max_hold: None,
            cohort: None,
            is_numbered: false,
        }
    }

    /// Sets how long the store keeps the lock after the last renewal: 100 ms to 24 hours.
    ///
    /// The client renews the lease while the guard exists. The lease therefore bounds for how long
    /// a crashed holder blocks others, not how long the work may take. The default is 30 s.
    ///
    /// Some stores observe the liveness of holders, and free the lock of an absent holder sooner.
    /// On Redis and PostgreSQL a waiter is granted it after the crash grace (`crash-grace=`, 10 s by
    /// default), and ZooKeeper frees it when the session ends (`session=`, 10 s by default).
    /// [`Guard::remaining`](crate::Guard::remaining) is the shorter of the two times. The lock
    /// survives an outage of at most 0.6 of that time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// // After a crash the others wait for 5 s at most. The work may take longer.
    /// let lock = locks.mutex("nightly").lease(Duration::from_secs(5));
    /// # lock.acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ttl")]
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Disables renewal: the hold ends with its lease, even if the work is not done.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use leasehold::{LossReason, RenewalStatus};
    /// use std::time::Duration;
    /// let lock = locks.mutex("nightly").lease(Duration::from_millis(100)).no_renewal();
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.renewal(), RenewalStatus::Off);
    /// assert_eq!(guard.lost().await, LossReason::LeaseExpired);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn no_renewal(self) -> Self {
        Self {
            no_renewal: true,
            ..self
        }
    }

    /// Limits the time for which the lock is held. After that the guard is lost, despite renewals.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use leasehold::LossReason;
    /// use std::time::Duration;
    /// let lock = locks.mutex("nightly").max_hold(Duration::from_millis(50));
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.lost().await, LossReason::MaxHoldExceeded);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn max_hold(self, longest: Duration) -> Self {
        Self {
            max_hold: Some(longest),
            ..self
        }
    }

    /// Passes a released hold to the next acquire of this process that waits, without a request to
    /// the store.
    ///
    /// The acquires that share this value of [`Locks`], the name, the lease, the label and `max`
    /// form a *cohort*. They wait for each other in order of arrival, and the store has at most one
    /// waiting claim for all of them. A hold is passed on at most `max` times. Then the store
    /// grants the lock to the next claim in its queue. So at most `max` acquires of the cohort
    /// overtake a waiter elsewhere for each claim ahead of it. `max` is 1 to 1,000.
    ///
    /// Each hold has its own guard and its own token, which rises with each pass. All holds of one
    /// claim have the same [`claim_id`](Guard::claim_id). If a hold is lost, the next acquire gets
    /// nothing from it, and acquires a claim of its own.
    ///
    /// Without a cohort, every acquire is a claim in the store. That is the default, and is fair
    /// between processes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let lock = leasehold::open("memory:").await?.mutex("orders/42").cohort(16);
    /// let first = lock.acquire().await?;
    /// let token = first.token();
    ///
    /// let (second, released) = tokio::join!(lock.acquire(), first.release());
    /// released?;
    /// assert_eq!(second?.token().get(), token.get() + 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// An acquire fails with [`is_unsupported`](Error::is_unsupported) on a store without
    /// [`cohorts`](crate::Guarantees::cohorts). It fails with [`is_invalid`](Error::is_invalid) for
    /// another `max`, for a lock that is not a mutex, with [`no_renewal`](Self::no_renewal), and in
    /// an [`Election`](crate::Election).
    #[must_use]
    pub fn cohort(self, max: u32) -> Self {
        Self {
            cohort: Some(max),
            ..self
        }
    }

    /// Gives each slot of a semaphore a number, which no other holder has at that time.
    ///
    /// [`Guard::slots`] returns the numbers, from 0. They stand for devices or shards. The number 3
    /// of the semaphore `gpu` is the mutex `gpu/slot/3`, which the command `leasehold run --slots`
    /// takes too. So a worker in Rust and one in a shell script share the numbers of one pool, if
    /// all of its users number their slots.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let gpu = leasehold::open("memory:").await?.semaphore("gpu", 4).numbered();
    /// let (first, second) = (gpu.acquire().await?, gpu.acquire().await?);
    /// assert_eq!((first.slots(), second.slots()), (&[0][..], &[1][..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// An acquire fails with [`is_invalid`](Error::is_invalid) for a reader-writer lock, for a
    /// semaphore with more than 1,024 slots, and with a [cohort](Self::cohort).
    #[must_use]
    pub fn numbered(self) -> Self {
        Self {
            is_numbered: true,
            ..self
        }
    }

    /// Labels the claim with the address of a candidate, and marks it.
    #[doc(hidden)]
    #[must_use]
    pub fn candidate(self, address: &str) -> Self {
        Self {
            is_candidate: true,
            ..self.label(address)
        }
    }

    /// Labels the claim for `show` and `ls`, with at most 255 bytes; 64 on the file store, whose
    /// entries have a fixed length.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("deploy").label("release 481").acquire().await?;
    /// let refused = locks.mutex("deploy").try_acquire().await?.unwrap_err();
    /// assert!(refused.to_string().ends_with("(release 481)"));
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        Self {
            label: label.to_owned(),
            ..self
        }
    }

    /// Takes several slots of a semaphore at once instead of one.
    ///
    /// Later claims for few slots do not overtake a claim for many.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let large = locks.semaphore("gpu", 4).permits(3).acquire().await?;
    /// assert!(locks.semaphore("gpu", 4).permits(2).try_acquire().await?.is_err());
    /// assert!(locks.semaphore("gpu", 4).try_acquire().await?.is_ok());
    /// # drop(large);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn permits(self, permits: u32) -> Self {
        let share = self
            .share
            .clone()
            .and_then(|share| Share::slots(permits, share.capacity()));
        Self { share, ..self }
    }

    /// Waits in the queue until the lock is granted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// // … the work …
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if the store sends no reply for 10 seconds,
    /// [`is_denied`](Error::is_denied), [`is_unsupported`](Error::is_unsupported),
    /// [`is_mismatch`](Error::is_mismatch), [`is_damaged`](Error::is_damaged), and
    /// [`is_invalid`](Error::is_invalid) for an invalid name or option.
    ///
    /// # Cancel safety
    /// If the future is dropped, the claim leaves the queue. The background thread releases a grant
    /// that was under way.
    #[doc(alias = "lock")]
    pub fn acquire(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.acquire_within(WaitLimit::Forever)
            .map_ok(|granted| granted.expect("without a limit the wait ends with a grant"))
    }

    /// Acquires the lock if it is free; returns who holds it if the claim would have to wait.
    ///
    /// A service answers a request for a lock in use in one line:
    ///
    /// ```
    /// # type StatusCode = u16; const LOCKED: StatusCode = 423;
    /// # async fn charge(lock: leasehold::Lock) -> Result<(), (StatusCode, String)> {
    /// # let unavailable = |error: leasehold::Error| (503, error.to_string());
    /// let granted = lock.try_acquire().await.map_err(unavailable)?;
    /// let guard = granted.map_err(|refused| (LOCKED, refused.to_string()))?;
    /// # drop(guard); Ok(()) }
    /// ```
    ///
    /// It takes at most the [reply timeout](Locks::reply_timeout), 2 s by default. With
    /// [numbers](Self::numbered), each of its requests has this limit.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but [`is_unavailable`](Error::is_unavailable) after the reply
    /// timeout: only a reply shows that another client holds the lock.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[doc(alias = "try_lock")]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Result<Guard, Refused>>> + Send + use<> {
        self.acquire_within(WaitLimit::Never)
    }

    /// Waits in the queue for at most `timeout`; returns who holds the lock if it was not granted.
    ///
    /// The claim has then left the queue. The call takes one round trip longer than `timeout` while
    /// the store replies, and at most the [reply timeout](Locks::reply_timeout), 2 s by default, if
    /// it does not. Time for which the machine is suspended does not count. A `timeout` of zero is
    /// that of [`try_acquire`](Self::try_acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// match locks.mutex("orders/42").try_acquire_for(Duration::from_secs(2)).await? {
    ///     Ok(guard) => guard.release().await?,
    ///     Err(refused) => println!("try again later: {refused}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire). Also [`is_unavailable`](Error::is_unavailable) if the store
    /// sent no reply within `timeout`, because only a reply shows that the lock is held. The call
    /// waits for the first reply for the reply timeout, even if `timeout` is shorter.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[doc(alias = "timeout")]
    #[doc(alias = "acquire_timeout")]
    pub fn try_acquire_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Result<Guard, Refused>>> + Send + use<> {
        self.acquire_within(WaitLimit::AtMost(timeout))
    }

    /// Returns the name as it was given.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// assert_eq!(locks.mutex("orders/42").name(), "orders/42");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the store of the lock.
    #[doc(hidden)]
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Enters the claim of the next acquire with the same limit, by the request that opens the store.
    ///
    /// `None` waits for ever.
    #[doc(hidden)]
    pub async fn enter_first(&self, limit: Option<Duration>) -> Result<()> {
        let options = self
            .acquire_options()
            .map_err(|error| error.during("acquire", self.locks.url(), Some(&self.name)))?;
        let limit = limit.map_or(WaitLimit::Forever, WaitLimit::AtMost);
        on_background(first::enter(&self.locks.engine, &options, limit)).await
    }

    /// Returns whether the store has one of these claims as a holder of this lock. An acquire with
    /// this limit follows.
    pub(crate) async fn is_held_by(&self, claims: &[ClaimId], limit: WaitLimit) -> Result<bool> {
        if claims.is_empty() {
            return Ok(false);
        }
        let limit = limit.first_reply(self.locks.reply_timeout);
        let lock_state = self.locks.inspect_within(&self.name, limit).await?;
        Ok(lock_state.holders().any(|entry| claims.contains(&entry.id)))
    }

    pub(crate) fn acquire_within(
        &self,
        limit: WaitLimit,
    ) -> impl Future<Output = Result<Result<Guard, Refused>>> + Send + use<> {
        let options = self
            .acquire_options()
            .map_err(|error| error.during("acquire", self.locks.url(), Some(&self.name)));
        let engine = Arc::clone(&self.locks.engine);
        let has_cohort = self.has_cohort();
        let is_numbered = self.is_numbered;

        async move {
            let options = options?;
            let calls = &engine.calls;
            calls.check_not_forked("acquire", Some(&options.name))?;

            let acquired = if has_cohort {
                let acquiring = Box::pin(cohort::acquire(&engine, &options, limit));
                on_background(acquiring)
                    .await
                    .map(|granted| granted.map(Guard::new))
            } else if is_numbered {
                let acquiring = Box::pin(numbers::acquire(&engine, &options, limit));
                on_background(acquiring)
                    .await
                    .map(|granted| granted.map(Guard::numbered))
            } else {
                let acquired = on_background(acquire::acquire(&engine, &options, limit)).await;
                acquired.map(|granted| granted.map(Guard::new))
            };
            acquired.map_err(|error| {
                let name = options.name.as_str();
                error.during("acquire", engine.calls.url(), Some(name))
            })
        }
    }

    pub(crate) fn has_cohort(&self) -> bool {
        self.cohort.is_some()
    }

    /// Checks the options.
    fn acquire_options(&self) -> Result<AcquireOptions> {
        check_lease(self.lease)?;
        if self.max_hold.is_some_and(|longest| longest.is_zero()) {
            return Err(Error::invalid(
                "a max_hold of zero would end the hold at its grant",
            ));
        }
        if let Some(max) = self.cohort {
            self.check_cohort(max)?;
        }
        if self.is_numbered {
            self.check_numbered()?;
        }

        Ok(AcquireOptions {
            name: Name::shared(&self.name)?,
            share: self.share.clone()?,
            lease: self.lease,
            label: self.label.clone(),
            is_candidate: self.is_candidate,
            no_renewal: self.no_renewal,
            max_hold: self.max_hold,
            reply_timeout: self.locks.reply_timeout,
            reserved: self.cohort.unwrap_or(0),
            part_of: None,
        })
    }

    fn check_numbered(&self) -> Result<()> {
        let slots = self.share.as_ref().map_or(0, |share| share.capacity());
        if slots > NUMBERED_MAX {
            let message = format!("a semaphore with at most {NUMBERED_MAX} slots can be numbered");
            return Err(Error::invalid(message));
        }
        Name::parse(&format!("{}/slot/{NUMBERED_MAX}", self.name))?;
        if self.cohort.is_some() {
            return Err(
                Error::invalid("a hold with numbered slots cannot be passed on")
                    .help("remove cohort(…) or numbered()"),
            );
        }
        Ok(())
    }

    fn check_cohort(&self, max: u32) -> Result<()> {
        if !(1..=COHORT_MAX).contains(&max) {
            return Err(Error::invalid(format!(
                "a cohort passes a hold on 1 to {COHORT_MAX} times, not {max}"
            )));
        }
        if self
            .share
            .as_ref()
            .is_ok_and(|share| *share != Share::MUTEX)
        {
            return Err(Error::invalid("only a mutex can have a cohort"));
        }
        if self.no_renewal {
            let message = "the hold of a cohort is renewed, so it cannot have a fixed lease";
            return Err(Error::invalid(message).help("use max_hold, or no cohort"));
        }
        Need::Cohorts.check(&self.locks.guarantees())
    }
}

/// Shows the name and the store.
impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("store", &self.locks.url())
            .finish_non_exhaustive()
    }
}

fn check_lease(lease: Duration) -> Result<()> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a lease lasts from {LEASE_MIN:?} to 24 hours, not {lease:?}"
    )))
}

/// A shorter lease could not be renewed in time.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// A longer lease would block others long after its holder is gone.
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// More passes would reserve tokens faster than the clock advances: a store with tokens of one per
/// microsecond grants at most one uncontended claim in about 100 µs.
const COHORT_MAX: u32 = 1_000;
