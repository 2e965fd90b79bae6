//! The events of a history, for its timeline and for the comparison of two runs, and the rule that
//! it violates.

use std::fmt;
use std::time::Duration;

use leasehold::store::{ClaimId, Standing};

use crate::server::Nanos;

/// One event of a history.
#[derive(Clone, Debug)]
pub struct Event {
    pub(crate) at: Nanos,
    pub(crate) client: usize,
    pub(crate) what: What,
}

/// The kind of an event.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Acquiring(u8),
    NotAcquired(u8),
    Failed(String),
    Dropped(&'static str),
    Held(ClaimId, u64),
    Lost(ClaimId, String),
    Releasing(ClaimId),
    Released(ClaimId),
    Sent(&'static str, ClaimId),
    MessageLost(&'static str, ClaimId),
    Executed(&'static str, ClaimId, String),
    Received(&'static str, ClaimId),
    Pushed(ClaimId, Standing),
    Fault(String),
    FaultEnds(&'static str),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_nanos(self.at).as_secs_f64() * 1_000.0;
        write!(f, "{at:>12.3} ms  client {}  ", self.client)?;

        match &self.what {
            What::Acquiring(name) => write!(f, "acquires lock {name}"),
            What::NotAcquired(name) => write!(f, "lock {name} was not granted in time"),
            What::Failed(error) => write!(f, "error: {error}"),
            What::Dropped(what) => write!(f, "drops the future of {what}"),
            What::Held(id, token) => write!(f, "HOLDS {} with token {token}", short(*id)),
            What::Lost(id, reason) => write!(f, "has lost {}: {reason}", short(*id)),
            What::Releasing(id) => write!(f, "releases {}", short(*id)),
            What::Released(id) => write!(f, "has released {}", short(*id)),
            What::Sent(what, id) => write!(f, "  sends {what} {}", short(*id)),
            What::MessageLost(what, id) => write!(f, "  {what} {} is lost", short(*id)),
            What::Executed(what, id, reply) => {
                write!(f, "  server executes {what} {}: {reply}", short(*id))
            }
            What::Received(what, id) => write!(f, "  receives the reply to {what} {}", short(*id)),
            What::Pushed(id, standing) => write!(f, "  is notified: {} {standing:?}", short(*id)),
            What::Fault(kind) => write!(f, "FAULT {kind}"),
            What::FaultEnds(kind) => write!(f, "the {kind} ends"),
        }
    }
}

/// Whether the events have what the timeline prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Only what the checks need.
    Brief,
    /// Also the replies of the server.
    Full,
}

/// How often something happened in a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Guards.
    pub grants: u32,
    /// Holds that were passed on inside a process.
    pub passes: u32,
    /// Grants beside another valid guard.
    pub shared_grants: u32,
    /// Those whose lease is unlike the lease of another guard.
    pub unlike_leases: u32,
    /// Downgrades that succeeded.
    pub downgrades: u32,
    /// Jobs that were completed.
    pub jobs_completed: u32,
    /// How often a client found a job done.
    pub jobs_found_done: u32,
    /// Faults of clients that began while a client held.
    pub faults_with_hold: u32,
    /// Connections that broke while a client held.
    pub breaks_with_hold: u32,
    /// How often a server has restarted or failed over, or the slot of the lock has moved.
    pub server_faults: u32,
}

/// A violation of an invariant by a history.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The invariant.
    pub rule: &'static str,
    /// The values that contradict the invariant.
    pub details: String,
    /// The time, in nanoseconds since the beginning of the history.
    pub at: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_nanos(self.at).as_secs_f64() * 1_000.0;
        write!(
            f,
            "violation at {at:.3} ms: {} ({})",
            self.rule, self.details
        )
    }
}

/// Returns the first digits of a claim's id.
fn short(id: ClaimId) -> String {
    id.to_string()[..6].to_owned()
}
