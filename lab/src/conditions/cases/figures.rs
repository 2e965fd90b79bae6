//! The figures of each case.

use serde::{Deserialize, Serialize};

/// From a crash until the next holder; `None` if none came in
/// [`NEVER_MILLIS`](crate::conditions::NEVER_MILLIS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// In milliseconds.
    pub next_millis: Option<u64>,
}

/// A holder was paused between its read and its write, until another client had held and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether another client was granted the lock meanwhile. If not, the other figures are empty.
    pub next_held: bool,
    /// Whether the paused holder still reported the lock as held when it continued.
    pub both_claimed: bool,
    /// The updates that the late write overwrote.
    pub lost: Lost,
}

/// Updates that were overwritten by a client that had not read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// On a resource that accepts every write.
    pub unfenced: usize,
    /// On a resource that rejects stale tokens; `None` if the lock has no tokens.
    pub fenced: Option<usize>,
}

/// Releases by clients that do not hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// A client that was refused the lock and released it anyway freed it.
    pub refused_freed: bool,
    /// A former holder with a late release freed it; `None` if the lock had no next holder.
    pub late_freed: Option<bool>,
}

/// The server of a lock was replaced by one that had not received the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// Milliseconds until another client was granted the lock; `None` if this did not happen.
    pub next_millis: Option<u64>,
    /// For how many milliseconds both reported the lock as held; `None` if they never did.
    pub both_millis: Option<u64>,
    /// Whether both still reported the lock as held at the end of the observation.
    pub without_end: bool,
    /// The updates that a later write of the first holder overwrote.
    pub lost: Lost,
}

/// Servers were killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Until the next grant while a majority runs; `None` if there is only one server.
    pub minority: Option<Granted>,
    /// Whether a lock was granted without a majority, which must not happen.
    pub majority_granted: bool,
    /// Milliseconds until the request for it ended.
    pub majority_millis: u64,
    /// Milliseconds until the holder was notified of its loss; `None` if it never was.
    pub notified_millis: Option<u64>,
}

/// The time until a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// In milliseconds; `None` if never.
    pub after_millis: Option<u64>,
}

/// Many clients contended for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    /// How many of them have held the lock.
    pub held: usize,
    /// How often two of them held it at the same time.
    pub overlaps: usize,
    /// The lost updates on the resources.
    pub lost: Lost,
    /// From the first release to the last, in milliseconds.
    pub took_millis: u64,
    /// Requests to the servers per holder, since all began to wait; `None` without a server.
    pub requests_each: Option<u64>,
}
