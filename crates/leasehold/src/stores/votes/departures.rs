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
    if master.departures.push(departure) {
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
    /// Adds a departure; returns whether it is the only one.
    fn push(&self, departure: MasterDeparture) -> bool {
        let mut departures = self.0.lock();
        let id = &departure.request.id;
        // The engine repeats a departure that too few masters have replied to.
        if departures.iter().any(|other| other.request.id == *id) {
            return false;
        }

        if departures.len() >= COUNT_MAX {
            departures.pop_front();
            tracing::debug!("a vote cannot be taken back; it ends with its lease");
        }
        departures.push_back(departure);
        departures.len() == 1
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
