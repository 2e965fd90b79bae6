//! A job that runs once, however many machines start it.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use futures_util::TryFutureExt;

use crate::engine::{LONGEST_REPLY, WaitLimit};
use crate::record::{Completion, ID_MAX, Occasion, Outcome};
use crate::runtime::background::on_background;
use crate::runtime::clock::BootInstant;
use crate::store::RecordReader;
use crate::{Error, Guard, Lock, Locks, LossReason, Name, Record, Refused, Result, Token};

/// A job that runs once, however many machines start it: its name, and what tells one run from the
/// next.
///
/// A lock alone does not run a short job once: the first machine is done before the clock of the
/// second one strikes. So the store keeps a [record](Record) of what was completed beside the lock.
/// The client reads it before it acquires, and again after the grant, because only then does it show
/// that the job is not done. It adds to the record in the step that releases.
///
/// ```
/// # async fn send_report() -> leasehold::Result<()> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// match locks.once("report").id("2026-11-28").acquire().await? {
///     Ok(guard) => {
///         guard.while_held(send_report()).await??;
///         guard.complete().await?;
///     }
///     Err(done) => println!("{done}"),
/// }
/// # Ok(()) }
/// ```
///
/// A job that fails, or that loses the lock, is not recorded, and the next acquire runs it. A store
/// that loses its data loses the record with it, and the job runs again: GUARANTEES.md says when.
///
/// # Errors
/// An acquire fails with [`is_unsupported`](Error::is_unsupported) on a store without records:
/// Redlock and the formats of other libraries.
#[derive(Clone, Debug)]
pub struct Once {
    lock: Lock,
    occasion: Result<Occasion>,
}

impl Locks {
    /// Creates a job that runs once; [`Once::id`] or [`Once::per`] says how often that is.
    ///
    /// It holds the [`mutex`](Self::mutex) of this name while the job runs.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// let by_date = locks.once("report").id("2026-11-28");
    /// let hourly = locks.once("sync").per(Duration::from_secs(3600));
    /// # drop((by_date, hourly));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn once(&self, name: impl AsRef<str>) -> Once {
        let neither = Error::invalid("a job that runs once needs an id or a period");
        Once {
            lock: self.mutex(name),
            occasion: Err(neither.help("call id(…) or per(…)")),
        }
    }

    /// Reads which jobs were completed under a name.
    ///
    /// It takes at most the [reply timeout](Self::reply_timeout), 2 s by default.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let job = locks.once("report").id("2026-11-28");
    /// let Ok(guard) = job.acquire().await? else { return Ok(()) };
    /// guard.complete().await?;
    /// let record = locks.record("report").await?;
    /// println!("done by {}", record.completions[0].by);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported) on a store without records.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn record(&self, name: impl AsRef<str>) -> Result<Record> {
        let text = name.as_ref();
        let name = Name::parse(text)
            .map_err(|error| error.during("read the record of", self.url(), Some(text)))?;
        let calls = &self.engine.calls;
        let reading = calls.record(&name, RecordReader::Observer, self.reply_timeout);
        on_background(reading).await
    }

    /// Returns the names with records that begin with `prefix`, sorted, at most `count_max`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let job = locks.once("report").id("2026-11-28");
    /// let Ok(guard) = job.acquire().await? else { return Ok(()) };
    /// guard.complete().await?;
    /// assert_eq!(locks.list_records("rep", 10).await?[0].as_str(), "report");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported) on a store without records.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let calls = &self.engine.calls;
        on_background(calls.list_records(prefix, count_max, self.reply_timeout)).await
    }
}

impl Once {
    /// Runs the job once for this id: a text of 1 to 64 bytes that the schedule or the commit
    /// determines, such as a date.
    ///
    /// Ids are compared for equality and have no order. The store keeps the last 32 of a name.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let job = locks.once("deploy").id("3f9c2ab"); // the commit
    /// # assert!(job.acquire().await?.is_ok());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        let id = id.into();
        let occasion = match id.len() {
            1..=ID_MAX => Ok(Occasion::Id(id)),
            len => Err(Error::invalid(format!(
                "the id of a job has 1 to {ID_MAX} bytes, and this one has {len}"
            ))),
        };
        Self { occasion, ..self }
    }

    /// Runs the job once in each period, for schedules without an id.
    ///
    /// A success counts for this acquire if it started less than half a period before it, or after
    /// it. That is right while all starts lie within half a period of when they are due. After a
    /// start that is later, use [`id`](Self::id): a daily job that starts 13 hours late swallows
    /// the next one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use std::time::Duration;
    /// let job = locks.once("sync").per(Duration::from_secs(3600));
    /// if let Ok(guard) = job.acquire().await? {
    ///     guard.complete().await?;
    /// }
    /// assert!(job.acquire().await?.is_err(), "done for this hour");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn per(self, period: Duration) -> Self {
        let occasion = if period.is_zero() {
            Err(Error::invalid("a job cannot run once in a period of zero"))
        } else {
            Ok(Occasion::Period(period))
        };
        Self { occasion, ..self }
    }

    /// Sets the lease; see [`Lock::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let lock = self.lock.lease(lease);
        Self { lock, ..self }
    }

    /// Limits the time for which the job may run; see [`Lock::max_hold`].
    #[must_use]
    pub fn max_hold(self, longest: Duration) -> Self {
        let lock = self.lock.max_hold(longest);
        Self { lock, ..self }
    }

    /// Labels the claim; see [`Lock::label`].
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        let lock = self.lock.label(label);
        Self { lock, ..self }
    }

    /// Waits until the job is done, or this acquire is to do it.
    ///
    /// Waiting is the right choice for a schedule: if the holder crashes, a waiter runs the job.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let job = locks.once("report").id("2026-11-28");
    /// if let Ok(guard) = job.acquire().await? {
    ///     guard.complete().await?;
    /// }
    /// let done = job.acquire().await?.unwrap_err();
    /// println!("{done}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lock::acquire`]. Also [`is_unsupported`](Error::is_unsupported) on a store without
    /// records, and [`is_invalid`](Error::is_invalid) for an invalid id or period, and for half a
    /// period that is longer than the store keeps a record.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn acquire(&self) -> impl Future<Output = Result<Result<OnceGuard, Done>>> + Send + use<> {
        let acquiring = self.clone().acquire_within(WaitLimit::Forever);
        acquiring.map_ok(|granted| {
            granted.map_err(|other| match other {
                NotGranted::Done(done) => done,
                NotGranted::Refused(_) => {
                    unreachable!("without a limit the wait ends with a grant")
                }
            })
        })
    }

    /// Acquires the job if no other claim holds or waits for its lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use leasehold::NotGranted;
    /// match locks.once("report").id("2026-11-28").try_acquire().await? {
    ///     Ok(guard) => guard.complete().await?,
    ///     Err(NotGranted::Done(done)) => println!("{done}"),
    ///     Err(NotGranted::Refused(refused)) => println!("under way: {refused}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Result<OnceGuard, NotGranted>>> + Send + use<> {
        self.clone().acquire_within(WaitLimit::Never)
    }

    /// Waits as [`acquire`](Self::acquire) does, for at most `timeout`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire) and [`Lock::try_acquire_for`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn try_acquire_for(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Result<OnceGuard, NotGranted>>> + Send + use<> {
        self.clone().acquire_within(WaitLimit::AtMost(timeout))
    }

    async fn acquire_within(self, limit: WaitLimit) -> Result<Result<OnceGuard, NotGranted>> {
        let asked = BootInstant::now();
        let deadline = limit.deadline();
        let shortest = self.lock.locks().reply_timeout;
        let reply_timeout = || limit.rest(deadline).first_reply(shortest);
        if let Some(done) = self.check_within(reply_timeout()).await? {
            return Ok(Err(NotGranted::Done(done)));
        }
        loop {
            let guard = match self.lock.acquire_within(limit.rest(deadline)).await? {
                Ok(guard) => guard,
                Err(refused) => return Ok(Err(NotGranted::Refused(refused))),
            };
            match self.start_within(&guard, asked, reply_timeout()).await {
                Ok(Ok(job)) => return Ok(Ok(OnceGuard { guard, job })),
                Ok(Err(done)) => {
                    // The job is done, whether the lock was lost meanwhile or not.
                    let _ = guard.release().await;
                    return Ok(Err(NotGranted::Done(done)));
                }
                // The job has not begun, so a loss changes nothing but the place in the queue.
                Err(error)
                    if error.is_lost()
                        && guard.loss() != Some(LossReason::MaxHoldExceeded)
                        && limit.allows_another_wait(deadline) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks the options, and that the store keeps a record for long enough. Returns who has
    /// completed the job, if it is done: a completion stays, so that needs no claim.
    #[doc(hidden)]
    pub async fn check(&self) -> Result<Option<Done>> {
        self.check_within(LONGEST_REPLY).await
    }

    /// Reads the record after the grant: a completion may be recorded up to that moment.
    ///
    /// The caller has `asked` for the job before it first reached the store.
    #[doc(hidden)]
    pub async fn start(
        &self,
        guard: &Guard,
        asked: BootInstant,
    ) -> Result<Result<StartedJob, Done>> {
        self.start_within(guard, asked, LONGEST_REPLY).await
    }

    async fn check_within(&self, reply_timeout: Duration) -> Result<Option<Done>> {
        let context = |error: Error| self.context(error);
        let occasion = self
            .occasion
            .as_ref()
            .map_err(|error| context(error.clone()))?;
        let name = Name::parse(self.lock.name()).map_err(context)?;
        let calls = &self.lock.locks().engine.calls;
        calls.check_not_forked("acquire", Some(&name))?;

        let kept = on_background(calls.records_kept(&name, reply_timeout)).await?;
        match occasion {
            Occasion::Period(period) if *period / 2 > kept => {
                let error = Error::invalid(format!(
                    "half of the period {period:?} is longer than the store keeps a record, {kept:?}"
                ));
                Err(context(
                    error.help("set a longer records= in the URL, or use an id"),
                ))
            }
            _ => {
                let reading = calls.record(&name, RecordReader::Holder, reply_timeout);
                let record = on_background(reading).await?;
                let done = record.done(occasion, Duration::ZERO);
                Ok(done.map(|completion| Done::new(&name, completion)))
            }
        }
    }

    async fn start_within(
        &self,
        guard: &Guard,
        asked: BootInstant,
        reply_timeout: Duration,
    ) -> Result<Result<StartedJob, Done>> {
        let calls = &self.lock.locks().engine.calls;
        let name = &guard.hold().claim().name;
        let record = on_background(calls.record(name, RecordReader::Holder, reply_timeout)).await?;
        let waited = BootInstant::now().duration_since(asked);
        self.decide(guard, waited, &record)
    }

    /// Decides whether the job is done by a record that was read while the guard was held.
    fn decide(
        &self,
        guard: &Guard,
        waited: Duration,
        record: &Record,
    ) -> Result<Result<StartedJob, Done>> {
        // After a loss, another claim may have completed the job since the read.
        guard.check()?;
        let occasion = self.occasion.clone().map_err(|error| self.context(error))?;
        if let Some(completion) = record.done(&occasion, waited) {
            return Ok(Err(Done::new(&guard.hold().claim().name, completion)));
        }

        Ok(Ok(StartedJob {
            started_at: record.read_at,
            id: match occasion {
                Occasion::Id(id) => id,
                Occasion::Period(_) => String::new(),
            },
        }))
    }

    fn context(&self, error: Error) -> Error {
        error.during("acquire", self.lock.locks().url(), Some(self.lock.name()))
    }
}

/// A job that this process is to do. Dropping it releases the lock and records nothing, so that the
/// next acquire runs the job.
///
/// It has all methods of a [`Guard`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// # fn send_report() -> Result<(), String> { Ok(()) }
/// if let Ok(guard) = locks.once("report").id("2026-11-28").acquire().await? {
///     match send_report() {
///         Ok(()) => guard.complete().await?,
///         Err(_) => guard.fail().await?, // the next acquire runs it
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct OnceGuard {
    guard: Guard,
    job: StartedJob,
}

impl OnceGuard {
    /// Records that the job is completed and releases the lock, in one step of the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let job = locks.once("report").id("2026-11-28");
    /// if let Ok(guard) = job.acquire().await? {
    ///     guard.complete().await?;
    /// }
    /// assert!(job.acquire().await?.is_err(), "it is done");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The job is not recorded, and runs again. [`is_lost`](Error::is_lost) if the lock was lost
    /// before. [`is_unavailable`](Error::is_unavailable) if the store sent no reply within 10 s: it
    /// may still have recorded the job.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, recording and release continue in the
    /// background.
    pub async fn complete(self) -> Result<()> {
        self.job.end(self.guard, Outcome::Success).await
    }

    /// Records that the job has failed and releases the lock. The next acquire runs the job.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let job = locks.once("report").id("2026-11-28");
    /// if let Ok(guard) = job.acquire().await? {
    ///     guard.fail().await?;
    /// }
    /// assert!(job.acquire().await?.is_ok(), "it runs again");
    /// assert!(locks.record("report").await?.failure.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn fail(self) -> Result<()> {
        self.job.end(self.guard, Outcome::Failure).await
    }
}

impl Deref for OnceGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// A job that was not done when its lock was granted.
#[doc(hidden)]
#[derive(Debug)]
pub struct StartedJob {
    started_at: SystemTime,
    id: String,
}

impl StartedJob {
    /// Records how the job ended, and releases the lock.
    pub async fn end(self, guard: Guard, outcome: Outcome) -> Result<()> {
        let claim = guard.hold().claim();
        let mut completion = Completion::success(claim, guard.token(), self.started_at);
        completion.id = self.id;
        completion.outcome = outcome;
        on_background(guard.into_hold().complete(completion)).await
    }
}

/// Who has completed a job that was not run again. It is an error for `?`, with a text for people.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let job = locks.once("report").id("2026-11-28");
/// if let Ok(guard) = job.acquire().await? {
///     guard.complete().await?;
/// }
/// let done = job.acquire().await?.unwrap_err();
/// println!("{} was done by {} at {:?}", done.name, done.by, done.at);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// The name of the lock.
    pub name: Name,
    /// The process that completed the job, in readable form.
    pub by: String,
    /// When it completed the job, by the store's clock.
    pub at: SystemTime,
    /// The token with which it held the lock.
    pub token: Token,
}

impl Done {
    fn new(name: &Name, completion: &Completion) -> Self {
        Self {
            name: name.clone(),
            by: completion.by.clone(),
            at: completion.ended_at,
            token: completion.token,
        }
    }
}

/// The text is one line, without control characters.
impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = crate::name::Escaped(&self.by);
        write!(f, "{:?} was completed by {by}", self.name.as_str())
    }
}

impl std::error::Error for Done {}

/// Why a job was not granted in time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::NotGranted;
/// let job = locks.once("report").id("2026-11-28");
/// let first = job.acquire().await?;
/// assert!(matches!(job.try_acquire().await?, Err(NotGranted::Refused(_))));
/// # drop(first);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotGranted {
    /// The job is done.
    Done(Done),
    /// Another claim holds the lock.
    Refused(Refused),
}

impl fmt::Display for NotGranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(done) => done.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for NotGranted {}
