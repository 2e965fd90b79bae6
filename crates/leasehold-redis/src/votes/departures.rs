//! Requests to leave that one master has not replied to.
//!
//! The caller does not wait for them: a quorum of the others has replied, or the claim has lost its
//! round. The vote ends with its lease. But a master whose clock went back keeps it for longer, and
//! the votes of two such claims can leave no quorum to a third one. So the request is repeated,
//! seldom, for as long as the store is open.

use std::sync::Arc;
use std::time::Duration;

use super::master::Master;
use super::requests::{LeaveRequest, lock_master};
use super::tracked_claim::TrackedClaim;
use leasehold_core::Error;
use leasehold_core::internal::{Backlog, Backoff, Repeat, background, repeat};
use leasehold_core::store::Standing;

/// A claim that leaves one master.
#[derive(Clone, Debug)]
pub(super) struct MasterDeparture {
    pub(super) request: Arc<LeaveRequest>,
    pub(super) tracked: Option<Arc<TrackedClaim>>,
}

/// How many departures are kept for a master. Almost all of their votes end by themselves.
const COUNT_MAX: usize = 1_000;

/// Repeats the request in the background until the master replies.
#[cold]
pub(super) fn leave_later(master: &Arc<Master>, departure: MasterDeparture) {
    if take_place(&master.departures, &departure) {
        return;
    }
    let (is_only, given_up) = master.departures.push(Arc::new(departure), COUNT_MAX);

    if let Some(departure) = given_up {
        tracing::warn!(
            server = master.url,
            key = departure.request.keys.lock,
            "too many votes cannot be taken back; the oldest one remains until the server ends it"
        );
    }
    if is_only {
        let pauses = Backoff::between(Duration::from_secs(1), Duration::from_secs(60));
        let master = Arc::downgrade(master);
        background::spawn_restarting(move || {
            let master = master.clone();
            repeat(move || master.upgrade(), pauses.clone())
        });
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

impl Repeat for Master {
    type Request = MasterDeparture;

    fn backlog(&self) -> &Backlog<MasterDeparture> {
        &self.departures
    }

    async fn has_reply(&self, departure: &MasterDeparture) -> bool {
        let tracked = departure.tracked.as_deref();
        let _master_lock = lock_master(tracked, self).await;
        if tracked.is_some_and(|tracked| tracked.standing() != Standing::Gone) {
            // The claim waits or holds after a lost round. It leaves all masters at its end.
            return true;
        }
        let reply = departure.request.send(self).await;
        !reply.as_ref().is_err_and(Error::is_unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{SingleKey, VoteFormat as _};
    use super::super::requests::LeaveScope;
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
