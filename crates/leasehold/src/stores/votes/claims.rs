//! The claims of this client. Only the client itself knows which of its claims wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::format::Keys;
use super::record::Push;
use super::tracked_claim::TrackedClaim;
use crate::claim::ById;
use crate::runtime::clock::BootInstant;
use crate::{Claim, ClaimId, ClaimantInfo, Entry, Name, Standing, Token};

/// For how many names this client remembers the highest token. If a token is forgotten, an acquire
/// takes one more round.
const NAMES_MAX: usize = 4096;
/// The head start of a notified waiter of another client: a few round trips. Meanwhile the claims
/// of this client do not try to acquire the lock.
const HEAD_START: Duration = Duration::from_millis(5);
/// The smallest size of the table at which claims without a final leave are swept out.
const SWEEP_MIN: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Claims {
    table: Mutex<ClaimTable>,
}

#[derive(Debug, Default)]
struct ClaimTable {
    by_id: ById<Arc<TrackedClaim>>,
    /// The waiting claims of each key, in order of arrival.
    waiting: HashMap<Arc<str>, Vec<Arc<TrackedClaim>>>,
    highest_tokens: HashMap<Name, u64>,
    /// Until when each key is left to a notified waiter of another client.
    head_starts: HashMap<Arc<str>, BootInstant>,
    /// The number of entries at which the next insertion sweeps out entries that were never
    /// removed.
    sweep_at: usize,
}

impl Claims {
    /// Returns the state of a claim, and creates it if there is none.
    pub(super) fn begin(
        &self,
        claim: &Claim,
        keys: Keys,
        master_locks: usize,
        since: u64,
    ) -> Arc<TrackedClaim> {
        let mut table = self.table.lock();
        if let Some(tracked) = table.by_id.get(&claim.id) {
            return Arc::clone(tracked);
        }
        if table.by_id.len() >= table.sweep_at {
            table.sweep();
        }

        let tracked = TrackedClaim::new(claim.clone(), keys, master_locks, since);
        let tracked = Arc::new(tracked);
        table.by_id.insert(claim.id, Arc::clone(&tracked));
        tracked
    }

    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.table.lock().by_id.get(&id).map(Arc::clone)
    }

    /// Queues a claim behind the waiting claims of this client.
    pub(super) fn wait(&self, tracked: &Arc<TrackedClaim>, until: BootInstant) {
        let mut table = self.table.lock();
        tracked.set_waiting(until);

        let waiting = table.waiting.entry(Arc::clone(&tracked.key)).or_default();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, tracked)) {
            waiting.push(Arc::clone(tracked));
        }
    }

    /// Records that a claim holds the lock.
    pub(super) fn hold(&self, tracked: &Arc<TrackedClaim>, token: Token) {
        tracked.set_held(token);
        self.table.lock().stop_waiting(tracked);
    }

    /// Ends a claim for this client. The claim is remembered until [`forget`](Self::forget).
    pub(super) fn close(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        let mut table = self.table.lock();
        let tracked = table.by_id.get(&id).map(Arc::clone)?;
        table.stop_waiting(&tracked);
        tracked.set_gone();
        tracked.changed.notify_waiters();
        Some(tracked)
    }

    pub(super) fn forget(&self, id: ClaimId) {
        self.table.lock().by_id.remove(&id);
    }

    /// Whether no other claim of this client waits ahead of this one.
    pub(super) fn is_first(&self, tracked: &TrackedClaim) -> bool {
        let table = self.table.lock();
        let waiting = table.waiting.get(&tracked.key);
        let first = waiting.and_then(|waiting| waiting.first());
        first.is_none_or(|first| first.claim.id == tracked.claim.id)
    }

    /// Whether a claim of this client waits for the lock of a key.
    pub(super) fn has_waiters(&self, key: &str) -> bool {
        self.table.lock().waiting.contains_key(key)
    }

    /// Returns the waiting claims of this client.
    pub(super) fn waiters(&self, key: &str, now: BootInstant) -> Vec<Entry> {
        let table = self.table.lock();
        let waiting = table.waiting.get(key).map(Vec::as_slice);
        let waiting = waiting.unwrap_or_default().iter();
        let kept = waiting.filter(|tracked| tracked.kept_until() > now);

        let entry = |(tracked, ahead): (&Arc<TrackedClaim>, u32)| {
            let claim = &tracked.claim;
            let info = ClaimantInfo::clone(&claim.info);
            Entry::new(claim.id, claim.share, Standing::Queued { ahead }, info)
        };
        kept.zip(1..).map(entry).collect()
    }

    /// Records a message that a master has pushed.
    pub(super) fn pushed(&self, master: usize, text: &str) {
        match Push::parse(text) {
            Some(Push::Free(key)) => self.freed(master, key),
            Some(Push::Gone(id)) => {
                if let Some(tracked) = self.tracked(id) {
                    tracked.broken_by_push(master);
                }
            }
            None => {}
        }
    }

    /// Records that a master has freed a lock.
    pub(super) fn freed(&self, master: usize, key: &str) {
        let table = self.table.lock();
        let waiting = table.waiting.get(key);
        if let Some(first) = waiting.and_then(|waiting| waiting.first()) {
            first.notified_by(master);
        }
    }

    /// Records that a master has notified a waiter of a release by this client.
    pub(super) fn handed_over(&self, key: &str) {
        let mut table = self.table.lock();
        if table.head_starts.len() >= NAMES_MAX {
            table.head_starts.clear();
        }
        let until = BootInstant::now().saturating_add(HEAD_START);
        table.head_starts.insert(key.into(), until);
    }

    /// Returns how long to leave the lock to a notified waiter. It does so once for each release.
    pub(super) fn take_head_start(&self, key: &str) -> Duration {
        let mut table = self.table.lock();
        if table.head_starts.is_empty() {
            return Duration::ZERO;
        }
        let until = table.head_starts.remove(key);
        until.map_or(Duration::ZERO, |until| {
            until.duration_since(BootInstant::now())
        })
    }

    /// Returns the highest token that this client knows for a name.
    pub(super) fn highest_token(&self, name: &Name) -> u64 {
        let table = self.table.lock();
        table.highest_tokens.get(name).copied().unwrap_or(0)
    }

    pub(super) fn saw_token(&self, name: &Name, token: u64) {
        let mut table = self.table.lock();
        if let Some(highest) = table.highest_tokens.get_mut(name) {
            *highest = token.max(*highest);
            return;
        }
        if table.highest_tokens.len() >= NAMES_MAX {
            table.highest_tokens.clear();
        }
        table.highest_tokens.insert(name.clone(), token);
    }
}

impl ClaimTable {
    /// Removes the claims that ended a lease ago and whose final leave failed. Their votes have
    /// ended too.
    fn sweep(&mut self) {
        let now = BootInstant::now();
        self.by_id.retain(|_, tracked| !tracked.is_over(now));
        self.sweep_at = (self.by_id.len() * 2).max(SWEEP_MIN);
    }

    fn stop_waiting(&mut self, tracked: &Arc<TrackedClaim>) {
        let Some(waiting) = self.waiting.get_mut(&tracked.key) else {
            return;
        };
        waiting.retain(|other| !Arc::ptr_eq(other, tracked));
        match waiting.first() {
            // From now on this waiter polls the masters.
            Some(first) => first.changed.notify_waiters(),
            None => drop(self.waiting.remove(&tracked.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{SingleKey, VoteFormat as _};
    use super::*;
    use crate::Share;

    fn tracked_claim(claims: &Claims) -> Arc<TrackedClaim> {
        let name = Name::parse("a").expect("a good name");
        let info = ClaimantInfo::here("").expect("a good label");
        let mut claim = Claim::new(name, Share::MUTEX, info.into());
        claim.lease = Duration::from_secs(30);
        let keys = SingleKey::new(false)
            .keys(&claim.name)
            .expect("a good name");
        claims.begin(&claim, keys, 0, 0)
    }

    fn wait(claims: &Claims, tracked: &Arc<TrackedClaim>) {
        let until = BootInstant::now().saturating_add(tracked.claim.lease);
        claims.wait(tracked, until);
    }

    /// A request in flight may already have granted the lock. A renewal that runs meanwhile
    /// extends the claim only up to the end of that grant.
    ///
    /// Shows G-52.
    #[test]
    fn lease_counts_from_the_request_that_may_have_granted() {
        let claims = Claims::default();
        let tracked = tracked_claim(&claims);
        let lease = tracked.claim.lease;
        wait(&claims, &tracked);

        tracked.request_sent(5);
        let later = BootInstant::now().saturating_add(lease / 3);
        let remaining = || tracked.renew_waiting(later).1.expect("it waits");
        assert!(remaining() <= lease * 2 / 3);

        tracked.request_decided();
        assert_eq!(remaining(), lease);
    }

    /// A renewal that was sent for the waiting claim finds the hold, and does not extend it.
    #[test]
    fn renewal_of_waiting_claim_that_holds_by_now_has_no_lease_of_its_own() {
        let claims = Claims::default();
        let tracked = tracked_claim(&claims);
        wait(&claims, &tracked);

        tracked.request_sent(5);
        let token = Token::new(5).expect("not 0");
        claims.hold(&tracked, token);
        let renewed = tracked.renew_waiting(BootInstant::now());
        assert_eq!(renewed, (Standing::Held { token }, None));
    }

    #[test]
    fn hold_without_renewal_is_safe_while_a_quorum_of_votes_counts() {
        let tracked = tracked_claim(&Claims::default());
        tracked.request_sent(5);
        let now = BootInstant::now();
        let after = |seconds| now.saturating_add(Duration::from_secs(seconds));
        for (master, seconds) in [(0, 9), (1, 3), (4, 7)] {
            assert_eq!(tracked.quorum_until(3), None);
            tracked.granted_by(master, 5, after(seconds));
        }

        assert_eq!(tracked.quorum_until(3), Some(after(3)));
        tracked.granted_by(3, 5, after(5));
        assert_eq!(tracked.quorum_until(3), Some(after(5)));
    }
}
