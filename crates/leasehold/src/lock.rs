//! A lock to acquire.

use std::time::Duration;

use crate::engine::{AcquireOptions, WaitLimit, acquire};
use crate::runtime::background::on_background;
use crate::{Error, Guard, Locks, Name, Result, Share};

/// A lock to acquire: which, how much of it, and on what terms.
///
/// Made by [`Locks::mutex`], [`Locks::semaphore`], [`RwLock::shared`](crate::RwLock::shared) and
/// [`RwLock::exclusive`](crate::RwLock::exclusive). Terms that make no sense are refused when it is acquired, so that
/// they can be chained without `?`.
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let lock = locks.mutex("orders/42").lease(Duration::from_secs(10)).label("billing");
/// let Some(guard) = lock.try_acquire_for(Duration::from_secs(5)).await? else { return Ok(()) };
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    locks: Locks,
    name: String,
    share: Result<Share>,
    lease: Duration,
    label: String,
    no_renewal: bool,
    hold_max: Option<Duration>,
}

impl Lock {
    /// The lease unless another is asked for: 30 seconds.
    pub const LEASE: Duration = Duration::from_secs(30);

    pub(crate) fn new(locks: Locks, name: &str, share: Result<Share>) -> Self {
        let (name, label) = (name.to_owned(), String::new());
        Self {
            locks,
            name,
            share,
            lease: Self::LEASE,
            label,
            no_renewal: false,
            hold_max: None,
        }
    }

    /// How long the store keeps the lock without hearing of its holder: 100 ms to 24 hours, 30 s by default.
    ///
    /// It is renewed for as long as the guard lives, so it bounds how long a vanished holder blocks others, not how long
    /// the work may take.
    ///
    /// Where a store judges holders by their liveness, a holder that is silent loses the lock sooner: on a Redis server
    /// after the crash grace (`crash-grace=`, 10 s by default), on ZooKeeper with its session (`session=`, 10 s by
    /// default). [`Guard::remaining`](crate::Guard::remaining) goes by the shorter one. An outage of at most 0.6 of that
    /// time does not cost the lock.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Does not renew the lease: the lock is over when the lease is, whether or not the work is done.
    #[must_use]
    pub fn no_renewal(self) -> Self {
        Self {
            no_renewal: true,
            ..self
        }
    }

    /// Holds no longer than this, however often the lease is renewed; then the guard is lost.
    #[must_use]
    pub fn max_hold(self, longest: Duration) -> Self {
        Self {
            hold_max: Some(longest),
            ..self
        }
    }

    /// What others read of this claim in `show` and `ls`: at most 64 bytes.
    #[must_use]
    pub fn label(self, label: &str) -> Self {
        Self {
            label: label.to_owned(),
            ..self
        }
    }

    /// Takes `slots` slots of a semaphore at once instead of one.
    ///
    /// A claim for many slots is not overtaken by later claims for few.
    #[must_use]
    pub fn permits(self, slots: u32) -> Self {
        let share = self
            .share
            .clone()
            .and_then(|share| Share::slots(slots, share.capacity()));
        Self { share, ..self }
    }

    /// Waits in line for as long as it takes.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if the store does not answer for 10 seconds,
    /// [`is_denied`](Error::is_denied), [`is_unsupported`](Error::is_unsupported), [`is_mismatch`](Error::is_mismatch),
    /// [`is_damaged`](Error::is_damaged), and [`is_invalid`](Error::is_invalid) for a wrong name or terms.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; a grant that was under way is given back in the background.
    pub async fn acquire(&self) -> Result<Guard> {
        let granted = self.wait_limit(WaitLimit::Forever).await?;
        Ok(granted.expect("only a deadline or a refusal to wait ends without a grant"))
    }

    /// Acquires only if that needs no waiting; `None` if it would.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.wait_limit(WaitLimit::Never).await
    }

    /// Waits in line for at most `wait`; `None` if it was not granted by then, and nothing is left in line.
    ///
    /// It returns after `wait` plus at most one round trip. Time that the machine is suspended does not count.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); [`is_unavailable`](Error::is_unavailable) too if `wait` is a second or more and the
    /// store has said nothing at all within it.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_for(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.wait_limit(WaitLimit::AtMost(timeout)).await
    }

    /// The name as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    async fn wait_limit(&self, timeout: WaitLimit) -> Result<Option<Guard>> {
        let options = self
            .acquire_options()
            .map_err(|error| error.during("acquire", self.locks.url(), Some(&self.name)))?;
        let granted = on_background(acquire::acquire(self.locks.engine(), &options, timeout)).await;
        let granted =
            granted.map_err(|error| error.during("acquire", self.locks.url(), Some(&self.name)))?;
        Ok(granted.map(Guard::new))
    }

    /// Everything that can be wrong with the terms is found here.
    fn acquire_options(&self) -> Result<AcquireOptions> {
        check_lease(self.lease)?;
        if self.hold_max.is_some_and(|longest| longest.is_zero()) {
            return Err(Error::invalid(
                "max_hold of zero would lose the lock as it is granted",
            ));
        }
        Ok(AcquireOptions {
            name: Name::parse(&self.name)?,
            share: self.share.clone()?,
            lease: self.lease,
            label: self.label.clone(),
            no_renewal: self.no_renewal,
            max_hold: self.hold_max,
        })
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
