//! Observing a lock.

use std::time::Duration;

use super::guard::block_on_timeout;
use crate::runtime::background::block_on;
use crate::{LockState, Result};

/// Observes the state of a lock; see [`leasehold::Observer`](crate::Observer).
///
/// ```
/// let locks = leasehold::blocking::open("memory:")?;
/// let mut observer = locks.observe("nightly")?;
/// assert_eq!(observer.next()?.holders().count(), 0);
///
/// let _guard = locks.mutex("nightly").acquire()?;
/// assert_eq!(observer.next()?.holders().count(), 1);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
pub struct Observer(crate::Observer);

impl Observer {
    /// See [`leasehold::Observer::next`](crate::Observer::next).
    #[expect(
        clippy::should_implement_trait,
        reason = "it has the name of the async API, and no end"
    )]
    pub fn next(&mut self) -> Result<LockState> {
        block_on(self.0.next())
    }

    /// Calls [`next`](Self::next) for at most `timeout`; returns `None` without a change.
    ///
    /// No change is lost: the next call returns it.
    pub fn next_for(&mut self, timeout: Duration) -> Option<Result<LockState>> {
        block_on_timeout(timeout, self.0.next())
    }
}

forward!(Observer of Observer {
    get is_pushed() -> bool;
});
from_async!(Observer => Observer);
