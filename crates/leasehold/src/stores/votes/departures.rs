//! Requests to leave that one master has not replied to.
//!
//! The caller does not wait for them: a quorum of the others has replied, or the claim has lost its
//! round. The vote ends with its lease. But a master whose clock went back keeps it for longer, and
//! the votes of two such claims can leave no quorum to a third one. So the request is repeated,
//! seldom, for as long as the store is open.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::master::Master;
use super::requests::{LeaveRequest, lock_master};
use super::tracked_claim::TrackedClaim;
use crate::runtime::background;
use crate::runtime::backoff::Backoff;
use crate::{Error, Standing};

/// The departures of one master. While there is one, a task sends the request of the first.
#[derive(Debug, Default)]
pub(super) struct Departures(Mutex<VecDeque<MasterDeparture>>);

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
    let (is_only, given_up) = master.departures.push(departure, COUNT_MAX);

    if let Some(departure) = given_up {
        tracing::warn!(
            server = master.url,
            key = departure.request.keys.lock,
            "too many votes cannot be taken back; the oldest one remains until the server ends it"
        );
    }
    if is_only {
        background::spawn(leave_one_by_one(Arc::downgrade(master)));
    }
}

async fn leave_one_by_one(master: Weak<Master>) {
    let mut pauses = Backoff::between(Duration::from_secs(1), Duration::from_secs(60));
    pauses.wait().await;

    while let Some(master) = master.upgrade() {
        let Some(departure) = master.departures.first() else {
            return;
        };
        if departure.has_no_reply(&master).await {
            drop(master);
            pauses.wait().await;
        } else if master.departures.remove(&departure) {
            // The next departure starts the task again.
            return;
        } else {
            pauses.reset();
        }
    }
}

impl MasterDeparture {
    async fn has_no_reply(&self, master: &Master) -> bool {
        let tracked = self.tracked.as_deref();
        let _master_lock = lock_master(tracked, master).await;
        if tracked.is_some_and(|tracked| tracked.standing() != Standing::Gone) {
            // The claim has lost a round, and votes again. It leaves all masters at its end.
            return false;
        }
        let reply = self.request.send(master).await;
        reply.as_ref().is_err_and(Error::is_unavailable)
    }
}

impl Departures {
    /// Adds a departure; returns whether it is the only one, and the one that is given up for it.
    fn push(
        &self,
        departure: MasterDeparture,
        count_max: usize,
    ) -> (bool, Option<MasterDeparture>) {
        let mut departures = self.0.lock();
        let id = &departure.request.id;
        // The engine repeats a departure that too few masters have replied to.
        if departures.iter().any(|other| other.request.id == *id) {
            return (false, None);
        }

        let is_only = departures.is_empty();
        let given_up = (departures.len() >= count_max).then(|| departures.pop_front());
        departures.push_back(departure);
        (is_only, given_up.flatten())
    }

    fn first(&self) -> Option<MasterDeparture> {
        self.0.lock().front().cloned()
    }

    /// Removes a departure; returns whether none is left.
    fn remove(&self, departure: &MasterDeparture) -> bool {
        let mut departures = self.0.lock();
        departures.retain(|other| !Arc::ptr_eq(&other.request, &departure.request));
        departures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{SingleKey, VoteFormat as _};
    use super::super::requests::LeaveScope;
    use super::*;
    use crate::conformance::support::claim;

    fn departure() -> MasterDeparture {
        let claim = claim("a");
        let format = SingleKey::new(false);
        let keys = format.keys(&claim.name).expect("a good name");
        let request = LeaveRequest {
            format,
            keys,
            id: claim.id.to_string(),
            hexadecimal_id: claim.id.to_string(),
            highest_token: String::new(),
            client: String::new(),
            scope: LeaveScope::Quiet,
            counter_life: String::new(),
        };
        MasterDeparture {
            request: Arc::new(request),
            tracked: None,
        }
    }

    /// Shows G-10.
    #[test]
    fn oldest_departure_of_a_master_is_given_up_when_there_are_too_many() {
        let departures = Departures::default();
        let [first, second, third] = [(); 3].map(|()| departure());
        let id = |departure: Option<MasterDeparture>| departure.map(|one| one.request.id.clone());
        let push = |departure: &MasterDeparture| {
            let (is_only, given_up) = departures.push(departure.clone(), 2);
            (is_only, id(given_up))
        };

        assert_eq!(push(&first), (true, None));
        assert_eq!(push(&second), (false, None));
        assert_eq!(push(&first), (false, None), "it is repeated already");
        assert_eq!(push(&third), (false, Some(first.request.id.clone())));
        assert_eq!(id(departures.first()), Some(second.request.id.clone()));

        assert!(!departures.remove(&second));
        assert!(departures.remove(&third));
    }
}
