//! The same locks for threads without a runtime.
//!
//! Every type whose methods wait is here under the same name, with the same options, errors and
//! guarantees. A call that waits blocks its thread. The one background thread serves these types
//! too, so no thread is started per lock.
//!
//! A guard has no `while_held`, because nothing can stop the work of a thread. The work calls
//! `check` between its steps, or another thread waits for the loss by `watch`.
//!
//! ```
//! use leasehold::blocking;
//! use std::time::Duration;
//!
//! let locks = blocking::open("memory:")?;
//! let lock = locks.mutex("orders/42").label("billing");
//! if let Ok(guard) = lock.try_acquire_for(Duration::from_secs(5))? {
//!     guard.check()?;
//!     guard.release()?;
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! In async code these functions block the thread that calls them.
//!
//! # The end of a program
//!
//! A dropped guard is released by the background thread, which ends with the process. So the end
//! of the main thread waits up to one second until the releases have reached the store.
//!
//! [`drain`] waits for the releases of all threads, at any time. A program calls it before it ends
//! with `std::process::exit`, or to wait for longer.

use leasehold_core::internal::background::block_on;

use crate::open::{open_lazy_on, open_on};
use crate::{Examination, Result};

pub use leasehold_core::blocking::{
    Election, Guard, LeaderObserver, Leadership, Lock, Locks, MultiGuard, MultiLock, Observer,
    Once, OnceGuard, Reentrant, ReentrantGuard, RwLock, Watch, drain, multi_lock,
};

/// See [`leasehold::open`](crate::open).
///
/// # Errors
/// See [`leasehold::open`](crate::open).
pub fn open(url: &str) -> Result<Locks> {
    // A runtime around this thread cannot drive a connection while the thread is blocked.
    block_on(open_on(url, None)).map(Locks::from)
}

/// See [`leasehold::open_lazy`](crate::open_lazy).
///
/// # Errors
/// See [`leasehold::open_lazy`](crate::open_lazy).
pub fn open_lazy(url: &str) -> Result<Locks> {
    open_lazy_on(url, None).map(Locks::from)
}

/// See [`leasehold::examine`](crate::examine).
///
/// # Errors
/// See [`leasehold::examine`](crate::examine).
pub fn examine(url: &str) -> Result<Examination> {
    block_on(crate::examine(url))
}
