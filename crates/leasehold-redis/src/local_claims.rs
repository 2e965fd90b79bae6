//! The claims of one client on servers that keep no queue.
//!
//! Such a server knows only the claim that holds. Only the client itself knows which of its claims
//! wait, and the first of them tries for all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Share, Standing, replies};
use leasehold_core::{ClaimId, ClaimantInfo, Entry, Name, Token};

/// For how many names a client remembers a head start.
const HEAD_STARTS_MAX: usize = 4096;
/// For how long a waiter counts that nobody polls: its program may keep the future, and poll
/// another one. No waiter that is polled pauses for so long.
const UNPOLLED_MAX: Duration = Duration::from_secs(7);
/// The smallest size of the table at which claims without a final leave are swept out.
const SWEEP_MIN: usize = 1024;

/// The claims of one client. `D` is what only its store knows of a claim.
#[derive(Debug)]
pub(super) struct LocalClaims<D> {
    table: Mutex<ClaimTable<D>>,
}

#[derive(Debug)]
struct ClaimTable<D> {
    by_id: BTreeMap<ClaimId, Arc<LocalClaim<D>>>,
    /// The waiting claims of each lock, in order of arrival.
    waiting: BTreeMap<Name, Vec<Arc<LocalClaim<D>>>>,
    /// Until when each lock is left to the notified waiters of other clients.
    head_starts: BTreeMap<Name, BootInstant>,
    /// The number of claims at which the next one sweeps out claims that were never forgotten.
    sweep_at: usize,
}

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct LocalClaim<D> {
    pub(super) claim: Claim,
    pub(super) details: D,
    pub(super) state: Mutex<LocalState>,
    /// Notified when a waiting or holding task must check the state again.
    pub(super) changed: Notify,
}

/// The fate of a claim.
///
/// ```text
/// Gone ──wait──► Queued ──hold──► Held
///   │  └────────hold─────────────▲ │
///   ▲──────close─────┴─────────────┘      forgotten after the final leave
/// ```
#[derive(Debug)]
pub(super) struct LocalState {
    pub(super) standing: Standing,
    /// The part of the capacity that the claim takes. A writer may become a reader.
    pub(super) share: Share,
    /// Until when this client keeps a waiting claim, or remembers one that is gone.
    until: BootInstant,
    /// When its task last looked whether the claim is the first.
    looked_at: BootInstant,
    /// Whether the claim has waited without a grant.
    has_waited: bool,
    /// When the requests were sent that may grant the lock and have no reply. Their futures may be
    /// dropped.
    pub(super) unanswered: Vec<BootInstant>,
}

impl<D> Default for LocalClaims<D> {
    fn default() -> Self {
        let table = ClaimTable {
            by_id: BTreeMap::new(),
            waiting: BTreeMap::new(),
            head_starts: BTreeMap::new(),
            sweep_at: SWEEP_MIN,
        };
        Self {
            table: Mutex::new(table),
        }
    }
}

impl<D> LocalClaims<D> {
    /// Returns the state of a claim, and creates it if there is none.
    pub(super) fn begin(&self, claim: &Claim, details: D) -> Arc<LocalClaim<D>> {
        let mut table = self.table.lock();
        if let Some(local) = table.by_id.get(&claim.id) {
            return Arc::clone(local);
        }
        if table.by_id.len() >= table.sweep_at {
            table.sweep();
        }

        let local = Arc::new(LocalClaim::new(claim.clone(), details));
        table.by_id.insert(claim.id, Arc::clone(&local));
        local
    }

    pub(super) fn get(&self, id: ClaimId) -> Option<Arc<LocalClaim<D>>> {
        self.table.lock().by_id.get(&id).map(Arc::clone)
    }

    /// Queues a claim behind the waiting claims of this client.
    pub(super) fn wait(&self, local: &Arc<LocalClaim<D>>, until: BootInstant) -> Standing {
        let mut table = self.table.lock();
        let standing = local.set_waiting(until);

        let waiting = table.waiting.entry(local.claim.name.clone()).or_default();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, local)) {
            waiting.push(Arc::clone(local));
        }
        standing
    }

    /// Records that a claim holds the lock. Returns whether it is still a claim of this client.
    pub(super) fn hold(&self, local: &Arc<LocalClaim<D>>, token: Token) -> bool {
        let mut table = self.table.lock();
        let is_present = table.by_id.contains_key(&local.claim.id);
        if is_present {
            local.set_held(token);
            table.stop_waiting(local);
        }
        is_present
    }

    /// Ends a claim for this client. The claim is remembered until [`forget`](Self::forget).
    pub(super) fn close(&self, id: ClaimId) -> Option<Arc<LocalClaim<D>>> {
        let mut table = self.table.lock();
        let local = table.by_id.get(&id).map(Arc::clone)?;
        table.stop_waiting(&local);
        local.set_gone();
        local.changed.notify_waiters();
        Some(local)
    }

    /// Returns the standing of a claim that no longer waits, and ends one that this client no
    /// longer keeps.
    pub(super) fn ended(&self, local: &LocalClaim<D>) -> Option<Standing> {
        let standing = local.standing();
        if !matches!(standing, Standing::Queued { .. }) {
            return Some(standing);
        }
        let is_kept = local.kept_until() > BootInstant::now();
        (!is_kept).then(|| self.gone(local))
    }

    /// Ends a claim, and returns that standing.
    pub(super) fn gone(&self, local: &LocalClaim<D>) -> Standing {
        self.close(local.claim.id);
        Standing::Gone
    }

    pub(super) fn forget(&self, id: ClaimId) {
        self.table.lock().by_id.remove(&id);
    }

    /// Returns the claim of this client that waits first for a lock.
    pub(super) fn first(&self, name: &Name) -> Option<Arc<LocalClaim<D>>> {
        let table = self.table.lock();
        table.waiting.get(name)?.first().map(Arc::clone)
    }

    /// Whether no other claim of this client waits ahead of this one, which is polled. A claim that
    /// nobody polls is passed over.
    pub(super) fn is_first(&self, local: &LocalClaim<D>) -> bool {
        let now = BootInstant::now();
        local.state.lock().looked_at = now;

        let table = self.table.lock();
        let waiting = table.waiting.get(&local.claim.name);
        let mut polled = waiting
            .into_iter()
            .flatten()
            .filter(|other| other.is_polled(now));
        polled
            .next()
            .is_none_or(|first| first.claim.id == local.claim.id)
    }

    /// Whether a claim of this client waits for a lock.
    pub(super) fn has_waiters(&self, name: &Name) -> bool {
        self.table.lock().waiting.contains_key(name)
    }

    /// Returns the waiting claims of this client.
    pub(super) fn waiters(&self, name: &Name) -> Vec<Entry> {
        let now = BootInstant::now();
        let table = self.table.lock();
        let waiting = table.waiting.get(name).map(Vec::as_slice);
        let kept = waiting
            .unwrap_or_default()
            .iter()
            .filter(|local| local.kept_until() > now);

        let entries = kept.zip(1..).map(|(local, ahead)| {
            let info = ClaimantInfo::clone(&local.claim.info);
            let standing = Standing::Queued { ahead };
            replies::entry(local.claim.id, local.share(), standing, info)
        });
        entries.collect()
    }

    /// Records that the server has notified waiters of a release by this client.
    ///
    /// For the time of `head_start` the claims of this client do not try to acquire the lock.
    /// Without it, a client that releases and acquires in a loop starves the others.
    pub(super) fn give_head_start(&self, name: &Name, head_start: Duration) {
        let mut table = self.table.lock();
        if table.head_starts.len() >= HEAD_STARTS_MAX {
            table.head_starts.clear();
        }
        let until = BootInstant::now().saturating_add(head_start);
        table.head_starts.insert(name.clone(), until);
    }

    /// Leaves the lock to notified waiters of other clients. It does so once for each release.
    pub(super) async fn leave_head_start(&self, name: &Name) {
        let head_start = self.take_head_start(name);
        if !head_start.is_zero() {
            tokio::time::sleep(head_start).await;
        }
    }

    fn take_head_start(&self, name: &Name) -> Duration {
        let until = self.table.lock().head_starts.remove(name);
        until.map_or(Duration::ZERO, |until| {
            until.duration_since(BootInstant::now())
        })
    }
}

impl<D> ClaimTable<D> {
    /// Removes the claims that ended a lease ago and whose final leave failed. Their holds on the
    /// servers have ended too.
    fn sweep(&mut self) {
        let now = BootInstant::now();
        self.by_id.retain(|_, local| !local.is_over(now));
        self.sweep_at = (self.by_id.len() * 2).max(SWEEP_MIN);
    }

    fn stop_waiting(&mut self, local: &Arc<LocalClaim<D>>) {
        let Some(waiting) = self.waiting.get_mut(&local.claim.name) else {
            return;
        };
        waiting.retain(|other| !Arc::ptr_eq(other, local));
        match waiting.first() {
            // From now on this waiter tries to acquire the lock.
            Some(first) => first.changed.notify_waiters(),
            None => drop(self.waiting.remove(&local.claim.name)),
        }
    }
}

impl<D> LocalClaim<D> {
    fn new(claim: Claim, details: D) -> Self {
        let state = LocalState {
            standing: Standing::Gone,
            share: claim.share,
            until: BootInstant::FAR_FUTURE,
            looked_at: BootInstant::now(),
            has_waited: false,
            unanswered: Vec::new(),
        };
        Self {
            claim,
            details,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    pub(super) fn share(&self) -> Share {
        self.state.lock().share
    }

    /// Returns until when this client keeps the waiting claim.
    pub(super) fn kept_until(&self) -> BootInstant {
        self.state.lock().until
    }

    /// Whether the claim waited when it was closed.
    pub(super) fn has_waited(&self) -> bool {
        self.state.lock().has_waited
    }

    /// Renews a waiting claim for a lease from `sent_at`.
    ///
    /// Returns the claim's standing. For a waiting claim that this client still keeps, it also
    /// returns how long the claim is valid from `sent_at`.
    ///
    /// A request without a reply may have granted the lock as soon as it was sent. The lease then
    /// counts from the time at which that request was sent.
    pub(super) fn renew_waiting(
        &self,
        sent_at: BootInstant,
        lease: Duration,
    ) -> (Standing, Option<Duration>) {
        let mut state = self.state.lock();
        let is_queued = matches!(state.standing, Standing::Queued { .. });
        if !is_queued || state.until <= sent_at {
            return (state.standing, None);
        }

        state.until = sent_at.saturating_add(lease);
        let earliest = state.unanswered.iter().min();
        let remaining = earliest.map_or(lease, |earliest| {
            lease.saturating_sub(sent_at.duration_since(*earliest))
        });
        (state.standing, Some(remaining))
    }

    /// Whether a task polls the waiting claim.
    fn is_polled(&self, now: BootInstant) -> bool {
        self.state.lock().looked_at.saturating_add(UNPOLLED_MAX) > now
    }

    /// Whether no task uses this claim any more, and its last lease has ended.
    fn is_over(&self, now: BootInstant) -> bool {
        let state = self.state.lock();
        state.standing == Standing::Gone && state.until <= now
    }

    fn set_waiting(&self, until: BootInstant) -> Standing {
        let mut state = self.state.lock();
        state.standing = Standing::Queued { ahead: 1 };
        state.until = until;
        state.looked_at = BootInstant::now();
        state.has_waited = true;
        state.standing
    }

    /// Records the grant. The caller forgets the request that granted it only afterwards:
    /// otherwise a renewal of the waiting claim could count from a later moment.
    fn set_held(&self, token: Token) {
        let mut state = self.state.lock();
        state.standing = Standing::Held { token };
        state.has_waited = false;
    }

    fn set_gone(&self) {
        let mut state = self.state.lock();
        state.standing = Standing::Gone;
        state.until = BootInstant::now().saturating_add(self.claim.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::store::claimant_here;

    /// Each of two requests without a reply may have granted the lock.
    ///
    /// Shows G-01.
    #[test]
    fn lease_counts_from_the_earliest_request_without_a_reply() {
        let second = |number: u64| BootInstant::from_nanos(number * 1_000_000_000);
        let name = Name::parse("a").expect("a name");
        let info = claimant_here("").expect("a valid label");
        let claims = LocalClaims::default();
        let local = claims.begin(&Claim::new(name, Share::MUTEX, info.into()), ());
        claims.wait(&local, second(9));

        local.state.lock().unanswered = vec![second(3), second(1), second(2)];
        let (_, valid_for) = local.renew_waiting(second(5), Duration::from_secs(10));
        assert_eq!(valid_for, Some(Duration::from_secs(6)));
    }
}
