//! Measures the four conditions of a lock: exclusion, no deadlock, only the owner unlocks, fault
//! tolerance.
//!
//! Each [contender](crate::baselines) goes through the same [cases]. They kill and pause real
//! processes, kill and flush real servers, and read and write resources under the lock.

pub mod cases;
mod outages;
mod page;
mod testbed;
mod verdict;

use std::time::Duration;

pub use page::{draw, table, update};
pub use testbed::BaselineTestbed;

/// The lease of a case that does not choose another one.
const LEASE: Duration = Duration::from_secs(2);
/// The lease while servers are replaced. It outlasts the case, so an expired lease does not notify
/// the holder. It is also the longest lease that the Redlock masters accept.
const LONG: Duration = Duration::from_secs(6);
/// The lease of a case that must end before the lease does.
const AMPLE: Duration = Duration::from_secs(60);
/// A client that has not been granted the lock after this time counts as never granted.
const NEVER_MILLIS: u64 = 8_000;
/// How many clients contend for one lock.
const CROWD: u32 = 100;
