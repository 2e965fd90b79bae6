//! The votes for one of this client's claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::format::Keys;
use super::quorum::quorum;
use crate::local_claims::LocalClaim;
use leasehold_core::internal::BootInstant;

pub(super) type TrackedClaim = LocalClaim<ClaimVotes>;

/// What the client knows of the votes for a claim.
#[derive(Debug)]
pub(super) struct ClaimVotes {
    pub(super) keys: Keys,
    /// When the claim began, by the masters' clocks, in microseconds.
    pub(super) since: u64,
    /// One mutex for each master that does not remember tokens. Such a master cannot refuse a late
    /// request, so requests about this claim are sent one after another. Empty for masters that
    /// remember tokens.
    pub(super) master_locks: Vec<Arc<AsyncMutex<()>>>,
    state: Mutex<VoteState>,
}

#[derive(Debug, Default)]
struct VoteState {
    /// The highest token that this claim has proposed.
    highest_token: u64,
    /// The highest token in the replies to this claim.
    highest_reply_token: u64,
    /// The masters that have sent a notification since the last request.
    notified_by: BTreeSet<usize>,
    /// Until when the vote of each master counts for the highest token: a lease from before the
    /// request.
    votes: Vec<Option<BootInstant>>,
    /// The masters on which another client broke the hold. They do not restore it.
    broken_on: BTreeSet<usize>,
    /// The number of renewals so far.
    renewals: u32,
    /// The last renewal that succeeded.
    last_won_renewal: u32,
}

/// How many masters have sent a notification since the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notified {
    None,
    Minority,
    Quorum,
}

impl ClaimVotes {
    pub(super) fn new(keys: Keys, master_locks: usize, since: u64) -> Self {
        Self {
            keys,
            since,
            master_locks: (0..master_locks).map(|_| Arc::default()).collect(),
            state: Mutex::default(),
        }
    }
}

impl TrackedClaim {
    pub(super) fn highest_token(&self) -> u64 {
        self.details.state.lock().highest_token
    }

    /// Returns the highest token in the replies to this claim.
    pub(super) fn highest_reply_token(&self) -> u64 {
        self.details.state.lock().highest_reply_token
    }

    /// Records that a request that may grant `token` is about to be sent.
    ///
    /// Until the request is decided, a renewal of the waiting claim counts from this moment,
    /// because the masters may keep a grant for a lease from then only. Earlier requests without a
    /// decision are forgotten here, and the votes for an earlier token with them. That is right
    /// because each round of a waiting claim proposes a larger token, and only a quorum of votes
    /// for the highest token makes a hold: a late vote for an earlier one does not count.
    pub(super) fn request_sent(&self, token: u64) {
        self.state.lock().unanswered = vec![BootInstant::now()];

        let mut state = self.details.state.lock();
        state.notified_by.clear();
        if state.highest_token != token {
            state.highest_token = state.highest_token.max(token);
            state.votes.clear();
        }
    }

    pub(super) fn request_decided(&self) {
        self.state.lock().unanswered.clear();
    }

    /// Records the last token of a master.
    pub(super) fn saw_token(&self, last_token: u64) {
        let mut state = self.details.state.lock();
        state.highest_reply_token = last_token.max(state.highest_reply_token);
    }

    pub(super) fn granted_by(&self, master: usize, token: u64, until: BootInstant) {
        let mut state = self.details.state.lock();
        if state.highest_token != token {
            return;
        }
        let len = state.votes.len().max(master + 1);
        state.votes.resize(len, None);
        state.votes[master] = Some(until);
    }

    /// Returns until when the claim is safe: a quorum of votes counts for the highest token.
    pub(super) fn safe_until(&self, quorum: usize) -> Option<BootInstant> {
        let state = self.details.state.lock();
        let mut until: Vec<BootInstant> = state.votes.iter().flatten().copied().collect();
        until.sort_unstable_by(|one, other| other.cmp(one));
        until.get(quorum - 1).copied()
    }

    /// Returns until when a master's vote counts for the hold.
    pub(super) fn vote_until(&self, master: usize) -> Option<BootInstant> {
        self.standing().token()?;
        let state = self.details.state.lock();
        state.votes.get(master).copied().flatten()
    }

    /// Returns the number of a renewal that begins.
    pub(super) fn begin_renewal(&self) -> u32 {
        let mut state = self.details.state.lock();
        state.renewals += 1;
        state.renewals
    }

    /// Records a renewal that succeeded. From now on, votes that this renewal or an earlier one
    /// restored count.
    pub(super) fn won_renewal(&self, number: u32) {
        let mut state = self.details.state.lock();
        state.last_won_renewal = state.last_won_renewal.max(number);
    }

    /// Whether a vote that the renewal `renewal` restored counts; 0 is the first grant.
    ///
    /// Between the loss of the vote and the renewal, another claim may have held the lock. So a
    /// restored vote counts only once a renewal has succeeded without it.
    ///
    /// Of three masters, A and B vote for this claim. B restarts empty, and B and C vote for
    /// another claim, which holds and leaves. A renewal then restores the vote of B. If that vote
    /// counted, A and B would confirm a hold that was over, under a token below the one that a
    /// resource may have accepted meanwhile. If a quorum grants the same renewal without B, those
    /// masters have kept their votes all the time, so no other claim can have had a quorum.
    pub(super) fn renewal_counts(&self, master: usize, renewal: u32) -> bool {
        let state = self.details.state.lock();
        let is_restorable = renewal == 0 || !state.broken_on.contains(&master);
        renewal <= state.last_won_renewal && is_restorable
    }

    pub(super) fn is_broken_on(&self, master: usize) -> bool {
        self.details.state.lock().broken_on.contains(&master)
    }

    /// Records that another client broke the hold on a master.
    pub(super) fn broken_by_push(&self, master: usize) {
        self.details.state.lock().broken_on.insert(master);
        self.notified_by(master);
    }

    /// Records that a master has freed the lock.
    pub(super) fn notified_by(&self, master: usize) {
        self.details.state.lock().notified_by.insert(master);
        self.changed.notify_waiters();
    }

    /// Returns how many of `masters` have sent a notification since the last request.
    pub(super) fn notified(&self, masters: usize) -> Notified {
        match self.details.state.lock().notified_by.len() {
            0 => Notified::None,
            count if count < quorum(masters) => Notified::Minority,
            _ => Notified::Quorum,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::format::{SingleKey, VoteFormat as _};
    use super::*;
    use crate::local_claims::LocalClaims;
    use leasehold_conformance::support::claim;
    use leasehold_core::Token;
    use leasehold_core::store::Standing;

    fn tracked_claim(claims: &LocalClaims<ClaimVotes>) -> Arc<TrackedClaim> {
        let claim = claim("a");
        let keys = SingleKey::new(false)
            .keys(&claim.name)
            .expect("a good name");
        claims.begin(&claim, ClaimVotes::new(keys, 0, 0))
    }

    fn wait(claims: &LocalClaims<ClaimVotes>, tracked: &Arc<TrackedClaim>) {
        let until = BootInstant::now().saturating_add(tracked.claim.lease);
        claims.wait(tracked, until);
    }

    /// A request in flight may already have granted the lock. A renewal that runs meanwhile
    /// extends the claim only up to the end of that grant.
    ///
    /// Shows G-52.
    #[test]
    fn lease_counts_from_the_request_that_may_have_granted() {
        let claims = LocalClaims::default();
        let tracked = tracked_claim(&claims);
        let lease = tracked.claim.lease;
        wait(&claims, &tracked);

        tracked.request_sent(5);
        let later = BootInstant::now().saturating_add(lease / 3);
        let remaining = || tracked.renew_waiting(later, lease).1.expect("it waits");
        assert!(remaining() <= lease * 2 / 3);

        tracked.request_decided();
        assert_eq!(remaining(), lease);
    }

    /// A waiter that has lost the race for a lock asks again without a pause only after further
    /// notifications.
    #[test]
    fn notifications_from_before_a_request_do_not_count() {
        let claims = LocalClaims::default();
        let tracked = tracked_claim(&claims);
        wait(&claims, &tracked);
        for (master, notified) in [Notified::Minority, Notified::Minority, Notified::Quorum]
            .into_iter()
            .enumerate()
        {
            tracked.notified_by(master);
            assert_eq!(tracked.notified(5), notified);
        }
        tracked.request_sent(5);
        assert_eq!(tracked.notified(5), Notified::None);
    }

    /// A renewal that was sent for the waiting claim finds the hold, and does not extend it.
    #[test]
    fn renewal_of_waiting_claim_that_holds_by_now_has_no_lease_of_its_own() {
        let claims = LocalClaims::default();
        let tracked = tracked_claim(&claims);
        wait(&claims, &tracked);

        tracked.request_sent(5);
        let token = Token::new(5).expect("not 0");
        claims.hold(&tracked, token);
        let renewed = tracked.renew_waiting(BootInstant::now(), tracked.claim.lease);
        assert_eq!(renewed, (Standing::Held { token }, None));
    }

    #[test]
    fn hold_without_renewal_is_safe_while_a_quorum_of_votes_counts() {
        let tracked = tracked_claim(&LocalClaims::default());
        tracked.request_sent(5);
        let now = BootInstant::now();
        let after = |seconds| now.saturating_add(Duration::from_secs(seconds));
        for (master, seconds) in [(0, 9), (1, 3), (4, 7)] {
            assert_eq!(tracked.safe_until(3), None);
            tracked.granted_by(master, 5, after(seconds));
        }

        assert_eq!(tracked.safe_until(3), Some(after(3)));
        tracked.granted_by(3, 5, after(5));
        assert_eq!(tracked.safe_until(3), Some(after(5)));
    }
}
