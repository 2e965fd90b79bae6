//! The checkers: each is a pure function of a history and finds violations of one guarantee.
//!
//! The numbers are those of the invariants in GUARANTEES.md. `cargo xtask evidence S1` prints the
//! other evidence for one.
//!
//! | | invariant | checker |
//! |---|---|---|
//! | S1, S2, S11 | tokens are unique, and rise | [`tokens`], [`tokens_over_loss`] |
//! | S3, S10 | by the common clock, concurrent holds fit the capacity | [`exclusion`] |
//! | S3, L7 | where two may hold at once, one of them is notified in time | [`loss_notified`] |
//! | S4 | validity never exceeds a lease; a lost hold is not released | [`validity`] |
//! | S5 | a fenced resource sees one block per token | [`regress`](crate::resources::regress) |
//! | S6 | renewing or releasing another's hold fails | [`Observer`](crate::Observer) |
//! | S7, S8 | a lost or released hold is never reported valid | [`ended`] |
//! | S7 | the events of a thread are consistent | [`holds`](crate::holds()) |
//! | S8, L5 | a released or abandoned claim leaves the queue | [`stale_entries`] |
//! | S9 | nested acquires share one token and end before the hold | [`nesting`], [`exclusion`] |
//! | S13 | data of other applications is not changed | the fault run, with its canaries |
//! | L1, L8, L9 | after a fault every lock is granted again | [`Recovery`] |
//! | L2 | a lock that a client waits for is not idle | [`idle`] |
//! | L2 | a release is notified to the next waiter | [`hand_over_time`] |
//! | L3, L4 | an [observed](queue_positions) waiter is not overtaken | [`order`], [`overtaking`] |
//! | L4, L8 | every waiter is granted in time | [`waits`] |
//! | L6 | a wait with a limit ends in time | [`waits`] |
//! | | a job is completed once, by a claim that held | [`completed_once`] |
//! | | a store that must refuse grants no lock, and gives an error | [`refusal`], [`refused_in`] |
//! | | a lock is held during a fault; one that outlasts a lease ends a hold | [`losses_in`] |
//! | L5 | a process returns descriptors, threads, tasks, memory | [`resource_leaks`] |
//! | L5 | queues, keys, connections, files and nodes are removed | `check_clean` of each backend |

mod completed_once;
mod cycles;
mod ended;
mod exclusion;
mod idle;
mod loss_notified;
mod losses;
mod nesting;
mod order;
mod overtaking;
mod queue_positions;
mod recovery;
mod refusal;
mod resource_leaks;
mod stale_entries;
mod tokens;
mod validity;
mod waiting;

use std::fmt;

use anyhow::Result;

use crate::{Event, Hold, history::in_time, holds};

pub use completed_once::{SecondRun, completed_once, second_runs};
pub use cycles::{Cycle, cycles};
pub use ended::ended;
pub use exclusion::{exclusion, overlaps};
pub use idle::{Span, idle, idle_time};
pub use loss_notified::{loss_notified, overlap_times};
pub use losses::{losses_in, meets_hold, passed_on};
pub use nesting::nesting;
pub use order::order;
pub use overtaking::{Overtaking, overtaking};
pub use queue_positions::queue_positions;
pub use recovery::Recovery;
pub use refusal::{refusal, refused_in};
pub use resource_leaks::resource_leaks;
pub(crate) use resource_leaks::{SLACK, fits, resource_leaks_beyond};
pub use stale_entries::{GoneTimes, stale_entries};
pub use tokens::{tokens, tokens_over_loss};
pub use validity::validity;
pub use waiting::{extended, hand_over_time, waits};

/// Two holds that violate a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: &'static str,
    /// The hold that was correct.
    pub first: Hold,
    /// The hold that violates the rule.
    pub second: Hold,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n  {}\n  {}", self.rule, self.first, self.second)
    }
}

impl std::error::Error for Violation {}

/// Runs the checkers that apply to every history, and returns the holds.
///
/// # Errors
/// The first [`Violation`], or the first event that contradicts the history.
pub fn all(events: &[Event]) -> Result<Vec<Hold>> {
    let mut holds = holds(events)?;
    holds.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    for one_name in holds.chunk_by(|one, other| one.name == other.name) {
        let violation = exclusion(one_name)
            .or_else(|| tokens(one_name))
            .or_else(|| order(one_name));
        if let Some(violation) = violation {
            return Err(violation.into());
        }
    }
    Ok(holds)
}

#[cfg(test)]
mod tests;
