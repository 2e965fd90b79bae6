//! Requests to leave that one master has not replied to.
//!
//! The caller does not wait for them: a quorum of the others has replied, or the claim has lost its
//! round. The vote ends with its lease. But a master whose clock went back keeps it for longer, and
//! the votes of two such claims can leave no quorum to a third one. So the request is repeated,
//! seldom, for as long as the store is open.

use std::sync::Arc;
use std::time::Duration;

use super::format::LeaveRequest;
use super::master::Master;
use super::tracked_claim::TrackedClaim;
use super::vote::{LeaveReply, lock_master, request_leave};
use leasehold_core::internal::{Backlog, Backoff, Repeat, background, repeat};
use leasehold_core::store::Standing;
use leasehold_core::{Error, Result};

/// A claim that leaves one master.
#[derive(Clone, Debug)]
pub(super) struct MasterDeparture {
    pub(super) request: Arc<LeaveRequest>,
    pub(super) tracked: Option<Arc<TrackedClaim>>,
}

/// How many departures are kept for a master. Almost all of their votes end by themselves.
const COUNT_MAX: usize = 1_000;

/// One master, and the departures that it has not replied to.
#[derive(Debug)]
pub(super) struct Departures {
    master: Arc<Master>,
    backlog: Backlog<MasterDeparture>,
}

impl Departures {
    pub(super) fn from(master: &Arc<Master>) -> Arc<Self> {
        Arc::new(Self {
            master: Arc::clone(master),
            backlog: Backlog::default(),
        })
    }

    /// Leaves the master. A request without a reply is repeated in the background.
    pub(super) async fn leave(self: &Arc<Self>, departure: MasterDeparture) -> Result<LeaveReply> {
        let _master_lock = lock_master(departure.tracked.as_deref(), &self.master).await;
        let reply = request_leave(&self.master, &departure.request).await;
        // The engine repeats the request to a master that is the only one.
        if self.master.is_one_of_several() && reply.as_ref().is_err_and(Error::is_unavailable) {
            self.leave_later(departure);
        }
        reply
    }

    /// Repeats the request in the background until the master replies.
    #[cold]
    fn leave_later(self: &Arc<Self>, departure: MasterDeparture) {
        if take_place(&self.backlog, &departure) {
            return;
        }
        let (is_only, given_up) = self.backlog.push(Arc::new(departure), COUNT_MAX);

        if let Some(departure) = given_up {
            tracing::warn!(
                server = self.master.url,
                key = departure.request.keys.lock,
                "too many votes cannot be taken back; the oldest one remains until the server ends it"
            );
        }
        if is_only {
            let pauses = Backoff::between(Duration::from_secs(1), Duration::from_secs(60));
            let departures = Arc::downgrade(self);
            background::spawn_restarting(move || {
                let departures = departures.clone();
                repeat(move || departures.upgrade(), pauses.clone())
            });
        }
    }
}

/// Lets a departure take the place of an earlier one of the same claim; returns whether there is
/// one.
///
/// A request takes back the votes for all tokens up to its own, so the one with the highest token
/// stays.
fn take_place(departures: &Backlog<MasterDeparture>, departure: &MasterDeparture) -> bool {
    let request = &departure.request;
    departures.change(
        |other| other.request.id == request.id,
        |other| {
            if other.request.highest_token <= request.highest_token {
                *other = Arc::new(departure.clone());
            }
        },
    )
}

impl Repeat for Departures {
    type Request = MasterDeparture;

    fn backlog(&self) -> &Backlog<MasterDeparture> {
        &self.backlog
    }

    async fn has_reply(&self, departure: &MasterDeparture) -> bool {
        let tracked = departure.tracked.as_deref();
        let _master_lock = lock_master(tracked, &self.master).await;
        if tracked.is_some_and(|tracked| tracked.standing() != Standing::Gone) {
            // The claim waits or holds after a lost round. It leaves all masters at its end.
            return true;
        }
        let reply = request_leave(&self.master, &departure.request).await;
        !reply.as_ref().is_err_and(Error::is_unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{LeaveScope, SingleKey, VoteFormat as _};
    use super::*;
    use leasehold_conformance::support::claim;

    /// Shows G-10.
    #[test]
    fn departure_with_the_highest_token_of_a_claim_stays() {
        let claim = claim("a");
        let format = SingleKey::new(false);
        let departure = |token: u64| {
            let request = LeaveRequest {
                format,
                keys: format.keys(&claim.name).expect("a good name"),
                id: claim.id.to_string(),
                hexadecimal_id: claim.id.to_string(),
                highest_token: format!("{token:019}"),
                client: String::new(),
                scope: LeaveScope::Quiet,
                counter_life: String::new(),
            };
            MasterDeparture {
                request: Arc::new(request),
                tracked: None,
            }
        };
        let departures = Backlog::default();
        assert!(!take_place(&departures, &departure(1)));
        departures.push(Arc::new(departure(9)), COUNT_MAX);

        for (token, highest) in [(8, 9), (10, 10)] {
            assert!(take_place(&departures, &departure(token)));
            let highest = departure(highest).request.highest_token.clone();
            let is_highest = |kept: &MasterDeparture| kept.request.highest_token == highest;
            assert!(departures.change(is_highest, |_| {}), "{token}");
        }
    }
}
