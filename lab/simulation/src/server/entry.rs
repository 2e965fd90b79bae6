//! The queue of one name and its claims.

use std::time::Duration;

use leasehold::Token;
use leasehold::store::{ClaimId, Share, Standing};

/// Nanoseconds since the beginning of the history.
pub(crate) type Nanos = u64;

/// The queue of one name.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) entries: Vec<QueueEntry>,
    pub(super) last_token: u64,
}

/// A claim in the queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) id: ClaimId,
    pub(crate) client: usize,
    pub(crate) share: Share,
    pub(crate) token: Option<Token>,
    /// How many tokens below its own the grant reserves.
    pub(crate) reserved: u32,
    pub(crate) expires_at: Nanos,
    /// A claim that enters again after its end is another entry.
    pub(crate) number: u64,
}

/// How a claim ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Until when its client may trust it.
    pub(crate) kept_until: Nanos,
    pub(crate) cause: Cause,
}

/// The cause of a claim's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Left,
    Expired,
    Evicted,
    Crashed,
}

/// A notification to a client: the new standing of its claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Push {
    pub(crate) client: usize,
    pub(crate) id: ClaimId,
    pub(crate) standing: Standing,
    /// The number of the entry.
    pub(crate) entry: u64,
}

/// A claim as a request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    pub(crate) client: usize,
    pub(crate) name: u8,
    pub(crate) id: ClaimId,
    pub(crate) share: Share,
    pub(crate) reserved: u32,
}

/// Returns a duration in nanoseconds.
pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}
