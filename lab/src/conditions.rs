//! The four conditions of a lock, measured: exclusion, no deadlock, only the owner unlocks, fault tolerance.
//!
//! Each [specimen](crate::baselines) goes through the same [cases]: real processes that are killed and stopped, real servers that
//! are killed and emptied, and resources that are read and written under the lock.

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

/// How long locks are kept without hearing of their holder, where nothing else is said.
pub const LEASE_MILLIS: u64 = 2_000;
/// As long, where servers are replaced, so that what a holder hears of it is not that its lease is over; and the longest lease that
/// Redlock's masters know.
pub const LONG_MILLIS: u64 = 6_000;
/// As long, where a lease must not end before the case is over.
pub const AMPLE_MILLIS: u64 = 60_000;
/// Whoever has not been granted the lock after so long is not going to be.
pub const NEVER_MILLIS: u64 = 8_000;
/// How many contend.
pub const CROWD: u32 = 100;

/// What became of one specimen. Where a case does not apply nothing is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub contender: Contender,
    /// A holder was killed.
    pub holder_killed: Crash,
    /// One was killed between two requests of its acquisition.
    pub acquirer_killed: Option<Crash>,
    /// A holder was stopped for longer than its lease.
    pub paused: Pause,
    /// Whoever has no right to released it.
    pub owner: Owner,
    /// What it was kept on was replaced by what had not heard of it yet.
    pub failover: Option<Failover>,
    /// Servers were killed.
    pub down: Option<Down>,
    /// Many contended.
    pub crowd: Crowd,
}
