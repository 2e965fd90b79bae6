//! Observing a hold from another thread.

use std::time::Duration;

use crate::runtime::background::block_on;
use crate::{LossReason, Result};

/// Observes a hold from a thread that does not have the guard; see
/// [`leasehold::Watch`](crate::Watch).
///
/// ```
/// let guard = leasehold::blocking::open("memory:")?.mutex("nightly").acquire()?;
/// let watch = guard.watch();
/// let observer = std::thread::spawn(move || watch.lost());
///
/// guard.release()?;
/// assert_eq!(observer.join().expect("it ends with the hold"), None);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Watch(crate::Watch);

forward!(Watch of Watch {
    wait lost() -> Option<LossReason>;
    call check() -> Result<()>;
    get remaining() -> Duration;
});
from_async!(Watch => Watch);
