//! What this client knows of its own claims. Those that wait are known to it alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::record::{Keys, Push};
use super::voting::quorum;
use crate::claim::ById;
use crate::runtime::clock::BootInstant;
use crate::{Claim, ClaimId, ClaimantInfo, Entry, Name, Standing, Token};

/// How many names are remembered with the highest token seen. Forgetting costs a round.
const NAMES_MAX: usize = 4096;

/// How long whoever was told that a lock is free is given to take it: a few round trips.
const NOTIFIED_HEAD_START: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct Claims {
    table: Mutex<ClaimTable>,
}

#[derive(Debug, Default)]
struct ClaimTable {
    by_id: ById<Arc<TrackedClaim>>,
    /// Who waits for a key, in the order in which they came.
    waiting: HashMap<Arc<str>, Vec<Arc<TrackedClaim>>>,
    highest_tokens: HashMap<Name, u64>,
    /// Until when a key is left to somebody who waits for it.
    departed: HashMap<Arc<str>, BootInstant>,
    /// With so many pages those are looked for that nobody closed.
    sweep_at: usize,
}

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    pub(super) claim: Claim,
    /// By the masters' clocks, in microseconds.
    pub(super) since: u64,
    pub(super) keys: Keys,
    key: Arc<str>,
    state: Mutex<ClaimState>,
    /// Something has happened that somebody who waits should look at.
    pub(super) changed: Notify,
    /// Where a master keeps nothing by which a late request can be refused, it is asked about this claim one thing after another.
    pub(super) master_locks: Vec<Arc<AsyncMutex<()>>>,
}

#[derive(Debug)]
struct ClaimState {
    standing: Standing,
    /// The highest token that was proposed.
    highest_token: u64,
    /// The highest token that a master has answered.
    with_reply_timeout: u64,
    /// Since when a question is under way that may grant.
    request_sent_at: Option<BootInstant>,
    /// A claim that waits is kept here until then.
    until: BootInstant,
    /// Whether it has waited and not been granted.
    waited: bool,
    /// Masters that have told something since the last question, a bit each.
    notified: u32,
    /// Until when the vote of each master counts for the highest token: as long as a lease from before it was asked.
    votes: Vec<Option<BootInstant>>,
    /// Masters on which it was broken: they are not asked to give it again.
    broken: u32,
    /// How often it was asked to be kept, and the last time that was won.
    renewals: u32,
    apply_renewal: u32,
}

impl Claims {
    /// The page of a claim, made if there is none.
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
        let state = ClaimState {
            standing: Standing::Gone,
            highest_token: 0,
            with_reply_timeout: 0,
            request_sent_at: None,
            until: BootInstant::FAR_FUTURE,
            waited: false,
            notified: 0,
            votes: Vec::new(),
            broken: 0,
            renewals: 0,
            apply_renewal: 0,
        };
        let master_locks = (0..master_locks).map(|_| Arc::default()).collect();
        let (key, state, claim) = (keys.lock.as_str().into(), Mutex::new(state), claim.clone());
        let tracked = Arc::new(TrackedClaim {
            claim,
            since,
            keys,
            key,
            state,
            changed: Notify::new(),
            master_locks,
        });
        table.by_id.insert(tracked.claim.id, Arc::clone(&tracked));
        tracked
    }

    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.table.lock().by_id.get(&id).map(Arc::clone)
    }

    /// It waits from now on, behind those of this client that wait already.
    pub(super) fn wait(&self, tracked: &Arc<TrackedClaim>, until: BootInstant) {
        let mut table = self.table.lock();
        {
            let mut state = tracked.state.lock();
            (state.standing, state.until, state.waited) =
                (Standing::Queued { ahead: 1 }, until, true);
        }
        let waiting = table.waiting.entry(Arc::clone(&tracked.key)).or_default();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, tracked)) {
            waiting.push(Arc::clone(tracked));
        }
    }

    /// It holds. Only now is the question over that granted it: a renewal of the waiting claim must not count from later.
    pub(super) fn hold(&self, tracked: &Arc<TrackedClaim>, token: Token) {
        {
            let mut state = tracked.state.lock();
            (state.standing, state.waited) = (Standing::Held { token }, false);
            state.request_sent_at = None;
        }
        self.table.lock().stop_waiting(tracked);
    }

    /// It is over for this client; what masters have of it is remembered until [`forget`](Self::forget).
    pub(super) fn close(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        let mut table = self.table.lock();
        let tracked = table.by_id.get(&id).map(Arc::clone)?;
        table.stop_waiting(&tracked);
        {
            let mut state = tracked.state.lock();
            (state.standing, state.until) = (
                Standing::Gone,
                BootInstant::now().saturating_add(tracked.claim.lease),
            );
        }
        tracked.changed.notify_waiters();
        Some(tracked)
    }

    pub(super) fn forget(&self, id: ClaimId) {
        self.table.lock().by_id.remove(&id);
    }

    /// Whether nobody else of this client waits for the same ahead of it.
    pub(super) fn is_foremost(&self, tracked: &TrackedClaim) -> bool {
        let table = self.table.lock();
        let first = table
            .waiting
            .get(&tracked.key)
            .and_then(|waiting| waiting.first());
        first.is_none_or(|first| first.claim.id == tracked.claim.id)
    }

    /// Whether anybody of this client waits for what this one wants.
    pub(super) fn has_waiters(&self, key: &str) -> bool {
        self.table.lock().waiting.contains_key(key)
    }

    /// Those of this client that wait for a name.
    pub(super) fn waiters(&self, key: &str, now: BootInstant) -> Vec<Entry> {
        let table = self.table.lock();
        let waiting = table
            .waiting
            .get(key)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let alive = waiting
            .iter()
            .filter(|tracked| tracked.state.lock().until > now);
        alive
            .zip(1..)
            .map(|(tracked, ahead)| Entry {
                id: tracked.claim.id,
                share: tracked.claim.share,
                standing: Standing::Queued { ahead },
                info: ClaimantInfo::clone(&tracked.claim.info),
            })
            .collect()
    }

    /// Takes note of what a master has told.
    pub(super) fn pushed(&self, master: usize, text: &str) {
        match Push::parse(text) {
            Some(Push::Free(key)) => self.freed(master, key),
            Some(Push::Gone(id)) => {
                if let Some(tracked) = self.tracked(id) {
                    {
                        let mut state = tracked.state.lock();
                        (state.notified, state.broken) =
                            (state.notified | 1 << master, state.broken | 1 << master);
                    }
                    tracked.changed.notify_waiters();
                }
            }
            None => {}
        }
    }

    /// A master has a lock free.
    pub(super) fn freed(&self, master: usize, key: &str) {
        let table = self.table.lock();
        if let Some(first) = table.waiting.get(key).and_then(|waiting| waiting.first()) {
            first.state.lock().notified |= 1 << master;
            first.changed.notify_waiters();
        }
    }

    /// Somebody was told that the lock is free.
    pub(super) fn handed_over(&self, key: &str) {
        let mut table = self.table.lock();
        if table.departed.len() >= NAMES_MAX {
            table.departed.clear();
        }
        table.departed.insert(
            key.into(),
            BootInstant::now().saturating_add(NOTIFIED_HEAD_START),
        );
    }

    /// For how long the lock is left to another, who waits for it.
    pub(super) fn yield_to_notified(&self, key: &str) -> Duration {
        let mut table = self.table.lock();
        if table.departed.is_empty() {
            return Duration::ZERO;
        }
        table.departed.remove(key).map_or(Duration::ZERO, |until| {
            until.duration_since(BootInstant::now())
        })
    }

    /// The highest token seen of a name.
    pub(super) fn highest_token(&self, name: &Name) -> u64 {
        self.table
            .lock()
            .highest_tokens
            .get(name)
            .copied()
            .unwrap_or(0)
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
    /// Claims that could not leave for as long as their lease are over by themselves.
    fn sweep(&mut self) {
        let now = BootInstant::now();
        self.by_id.retain(|_, tracked| {
            let state = tracked.state.lock();
            state.standing != Standing::Gone || state.until > now
        });
        self.sweep_at = (self.by_id.len() * 2).max(1024);
    }

    fn stop_waiting(&mut self, tracked: &Arc<TrackedClaim>) {
        let Some(waiting) = self.waiting.get_mut(&tracked.key) else {
            return;
        };
        waiting.retain(|other| !Arc::ptr_eq(other, tracked));
        match waiting.first() {
            // It looks for itself from now on.
            Some(first) => first.changed.notify_waiters(),
            None => drop(self.waiting.remove(&tracked.key)),
        }
    }
}

impl TrackedClaim {
    pub(super) fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// Of a claim that waits: until when this client keeps it.
    pub(super) fn kept_until(&self) -> BootInstant {
        self.state.lock().until
    }

    pub(super) fn keep_until(&self, until: BootInstant) {
        self.state.lock().until = until;
    }

    pub(super) fn highest_token(&self) -> u64 {
        self.state.lock().highest_token
    }

    /// Whether it waited when it was closed.
    pub(super) fn has_waited(&self) -> bool {
        self.state.lock().waited
    }

    /// A question begins that may grant `token`.
    pub(super) fn request_sent(&self, token: u64) {
        let mut state = self.state.lock();
        (state.request_sent_at, state.notified) = (Some(BootInstant::now()), 0);
        if state.highest_token != token {
            state.highest_token = state.highest_token.max(token);
            state.votes.clear();
        }
    }

    pub(super) fn request_decided(&self) {
        self.state.lock().request_sent_at = None;
    }

    /// Where the claim stands; a waiting one is kept for a lease from `request`. Also for how long from there the waiting
    /// claim is safe, `None` if its time is over.
    ///
    /// A question that is under way may have been granted when it was sent: a lease runs from there at the earliest.
    pub(super) fn standing_renewed(&self, request: BootInstant) -> (Standing, Option<Duration>) {
        let mut state = self.state.lock();
        let is_kept = matches!(state.standing, Standing::Queued { .. }) && state.until > request;
        if !is_kept {
            return (state.standing, None);
        }

        let lease = self.claim.lease;
        state.until = request.saturating_add(lease);
        let remaining = state.request_sent_at.map_or(lease, |in_flight| {
            lease.saturating_sub(request.duration_since(in_flight))
        });
        (state.standing, Some(remaining))
    }

    pub(super) fn with_reply_timeout(&self) -> u64 {
        self.state.lock().with_reply_timeout
    }

    /// A master has answered that its last token is this one.
    pub(super) fn saw(&self, last: u64) {
        let mut state = self.state.lock();
        state.with_reply_timeout = last.max(state.with_reply_timeout);
    }

    /// Until when a quorum of votes counts for the highest token.
    pub(super) fn quorum_until(&self, quorum: usize) -> Option<BootInstant> {
        let mut until: Vec<BootInstant> =
            self.state.lock().votes.iter().flatten().copied().collect();
        until.sort_unstable_by(|one, other| other.cmp(one));
        until.get(quorum - 1).copied()
    }

    pub(super) fn granted_by(&self, master: usize, token: u64, until: BootInstant) {
        let mut state = self.state.lock();
        if state.highest_token == token {
            let len = state.votes.len().max(master + 1);
            state.votes.resize(len, None);
            state.votes[master] = Some(until);
        }
    }

    /// Until when a master's vote counts for what is held.
    pub(super) fn vote_until(&self, master: usize) -> Option<BootInstant> {
        let state = self.state.lock();
        let held = state.standing.token().is_some();
        state.votes.get(master).copied().flatten().filter(|_| held)
    }

    /// How many votes count at a moment.
    pub(super) fn votes_at(&self, now: BootInstant) -> usize {
        self.state
            .lock()
            .votes
            .iter()
            .flatten()
            .filter(|until| **until > now)
            .count()
    }

    /// The number of a renewal that begins.
    pub(super) fn begin_renewal(&self) -> u32 {
        let mut state = self.state.lock();
        state.renewals += 1;
        state.renewals
    }

    /// Votes that were given again by this renewal, or an earlier one, count from the next on.
    pub(super) fn won_renewal(&self, number: u32) {
        let mut state = self.state.lock();
        state.apply_renewal = state.apply_renewal.max(number);
    }

    pub(super) fn is_broken_on(&self, master: usize) -> bool {
        self.state.lock().broken & 1 << master != 0
    }

    /// Whether a vote counts that this master gave by such a renewal, 0 being the grant. Between the loss of a vote and a renewal
    /// another may have held; so what was given again shows a hold only from when it is known that it has gone on without.
    pub(super) fn renewal_counts(&self, master: usize, renewal: u32) -> bool {
        let state = self.state.lock();
        renewal <= state.apply_renewal && (renewal == 0 || state.broken & 1 << master == 0)
    }

    /// Whether any master has told something since the last question, and whether as many as decide have.
    pub(super) fn pushed_by(&self, masters: usize) -> (bool, bool) {
        let push = self.state.lock().notified.count_ones() as usize;
        (push > 0, push >= quorum(masters))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::WireFormat;
    use super::*;
    use crate::Share;

    fn page(claims: &Claims) -> Arc<TrackedClaim> {
        let (name, info) = (
            Name::parse("a").expect("a good name"),
            ClaimantInfo::here("").expect("a good label"),
        );
        let (share, lease, info) = (Share::MUTEX, Duration::from_secs(30), info.into());
        let claim = Claim {
            name,
            id: ClaimId::draw(),
            share,
            lease,
            auto_renew: true,
            info,
        };
        let keys = WireFormat::Fenced.keys(&claim.name).expect("a good name");
        claims.begin(&claim, keys, 0, 0)
    }

    /// It may have been granted when it was asked: what is renewed meanwhile is good for no longer than that grant.
    #[test]
    fn lease_counts_from_the_request_that_may_have_granted() {
        let claims = Claims::default();
        let tracked = page(&claims);
        claims.wait(
            &tracked,
            BootInstant::now().saturating_add(tracked.claim.lease),
        );
        tracked.request_sent(5);
        let later = BootInstant::now().saturating_add(tracked.claim.lease / 3);
        let remaining =
            |tracked: &TrackedClaim| tracked.standing_renewed(later).1.expect("it waits");
        assert!(remaining(&tracked) <= tracked.claim.lease * 2 / 3);
        tracked.request_decided();
        assert_eq!(remaining(&tracked), tracked.claim.lease);
    }

    /// A renewal that was sent for the waiting claim finds the hold, and says nothing of the waiting claim's lease.
    #[test]
    fn renewal_of_waiting_claim_that_holds_by_now_has_no_lease_of_its_own() {
        let claims = Claims::default();
        let tracked = page(&claims);
        claims.wait(
            &tracked,
            BootInstant::now().saturating_add(tracked.claim.lease),
        );
        tracked.request_sent(5);
        let token = Token::new(5).expect("not 0");
        claims.hold(&tracked, token);
        assert_eq!(
            tracked.standing_renewed(BootInstant::now()),
            (Standing::Held { token }, None)
        );
    }

    #[test]
    fn hold_without_renewal_is_safe_while_a_quorum_of_votes_counts() {
        let tracked = page(&Claims::default());
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
