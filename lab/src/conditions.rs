//! Measures the four conditions of a lock: exclusion, no deadlock, only the owner unlocks, fault
//! tolerance.
//!
//! Each [contender](crate::baselines) goes through the same [cases]. They kill and pause real
//! processes, kill and flush real servers, and read and write resources under the lock.

pub mod cases;
mod page;
mod picture;
mod testbed;
mod verdict;

use serde::{Deserialize, Serialize};

use crate::baselines::Contender;

pub use cases::{Crash, Crowd, Down, Failover, Owner, Pause};
pub use page::page;
pub use picture::picture;
pub use testbed::BaselineTestbed;

/// The lease of a case that does not choose another one.
pub const LEASE_MILLIS: u64 = 2_000;
/// The lease while servers are replaced. It outlasts the case, so an expired lease does not notify
/// the holder. It is also the longest lease that the Redlock masters accept.
pub const LONG_MILLIS: u64 = 6_000;
/// The lease of a case that must end before the lease does.
pub const AMPLE_MILLIS: u64 = 60_000;
/// A client that has not been granted the lock after this time counts as never granted.
pub const NEVER_MILLIS: u64 = 8_000;
/// How many clients contend for one lock.
pub const CROWD: u32 = 100;

/// The figures of one contender. A case that does not apply is `None`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The contender.
    pub contender: Contender,
    /// A holder was killed.
    pub holder_killed: Crash,
    /// A client was killed between two requests of its acquisition.
    pub acquirer_killed: Option<Crash>,
    /// A holder was paused for longer than its lease.
    pub paused: Pause,
    /// A client that did not hold the lock released it.
    pub owner: Owner,
    /// The server was replaced by one that had not received the lock yet.
    pub failover: Option<Failover>,
    /// Servers were killed.
    pub down: Option<Down>,
    /// Many clients contended.
    pub crowd: Crowd,
}
