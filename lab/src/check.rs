//! One checker for each promise, pure functions of what was seen.
//!
//! The numbers are those of the table of invariants in GUARANTEES.md, which says for each what else shows it.
//!
//! | | what must be | checker |
//! |---|---|---|
//! | S1, S2, S11 | no token is given twice, to hands of one process either; a later grant has a larger one | [`tokens`], [`tokens_over_loss`] |
//! | S3, S10 | never more at once than fits, by the common clock, for mutexes, slots, readers and writers | [`exclusion`] |
//! | S3, L7 | where two may hold at once, one of them hears of it in time | [`loss_notified`] |
//! | S4 | no guard counts on more than a lease; what was lost is not released as if it had been held | [`validity`] |
//! | S5 | what a fenced resource accepts is one block for each token, and tokens rise | [`regress`](crate::victims::regress) |
//! | S6 | who renews or releases what is not his is told so, and changes nothing | [`Observer`](crate::Observer), and all others |
//! | S7, S8 | nothing is told to be good once it was lost, or its release has begun | [`ended`] |
//! | S7 | what is told makes sense | [`holds`](crate::holds()), which refuses any other history |
//! | S8, L5 | whoever has released, or given up, is in no line any more | [`stale_entries`] |
//! | S9 | nested acquires have one token, are counted, and all given back before the lock is | [`nesting`], with [`exclusion`] |
//! | S13 | what is somebody else's stays as it is, beside the locks | the storm, which has put it there |
//! | L1, L8, L9 | after a fault every lock is granted again | [`Recovery`] |
//! | L2 | what somebody wants does not lie idle | [`idle`] |
//! | L3, L4 | nobody is overtaken | [`order`], of those who certainly were [`seen`] |
//! | L6 | whoever waits so long and no longer is told in time | [`deadlines`] |
//! | | a store that must refuse grants nothing | [`refusal`] |
//! | L5 | what is taken is given back: descriptors, threads, tasks, memory | [`resource_leaks`] |
//! | L5 | nothing is left: in lines, keys, connections, files, nodes | `check_clean` of each site |

mod cycles;
mod deadlines;
mod ended;
mod exclusion;
mod idle;
mod loss_notified;
mod nesting;
mod order;
mod queue_positions;
mod recovery;
mod refusal;
mod resource_leaks;
mod stale_entries;
mod tokens;
mod validity;

use std::fmt;

use anyhow::Result;

use crate::{Event, Hold, history::in_time, holds};

pub use cycles::{Cycle, cycles};
pub use deadlines::deadlines;
pub use ended::ended;
pub use exclusion::{exclusion, overlaps};
pub use idle::{Span, idle, idle_time};
pub use loss_notified::{loss_notified, overlap_times};
pub use nesting::nesting;
pub use order::order;
pub use queue_positions::queue_positions;
pub use recovery::Recovery;
pub use refusal::refusal;
pub(crate) use resource_leaks::{SPARE, fits};
pub use resource_leaks::{resource_leaks, resource_leaks_beyond};
pub use stale_entries::{GoneTimes, stale_entries};
pub use tokens::{tokens, tokens_over_loss};
pub use validity::validity;

/// Two holds that contradict a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was broken.
    pub rule: &'static str,
    /// The hold that had a right to be as it was.
    pub first: Hold,
    /// The hold that broke the rule.
    pub second: Hold,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n  {}\n  {}", self.rule, self.first, self.second)
    }
}

impl std::error::Error for Violation {}

/// Puts a history through all checkers; says what it held.
///
/// # Errors
/// The first [`Violation`] found, or a history that contradicts itself.
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
pub(crate) mod samples {
    use crate::{Event, Hold};

    pub(crate) fn events(lines: &[&str]) -> Vec<Event> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    /// A mutex held from `granted` to `until`, asked for just before.
    pub(crate) fn mutex(token: u64, granted: u64, until: u64) -> Hold {
        Hold {
            thread: 0,
            name: 0,
            requested: granted - 1,
            observed: None,
            granted,
            until,
            token,
            weight: 1,
            capacity: 1,
        }
    }

    pub(crate) fn reader(token: u64, granted: u64, until: u64) -> Hold {
        Hold {
            capacity: 8,
            ..mutex(token, granted, until)
        }
    }

    pub(crate) fn writer(token: u64, granted: u64, until: u64) -> Hold {
        Hold {
            weight: 8,
            ..reader(token, granted, until)
        }
    }
}
