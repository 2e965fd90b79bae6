//! Leader election.

use std::ops::Deref;
use std::time::Duration;

use super::guard::block_on_timeout;
use super::{Guard, Lock};
use crate::runtime::background::block_on;
use crate::{Leader, Refused, Result};

/// An election among the clients of one name; see [`leasehold::Election`](crate::Election).
///
/// ```
/// let election = leasehold::blocking::open("memory:")?.election("scheduler");
/// let leadership = election.campaign("10.0.0.5:8080")?;
///
/// let leader = election.leader()?.expect("this client leads");
/// assert_eq!(leader.address(), "10.0.0.5:8080");
/// assert_eq!(leader.token, leadership.token());
/// leadership.resign()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Election(crate::Election);

impl Election {
    /// See [`leasehold::Election::configure`](crate::Election::configure).
    #[must_use]
    pub fn configure(self, change: impl FnOnce(Lock) -> Lock) -> Self {
        let change = |lock| change(Lock::from(lock)).0;
        Self(self.0.configure(change))
    }
}

forward!(Election of Election {
    get name() -> &str;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// let leadership = locks.election("scheduler").campaign("10.0.0.5:8080")?;
    /// leadership.check()?;
    /// leadership.resign()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    grant campaign(address: &str) -> Result<Leadership>;
    try_grant try_campaign_for(
        address: &str,
        timeout: Duration
    ) -> Result<Result<Leadership, Refused>>;
    ///
    /// ```
    /// # let locks = leasehold::blocking::open("memory:")?;
    /// if let Some(leader) = locks.election("scheduler").leader()? {
    ///     println!("send requests to {}", leader.address());
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    wait leader() -> Result<Option<Leader>>;
    grant observe() -> Result<LeaderObserver>;
});
from_async!(Election => Election);

/// The leadership of this client; see [`leasehold::Leadership`](crate::Leadership).
///
/// It has all methods of a [`Guard`].
///
/// ```
/// let election = leasehold::blocking::open("memory:")?.election("scheduler");
/// let leadership = election.campaign("10.0.0.5:8080")?;
/// leadership.check()?; // as any guard
/// leadership.resign()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "this client resigns when the leadership is dropped"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// See [`leasehold::Leadership::resign`](crate::Leadership::resign).
    pub fn resign(self) -> Result<()> {
        self.guard.release()
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<crate::Leadership> for Leadership {
    fn from(leadership: crate::Leadership) -> Self {
        Self {
            guard: Guard::from(leadership.into_guard()),
        }
    }
}

/// Converts the leadership for async code; the hold stays the same.
impl From<Leadership> for crate::Leadership {
    fn from(leadership: Leadership) -> Self {
        Self::from_guard(leadership.guard.into())
    }
}

/// Observes which client leads; see [`leasehold::LeaderObserver`](crate::LeaderObserver).
///
/// ```
/// use std::time::Duration;
///
/// let election = leasehold::blocking::open("memory:")?.election("scheduler");
/// let mut observer = election.observe()?;
/// assert_eq!(observer.next()?, None);
///
/// let leadership = election.campaign("10.0.0.5:8080")?;
/// let leader = observer.next()?.expect("this client leads");
/// assert_eq!(leader.token, leadership.token());
/// assert!(observer.next_for(Duration::from_millis(1)).is_none());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
pub struct LeaderObserver(crate::LeaderObserver);

impl LeaderObserver {
    /// See [`leasehold::LeaderObserver::next`](crate::LeaderObserver::next).
    #[expect(
        clippy::should_implement_trait,
        reason = "it has the name of the async API, and no end"
    )]
    pub fn next(&mut self) -> Result<Option<Leader>> {
        block_on(self.0.next())
    }

    /// Calls [`next`](Self::next) for at most `timeout`; returns `None` if the leader has not
    /// changed.
    ///
    /// No change is lost: the next call returns it.
    pub fn next_for(&mut self, timeout: Duration) -> Option<Result<Option<Leader>>> {
        block_on_timeout(timeout, self.0.next())
    }
}

forward!(LeaderObserver of LeaderObserver {
    get is_pushed() -> bool;
});
from_async!(LeaderObserver => LeaderObserver);
