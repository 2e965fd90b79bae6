//! The guard of a granted lock.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::engine::{Hold, HoldWatch, NumberedHold};
use crate::runtime::background::on_background;
use crate::{
    CheckBinds, ClaimId, Error, FencingToken, LossReason, RenewalStatus, Result, Share, Token,
    Watch,
};

/// A granted lock, held until it is released, dropped or lost.
///
/// Dropping it releases the lock in the background, without blocking and without a runtime. A guard
/// does not belong to a task or thread: any task or thread may release it.
///
/// When `main` returns or panics, its thread waits for up to a second for the releases, so that no
/// lock stays behind. A program that ends with `std::process::exit` awaits
/// [`drain()`](crate::drain()) first.
///
/// ```
/// # async fn charge(order: u32, token: leasehold::Token) -> leasehold::Result<()> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let guard = locks.mutex("orders/42").acquire().await?;
/// guard.while_held(charge(42, guard.token())).await??; // stops if the lock is lost
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    /// The mutexes of the numbers of the slots. They are dropped, and so released, first.
    slot_holds: Vec<Hold>,
    slots: Vec<u32>,
    hold: Hold,
}

impl Guard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self {
            slot_holds: Vec::new(),
            slots: Vec::new(),
            hold,
        }
    }

    /// Creates the guard of a semaphore, which counts as one hold with the numbers of its slots.
    pub(crate) fn numbered(hold: NumberedHold) -> Self {
        let mut guard = Self::new(hold.semaphore);
        for slot in hold.slots {
            guard.slots.push(slot.number);
            guard.slot_holds.push(slot.hold);
        }
        guard
    }

    pub(crate) fn holds(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(&self.hold).chain(&self.slot_holds)
    }

    /// Returns the hold that was lost, or will be lost first.
    fn weakest(&self) -> &Hold {
        let weakest = self.holds().min_by_key(|hold| hold.remaining());
        weakest.expect("a guard has a hold")
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns the hold of a guard that has no slots.
    pub(crate) fn into_hold(self) -> Hold {
        self.hold
    }

    /// Returns the token of this grant, which is larger than those of all earlier grants.
    ///
    /// On a store without tokens the numbers do not rise: see
    /// [`Guarantees::tokens`](crate::Guarantees::tokens).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// let sql = "UPDATE orders SET paid = true, token = $1 WHERE id = 42 AND token <= $1";
    /// println!("{sql}, $1 = {}", guard.token().to_i64());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// Returns the token and the claim id of this grant, for resources that [compare
    /// both](crate::fence).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// let header = guard.fencing_token()?.to_string(); // TOKEN:CLAIM
    /// # assert!(header.contains(':'));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_unsupported`](crate::Error::is_unsupported) if the store has no
    /// [tokens](crate::Guarantees::tokens).
    pub fn fencing_token(&self) -> Result<FencingToken> {
        if !self.hold.guarantees().tokens {
            let message = "this store has no tokens, so no resource can reject a late holder";
            let error = Error::unsupported(message)
                .help("use a store with tokens, or a resource that needs none");
            return Err(self.hold.with_context("use", error));
        }
        Ok(FencingToken::new(self.token(), self.claim_id()))
    }

    /// Returns the statement that pins this grant in a transaction of yours, and what it takes.
    ///
    /// It is for a transaction in the database that keeps the lock, with any driver, and before the
    /// statements that read or write what the lock protects. The next holder is granted when that
    /// transaction has ended, even if this hold is lost before. If the grant is gone, the statement
    /// fails. It also limits how long the transaction may stand idle to
    /// [`remaining`](Self::remaining), for this transaction only, and never raises a limit. The
    /// transaction as a whole has no limit, because the hold is renewed meanwhile: `leasehold.check`
    /// of five arguments sets one.
    ///
    /// ```text
    /// let binds = guard.check_binds()?;
    /// let transaction = client.transaction().await?;
    /// transaction.execute(
    ///     &binds.statement,
    ///     &[&binds.name, &binds.token, &binds.claim, &binds.remaining_ms],
    /// ).await?;
    /// // … read, write, and
    /// transaction.commit().await?;
    /// ```
    ///
    /// # Errors
    /// [`is_unsupported`](crate::Error::is_unsupported) if the store is in no database, or if the guard
    /// belongs to a [cohort](crate::Lock::cohort), whose holds share a grant;
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost.
    pub fn check_binds(&self) -> Result<CheckBinds> {
        self.check()?;
        let refused = |message, help| {
            let error = Error::unsupported(message).help(help);
            self.hold.with_context("use", error)
        };
        let Some((statement, name)) = self.hold.check_statement() else {
            return Err(refused(
                "this store is in no database, so no transaction can pin the grant",
                "keep the lock in the database of the transaction (postgres:), or compare tokens: fence",
            ));
        };
        if self.hold.claim().reserved > 0 {
            return Err(refused(
                "the holds of a cohort share a grant, so a transaction of one cannot exclude the next",
                "acquire without a cohort",
            ));
        }

        Ok(CheckBinds {
            statement,
            name,
            token: self.token().to_i64(),
            claim: self.claim_id().to_string(),
            remaining_ms: i64::try_from(self.remaining().as_millis()).unwrap_or(i64::MAX),
        })
    }

    /// Returns the id of this claim, which is drawn for each acquire.
    ///
    /// In a [cohort](crate::Lock::cohort), the holds that are passed on have one claim.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// let lock_state = locks.inspect("orders/42").await?;
    /// assert!(lock_state.holders().any(|entry| entry.id == guard.claim_id()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn claim_id(&self) -> ClaimId {
        self.hold.claim().id
    }

    /// Returns the name of the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// assert_eq!(guard.name(), "orders/42");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.claim().name.as_str()
    }

    /// Returns the numbers of the slots, from 0; empty unless the semaphore is
    /// [numbered](crate::Lock::numbered).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.semaphore("gpu", 4).numbered().acquire().await?;
    /// let device = guard.slots()[0];
    /// assert_eq!(device, 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Checks by the clock that the lock is still held, without a request to the store.
    ///
    /// The lock may be lost just after the check. Only a resource that checks
    /// [tokens](Self::token) closes that gap.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// for step in 1..=3 {
    ///     guard.check()?; // `?` ends the work after a loss
    ///     println!("step {step}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost; it then stays lost forever.
    pub fn check(&self) -> Result<()> {
        self.holds().try_for_each(Hold::check)
    }

    /// Returns whether the lock is still held, as [`check`](Self::check) does without a reason.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let guard = leasehold::open("memory:").await?.mutex("nightly").acquire().await?;
    /// while guard.is_held() {
    ///     // one step of the work
    ///     # break;
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "is_valid")]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns why the lock was lost; `None` while it is held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Locks, LossReason, stores::Memory};
    /// let store = Memory::new();
    /// let guard = Locks::from_store(store.clone(), "memory:")?.mutex("nightly").acquire().await?;
    /// assert_eq!(guard.loss(), None);
    /// store.revoke("nightly");
    /// assert_eq!(guard.loss(), Some(LossReason::Revoked));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.holds().find_map(Hold::loss)
    }

    /// Returns how long the lock stays held if no further renewal gets a reply.
    ///
    /// It is zero after a loss, and [`Duration::MAX`] if only a crash ends a hold.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("nightly").acquire().await?; // the lease is 30 s
    /// assert!(guard.remaining() <= Duration::from_secs(30));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.weakest().remaining()
    }

    /// Returns the status of the lease's renewal, which needs no call of yours: the background
    /// thread extends the lease while the guard exists.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use leasehold::RenewalStatus;
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// if guard.renewal() == RenewalStatus::Late {
    ///     println!("the store does not reply; {:?} remain", guard.remaining());
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "extend")]
    #[doc(alias = "refresh")]
    #[must_use]
    pub fn renewal(&self) -> RenewalStatus {
        self.weakest().renewal()
    }

    /// Returns why the store confirms no renewal; `None` while it replies.
    #[doc(hidden)]
    #[must_use]
    pub fn outage_error(&self) -> Option<Error> {
        self.weakest().outage_error()
    }

    /// Returns a handle that observes this hold from another task or thread.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// let watch = guard.watch();
    /// let stopper = tokio::spawn(async move { watch.lost().await });
    /// guard.release().await?;
    /// assert_eq!(stopper.await.expect("it ends with the hold"), None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch::new(self.hold_watches().collect())
    }

    /// Waits until the lock is lost, at the latest until the lease may have ended.
    ///
    /// [`watch`](Self::watch) waits for it in a task of its own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Locks, LossReason, stores::Memory};
    /// let store = Memory::new();
    /// let guard = Locks::from_store(store.clone(), "memory:")?.mutex("nightly").acquire().await?;
    /// store.revoke("nightly");
    /// tokio::select! {
    ///     reason = guard.lost() => assert_eq!(reason, LossReason::Revoked),
    ///     () = std::future::pending() => {} // the work
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn lost(&self) -> LossReason {
        let losses = self.holds().map(|hold| Box::pin(hold.lost()));
        on_background(select_all(losses)).await.0
    }

    /// Waits until no more than `margin` remains, or the lock is lost.
    ///
    /// Work that needs `margin` to stop must begin to stop at that moment.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// let lock = locks.mutex("nightly").lease(Duration::from_millis(200)).no_renewal();
    /// let guard = lock.acquire().await?;
    /// guard.until_remaining(Duration::from_millis(100)).await;
    /// println!("100 ms are left to stop");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn until_remaining(&self, margin: Duration) {
        let waits = self
            .holds()
            .map(|hold| Box::pin(hold.until_remaining(margin)));
        on_background(select_all(waits)).await;
    }

    /// Runs `work` while the lock is held, and drops it as soon as the lock is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// # async fn backup() -> Result<u64, std::io::Error> { Ok(7) }
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// let files = guard.while_held(backup()).await?.expect("the backup succeeds");
    /// guard.release().await?;
    /// # assert_eq!(files, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost before the work completed, or at the
    /// same moment.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. The lock stays held.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.check()?;
        match run_until(self.lost(), work).await {
            Some(done) => self.check().map(|()| done),
            None => Err(self.weakest().error()),
        }
    }

    /// Turns a writer into a reader, without a gap in which another writer could acquire the lock.
    ///
    /// The token stays the same. It does nothing for a reader.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let config = locks.rwlock("config");
    /// let guard = config.exclusive().acquire().await?;
    /// guard.downgrade().await?;
    /// assert!(config.shared().try_acquire().await?.is_ok());
    /// assert!(config.exclusive().try_acquire().await?.is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_unsupported`](crate::Error::is_unsupported) if this is not a reader-writer lock,
    /// [`is_lost`](crate::Error::is_lost), or the error of the request. After an error of the
    /// request, the guard may be a writer's or a reader's.
    ///
    /// # Cancel safety
    /// A dropped call may have downgraded the guard. It can be repeated.
    pub async fn downgrade(&self) -> Result<()> {
        let share = self.hold.claim().share;
        if share.capacity() != Share::RW_CAPACITY {
            let kind = share.kind();
            let error = Error::unsupported(format!("{kind} has no readers to downgrade to"));
            return Err(self.hold.with_context("downgrade", error));
        }

        on_background(self.hold.change_share(Share::READER)).await
    }

    /// Releases the lock and waits for the store's reply.
    ///
    /// The guard is invalid from the first poll of this future on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// match guard.release().await {
    ///     Ok(()) => println!("the next holder may begin"),
    ///     Err(error) if error.is_lost() => println!("check what the work wrote: {error}"),
    ///     Err(error) => println!("the background thread tries again: {error}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost before: the work may have overlapped
    /// with another holder's. [`is_unavailable`](crate::Error::is_unavailable) if the store sent no
    /// reply: the background thread then repeats the release while the store is open.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    #[doc(alias = "unlock")]
    pub async fn release(self) -> Result<()> {
        if self.slot_holds.is_empty() {
            on_background(self.hold.release()).await
        } else {
            on_background(Box::pin(self.release_numbered())).await
        }
    }

    async fn release_numbered(self) -> Result<()> {
        // The next holder of a slot finds its number free.
        let numbers = join_all(self.slot_holds.into_iter().map(Hold::release)).await;
        let semaphore = self.hold.release().await;

        all_released(numbers.into_iter().chain([semaphore]))
    }

    pub(crate) fn hold_watches(&self) -> impl Iterator<Item = HoldWatch> {
        self.holds().map(Hold::watch)
    }

    /// Returns the URL of the store without its password.
    #[doc(hidden)]
    #[must_use]
    pub fn store_url(&self) -> &str {
        self.hold.store_url()
    }
}

/// Shows the name, the store and the token.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("store", &self.store_url())
            .field("token", &self.token().get())
            .finish_non_exhaustive()
    }
}

/// Returns the outcome of several releases. A loss matters more than a missing reply.
pub(crate) fn all_released(releases: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut releases: Vec<_> = releases.into_iter().collect();
    releases.sort_by_key(|released| !released.as_ref().is_err_and(Error::is_lost));
    releases.into_iter().collect()
}

/// Runs `work`; drops it and returns `None` once `end` resolves.
///
/// The end is polled first. If both are ready, the last steps of the work may have come after the
/// loss, so the work does not count. That is not enough alone: the background thread reports a loss
/// and may be late, for example when the machine was suspended, and then the work completes at a
/// poll that finds no end yet. So a caller whose end is a loss reads the clock once more, as
/// [`Guard::while_held`] does.
pub(crate) async fn run_until<T, E>(
    end: impl Future<Output = E>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut end = pin!(end);

    let done = std::future::poll_fn(|context| {
        if end.as_mut().poll(context).is_ready() {
            return std::task::Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    });
    done.await
}
