//! The claims of this client, and what it knows about each.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::claim_state::{ClaimState, is_queued};
use super::enter::{EnterMode, Sent};
use super::enter_reply::EnterReply;
use super::orphans::Orphan;
use super::push::Push;
use super::renewal::Renewed;
use crate::client;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Claim;
use leasehold_core::{ClaimId, Name};

#[derive(Debug, Default)]
pub(super) struct Claims {
    table: Mutex<ClaimTable>,
}

#[derive(Debug, Default)]
struct ClaimTable {
    by_id: BTreeMap<ClaimId, Arc<TrackedClaim>>,
    /// Claims that wait or have waited, by name, in the order of their first requests.
    by_name: BTreeMap<Name, BTreeMap<u64, Arc<TrackedClaim>>>,
    count: u64,
}

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    name: Name,
    number: u64,
    state: Mutex<ClaimState>,
    /// Until when the server may execute requests to enter whose reply is missing.
    late_until: Mutex<Option<BootInstant>>,
    /// Until when the claim is safe, by its last renewal.
    safe_until: Mutex<BootInstant>,
    pub(super) changed: Notify,
}

impl Claims {
    /// Returns the state of a claim; a new one for its first request.
    pub(super) fn begin(&self, claim: &Claim) -> Arc<TrackedClaim> {
        self.table.lock().tracked(claim)
    }

    /// Returns the state of a claim whose caller waits for a change.
    pub(super) fn listen(&self, claim: &Claim) -> Arc<TrackedClaim> {
        let mut table = self.table.lock();
        let tracked = table.tracked(claim);
        table
            .by_name
            .entry(claim.name.clone())
            .or_default()
            .insert(tracked.number, Arc::clone(&tracked));
        tracked
    }

    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.table.lock().by_id.get(&id).map(Arc::clone)
    }

    /// Removes a claim and returns its state.
    pub(super) fn end(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        let mut table = self.table.lock();
        let tracked = table.by_id.remove(&id)?;
        if let Some(claims) = table.by_name.get_mut(&tracked.name) {
            claims.remove(&tracked.number);
            if claims.is_empty() {
                table.by_name.remove(&tracked.name);
            }
        }
        Some(tracked)
    }

    /// Whether this claim is ahead of all other waiting claims of this client for the same name.
    pub(super) fn is_foremost(&self, tracked: &TrackedClaim) -> bool {
        let table = self.table.lock();
        let Some(claims) = table.by_name.get(&tracked.name) else {
            return true;
        };
        let mut ahead = claims.range(..tracked.number);
        !ahead.any(|(_, other)| other.state().standing.is_none_or(is_queued))
    }

    /// Applies a notification to its claim.
    ///
    /// A grant for an unknown claim is an orphan, and returned: no caller will use its id again.
    pub(super) fn pushed(&self, text: &str) -> Option<Orphan> {
        let (id, push, key) = Push::parse(text)?;
        if let Some(tracked) = self.tracked(id) {
            tracked.apply_push(&push);
            return None;
        }

        matches!(push, Push::Held(_)).then(|| Orphan {
            key: key.to_owned(),
            id: client::id_text(id),
        })
    }
}

impl ClaimTable {
    fn tracked(&mut self, claim: &Claim) -> Arc<TrackedClaim> {
        if let Some(tracked) = self.by_id.get(&claim.id) {
            return Arc::clone(tracked);
        }
        self.count += 1;
        let tracked = Arc::new(TrackedClaim {
            name: claim.name.clone(),
            number: self.count,
            state: Mutex::default(),
            late_until: Mutex::default(),
            safe_until: Mutex::new(BootInstant::from_nanos(0)),
            changed: Notify::new(),
        });
        self.by_id.insert(claim.id, Arc::clone(&tracked));
        tracked
    }
}

impl TrackedClaim {
    pub(super) fn state(&self) -> ClaimState {
        self.state.lock().clone()
    }

    /// Applies the reply to a request to enter that has just been read.
    pub(super) fn apply_reply(&self, mode: EnterMode, reply: &EnterReply, sent: Sent) {
        let mut state = self.state.lock();
        let read = BootInstant::now();
        if mode == EnterMode::Poll {
            state.apply_poll_reply(reply, sent, read);
        } else {
            state.apply_reply(reply, sent, read);
        }
    }

    /// Applies the reply to a renewal; `false` if the claim is gone.
    pub(super) fn apply_renewal(&self, renewed: Renewed, sent_at: BootInstant, epoch: u32) -> bool {
        let mut state = self.state.lock();
        let position_before = state.position;
        let due_before = state.due;

        let is_there = state.apply_renewal(renewed, sent_at, epoch);
        let is_changed = position_before != state.position || due_before != state.due;
        drop(state);

        if is_changed {
            self.changed.notify_waiters();
        }
        is_there
    }

    /// Records that the caller receives the claim as held.
    pub(super) fn pass_on(&self) {
        self.state.lock().pass_on(BootInstant::now());
    }

    /// Records that the reply to a request to enter is missing. The server may execute the request
    /// until `until`.
    pub(super) fn may_be_late(&self, until: BootInstant) {
        let mut late_until = self.late_until.lock();
        *late_until = Some(late_until.map_or(until, |known| known.max(until)));
    }

    pub(super) fn late_until(&self) -> Option<BootInstant> {
        *self.late_until.lock()
    }

    pub(super) fn set_safe_until(&self, until: BootInstant) {
        let mut safe_until = self.safe_until.lock();
        *safe_until = safe_until.max(until);
    }

    pub(super) fn safe_until(&self) -> BootInstant {
        *self.safe_until.lock()
    }

    pub(super) fn revoked(&self) {
        self.apply_push(&Push::Gone);
    }

    fn apply_push(&self, push: &Push) {
        if self.state.lock().apply_push(push) {
            self.changed.notify_waiters();
        }
    }
}
