//! The queue of one name and its claims.

use std::time::Duration;

use leasehold::store::{ClaimId, Share, Standing};
use leasehold::{CrashRelease, Token};

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
    pub(crate) claimed: Claimed,
    pub(crate) token: Option<Token>,
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
    /// How many tokens below its own the grant reserves.
    pub(crate) reserved: u32,
}

/// For how long the server keeps claims.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    pub(super) lease: Duration,
    /// Whether leases end.
    pub(super) expire: bool,
    pub(super) crash: CrashRelease,
}

impl Queue {
    pub(super) fn entry_mut(&mut self, id: ClaimId) -> Option<&mut QueueEntry> {
        let mut entries = self.entries.iter_mut();
        entries.find(|entry| entry.claimed.id == id)
    }
}

impl QueueEntry {
    /// Renews the claim; returns its lease.
    pub(super) fn renew(&mut self, now: Nanos, leases: &Leases) -> Duration {
        let lease = leases.of(self.token.is_some());
        self.expires_at = self.expires_at.max(leases.end(now, lease));
        lease
    }
}

impl Leases {
    /// Returns the lease of a claim that holds or waits.
    pub(super) fn of(&self, holds: bool) -> Duration {
        match self.crash {
            CrashRelease::Within { grace, .. } if holds => self.lease.min(grace),
            _ => self.lease,
        }
    }

    /// Returns when a lease ends that begins now.
    pub(super) fn end(&self, now: Nanos, lease: Duration) -> Nanos {
        if self.expire {
            now + nanos(lease)
        } else {
            Nanos::MAX
        }
    }

    /// Returns the lease that a reply contains.
    pub(super) fn reported(&self, lease: Duration) -> Duration {
        if self.expire { lease } else { Duration::MAX }
    }
}

/// Returns a duration in nanoseconds.
pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}
