//! Leader election: a mutex whose entry carries the leader's address.

use std::ops::Deref;
use std::time::Duration;

use futures_util::{Stream, stream};

use crate::claimant_info::LABEL_MAX;
use crate::{
    ClaimantInfo, Error, Guard, Lock, LockState, Locks, Need, Observer, Refused, Result, Token,
};

/// An election among the clients of one name; [`Locks::election`] creates it.
///
/// One candidate leads at a time, and the others wait in the queue. The leader's entry in the store
/// carries its address, so that every client can find the leader.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let election = leasehold::open("memory:").await?.election("scheduler");
/// let leadership = election.campaign("10.0.0.5:8080").await?;
///
/// let leader = election.leader().await?.expect("this client leads");
/// assert_eq!(leader.address(), "10.0.0.5:8080");
/// assert_eq!(leader.token, leadership.token());
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
///
/// A leader that sleeps may still act after it was replaced. A resource that checks
/// [tokens](crate::fence) rejects such an action, so a leader sends its token with each write.
///
/// Elections need tokens, because only tokens order the leaders. A store without them fails with
/// [`is_unsupported`](Error::is_unsupported): Redis with `dialect=plain` unless it has `tokens=on`,
/// with `dialect=redisson` unless it has `lock=fenced`, and Redlock with `dialect=classic`.
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

impl Locks {
    /// Creates an election. Its name is that of a [mutex](Self::mutex).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let election = locks.election("scheduler");
    /// assert!(election.leader().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "elect")]
    #[must_use]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election {
            lock: self.mutex(name),
        }
    }
}

impl Election {
    /// Returns the name as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Changes the options of the mutex, such as its lease. The label is the leader's address.
    ///
    /// A campaign with a [cohort](Lock::cohort) fails with [`is_invalid`](Error::is_invalid): the
    /// store does not know which token of its block the leader has.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// let election = locks.election("scheduler");
    /// let election = election.configure(|lock| lock.lease(Duration::from_secs(10)));
    /// election.campaign("10.0.0.5:8080").await?.resign().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn configure(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        Self {
            lock: change(self.lock),
        }
    }

    /// Waits until this client leads.
    ///
    /// `address` has 1 to 255 bytes and any form. Others read it from the store. On the file store,
    /// whose entries have a fixed length, it has at most 64 bytes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let leadership = locks.election("scheduler").campaign("10.0.0.5:8080").await?;
    /// leadership.while_held(async { /* lead */ }).await?;
    /// leadership.resign().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lock::acquire`]. Also [`is_invalid`](Error::is_invalid) for an empty or long address.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    #[doc(alias = "elect")]
    pub fn campaign(
        &self,
        address: &str,
    ) -> impl Future<Output = Result<Leadership>> + Send + use<> {
        let candidate = self.candidate(address);
        async move {
            let guard = candidate?.acquire().await?;
            Ok(Leadership { guard })
        }
    }

    /// Campaigns for at most `timeout`; returns the leader's entry if this client was not elected.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// let election = locks.election("scheduler");
    /// match election.try_campaign_for("10.0.0.5:8080", Duration::from_secs(2)).await? {
    ///     Ok(leadership) => leadership.resign().await?,
    ///     Err(leader) => println!("{leader}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign), and as [`Lock::try_acquire_for`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn try_campaign_for(
        &self,
        address: &str,
        timeout: Duration,
    ) -> impl Future<Output = Result<Result<Leadership, Refused>>> + Send + use<> {
        let candidate = self.candidate(address);
        async move {
            let granted = candidate?.try_acquire_for(timeout).await?;
            Ok(granted.map(|guard| Leadership { guard }))
        }
    }

    /// Returns the leader; `None` if no client leads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// match locks.election("scheduler").leader().await? {
    ///     Some(leader) => println!("send requests to {}", leader.address()),
    ///     None => println!("nobody leads"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.check_tokens()?;
        let lock_state = self.lock.locks().inspect(self.lock.name()).await?;
        Ok(Leader::of(&lock_state))
    }

    /// Observes which client leads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let mut observer = locks.election("scheduler").observe().await?;
    /// assert_eq!(observer.next().await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Locks::observe`].
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn observe(&self) -> Result<LeaderObserver> {
        self.check_tokens()?;
        Ok(LeaderObserver {
            observer: self.lock.locks().observe(self.lock.name()).await?,
            seen: None,
            has_returned: false,
        })
    }

    fn candidate(&self, address: &str) -> Result<Lock> {
        self.check_tokens()?;
        if address.is_empty() || address.len() > LABEL_MAX {
            let len = address.len();
            let error = Error::invalid(format!(
                "a leader's address has 1 to {LABEL_MAX} bytes, and this one has {len}"
            ));
            return Err(self.with_context(error));
        }
        if self.lock.has_cohort() {
            let error = Error::invalid("a leadership is not passed on, so it has no cohort");
            return Err(self.with_context(error.help("remove cohort(…) from the election's lock")));
        }
        Ok(self.lock.clone().candidate(address))
    }

    fn check_tokens(&self) -> Result<()> {
        let checked = Need::Tokens.check(&self.lock.locks().guarantees());
        checked.map_err(|error| self.with_context(error))
    }

    fn with_context(&self, error: Error) -> Error {
        error.during("campaign", self.lock.locks().url(), Some(self.lock.name()))
    }
}

/// The leadership of this client, until it resigns, drops this value, or loses the lock.
///
/// It has all methods of a [`Guard`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let leadership = locks.election("scheduler").campaign("10.0.0.5:8080").await?;
/// leadership.check()?; // as any guard
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "this client resigns when the leadership is dropped"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// Gives the leadership back, so that the next candidate leads.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }

    pub(crate) fn from_guard(guard: Guard) -> Self {
        Self { guard }
    }

    pub(crate) fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// The leader, as its entry in the store shows it.
///
/// It may have been replaced since the entry was read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let election = locks.election("scheduler");
/// let leadership = election.campaign("10.0.0.5:8080").await?;
/// let leader = election.leader().await?.expect("this client leads");
/// println!("{} by {}, token {}", leader.address(), leader.info, leader.token);
/// # drop(leadership);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The token of its grant: later leaders have larger ones.
    pub token: Token,
    /// The process behind it.
    pub info: ClaimantInfo,
}

impl Leader {
    /// Returns the address with which it campaigned, which is the label of its claim.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.info.label
    }

    fn of(lock_state: &LockState) -> Option<Self> {
        let holder = lock_state.holders().next()?;
        Some(Self {
            token: holder.token()?,
            info: holder.info.clone(),
        })
    }
}

/// Observes which client leads; [`Election::observe`] creates it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let election = locks.election("scheduler");
/// let mut observer = election.observe().await?;
/// assert!(observer.next().await?.is_none());
///
/// let leadership = election.campaign("10.0.0.5:8080").await?;
/// assert_eq!(observer.next().await?.expect("it leads").token, leadership.token());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LeaderObserver {
    observer: Observer,
    /// The leader that was returned last.
    seen: Option<Leader>,
    has_returned: bool,
}

impl LeaderObserver {
    /// Waits for another leader than the one returned last; returns `None` if no client leads.
    ///
    /// The first call returns the present leader at once. The same client may lead again with a
    /// larger token.
    ///
    /// # Errors
    /// As [`Observer::next`].
    ///
    /// # Cancel safety
    /// As [`Observer::next`].
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            let leader = Leader::of(&self.observer.next().await?);
            if !self.has_returned || self.seen != leader {
                self.has_returned = true;
                self.seen.clone_from(&leader);
                return Ok(leader);
            }
        }
    }

    /// Returns the leaders as a stream, which does not end.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use futures_util::TryStreamExt;
    /// let mut leaders = Box::pin(locks.election("scheduler").observe().await?.into_stream());
    /// assert_eq!(leaders.try_next().await?, Some(None)); // nobody leads
    /// # Ok(()) }
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = Result<Option<Leader>>> + Send {
        stream::unfold(self, |mut observer| async move {
            let leader = observer.next().await;
            Some((leader, observer))
        })
    }

    /// Returns whether the store pushes changes; see [`Observer::is_pushed`].
    #[must_use]
    pub fn is_pushed(&self) -> bool {
        self.observer.is_pushed()
    }
}
