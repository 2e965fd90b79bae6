//! The state of one of this client's claims.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::format::Keys;
use super::master_set::MasterSet;
use super::voting::quorum;
use crate::runtime::clock::BootInstant;
use crate::{Claim, Standing, Token};

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    pub(super) claim: Claim,
    /// When the claim began, by the masters' clocks, in microseconds.
    pub(super) since: u64,
    pub(super) keys: Keys,
    pub(super) key: Arc<str>,
    state: Mutex<ClaimState>,
    /// Notified when a waiting or holding task must check the state again.
    pub(super) changed: Notify,
    /// One mutex for each master that does not remember tokens. Such a master cannot refuse a late
    /// request, so requests about this claim are sent one after another. Empty for masters that
    /// remember tokens.
    pub(super) master_locks: Vec<Arc<AsyncMutex<()>>>,
}

#[derive(Debug)]
struct ClaimState {
    standing: Standing,
    /// The highest token that this claim has proposed.
    highest_token: u64,
    /// The highest token in the replies to this claim.
    highest_reply_token: u64,
    /// When the request was sent that is in flight and may grant the lock.
    request_sent_at: Option<BootInstant>,
    /// Until when this client keeps a waiting claim, or remembers one that is gone.
    until: BootInstant,
    /// Whether the claim has waited without a grant.
    has_waited: bool,
    /// The masters that have sent a notification since the last request.
    notified_by: MasterSet,
    /// Until when the vote of each master counts for the highest token: a lease from before the
    /// request.
    votes: Vec<Option<BootInstant>>,
    /// The masters on which another client broke the hold. They do not restore it.
    broken_on: MasterSet,
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

impl TrackedClaim {
    pub(super) fn new(claim: Claim, keys: Keys, master_locks: usize, since: u64) -> Self {
        let state = ClaimState {
            standing: Standing::Gone,
            highest_token: 0,
            highest_reply_token: 0,
            request_sent_at: None,
            until: BootInstant::FAR_FUTURE,
            has_waited: false,
            notified_by: MasterSet::default(),
            votes: Vec::new(),
            broken_on: MasterSet::default(),
            renewals: 0,
            last_won_renewal: 0,
        };

        Self {
            claim,
            since,
            key: keys.lock.as_str().into(),
            keys,
            state: Mutex::new(state),
            changed: Notify::new(),
            master_locks: (0..master_locks).map(|_| Arc::default()).collect(),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// Returns until when this client keeps the waiting claim.
    pub(super) fn kept_until(&self) -> BootInstant {
        self.state.lock().until
    }

    pub(super) fn keep_until(&self, until: BootInstant) {
        self.state.lock().until = until;
    }

    pub(super) fn highest_token(&self) -> u64 {
        self.state.lock().highest_token
    }

    /// Returns the highest token in the replies to this claim.
    pub(super) fn highest_reply_token(&self) -> u64 {
        self.state.lock().highest_reply_token
    }

    /// Whether the claim waited when it was closed.
    pub(super) fn has_waited(&self) -> bool {
        self.state.lock().has_waited
    }

    /// Whether no task uses this claim any more, and its last lease has ended.
    pub(super) fn is_over(&self, now: BootInstant) -> bool {
        let state = self.state.lock();
        state.standing == Standing::Gone && state.until <= now
    }

    pub(super) fn set_waiting(&self, until: BootInstant) {
        let mut state = self.state.lock();
        state.standing = Standing::Queued { ahead: 1 };
        state.until = until;
        state.has_waited = true;
    }

    /// Records the grant, and only then forgets the request that granted it. Otherwise a renewal of
    /// the waiting claim could count from a later moment.
    pub(super) fn set_held(&self, token: Token) {
        let mut state = self.state.lock();
        state.standing = Standing::Held { token };
        state.has_waited = false;
        state.request_sent_at = None;
    }

    pub(super) fn set_gone(&self) {
        let mut state = self.state.lock();
        state.standing = Standing::Gone;
        state.until = BootInstant::now().saturating_add(self.claim.lease);
    }

    /// Records that a request that may grant `token` is about to be sent.
    pub(super) fn request_sent(&self, token: u64) {
        let mut state = self.state.lock();
        state.request_sent_at = Some(BootInstant::now());
        state.notified_by = MasterSet::default();
        if state.highest_token != token {
            state.highest_token = state.highest_token.max(token);
            state.votes.clear();
        }
    }

    pub(super) fn request_decided(&self) {
        self.state.lock().request_sent_at = None;
    }

    /// Renews a waiting claim for a lease from `sent_at`.
    ///
    /// Returns the claim's standing. For a waiting claim that this client still keeps, it also
    /// returns how long the claim is valid from `sent_at`.
    ///
    /// A request in flight may have granted the lock as soon as it was sent. The lease then counts
    /// from the time at which that request was sent.
    pub(super) fn renew_waiting(&self, sent_at: BootInstant) -> (Standing, Option<Duration>) {
        let mut state = self.state.lock();
        let is_queued = matches!(state.standing, Standing::Queued { .. });
        if !is_queued || state.until <= sent_at {
            return (state.standing, None);
        }

        let lease = self.claim.lease;
        state.until = sent_at.saturating_add(lease);
        let remaining = state.request_sent_at.map_or(lease, |in_flight| {
            lease.saturating_sub(sent_at.duration_since(in_flight))
        });
        (state.standing, Some(remaining))
    }

    /// Records the last token of a master.
    pub(super) fn saw_token(&self, last_token: u64) {
        let mut state = self.state.lock();
        state.highest_reply_token = last_token.max(state.highest_reply_token);
    }

    pub(super) fn granted_by(&self, master: usize, token: u64, until: BootInstant) {
        let mut state = self.state.lock();
        if state.highest_token != token {
            return;
        }
        let len = state.votes.len().max(master + 1);
        state.votes.resize(len, None);
        state.votes[master] = Some(until);
    }

    /// Returns until when a quorum of votes counts for the highest token.
    pub(super) fn quorum_until(&self, quorum: usize) -> Option<BootInstant> {
        let state = self.state.lock();
        let mut until: Vec<BootInstant> = state.votes.iter().flatten().copied().collect();
        until.sort_unstable_by(|one, other| other.cmp(one));
        until.get(quorum - 1).copied()
    }

    /// Returns until when a master's vote counts for the hold.
    pub(super) fn vote_until(&self, master: usize) -> Option<BootInstant> {
        let state = self.state.lock();
        state.standing.token()?;
        state.votes.get(master).copied().flatten()
    }

    /// Returns the number of votes that count at a moment.
    pub(super) fn votes_at(&self, now: BootInstant) -> usize {
        let state = self.state.lock();
        let votes = state.votes.iter().flatten();
        votes.filter(|until| **until > now).count()
    }

    /// Returns the number of a renewal that begins.
    pub(super) fn begin_renewal(&self) -> u32 {
        let mut state = self.state.lock();
        state.renewals += 1;
        state.renewals
    }

    /// Records a renewal that succeeded. From now on, votes that this renewal or an earlier one
    /// restored count.
    pub(super) fn won_renewal(&self, number: u32) {
        let mut state = self.state.lock();
        state.last_won_renewal = state.last_won_renewal.max(number);
    }

    /// Whether a vote that the renewal `renewal` restored counts; 0 is the first grant.
    ///
    /// Between the loss of the vote and the renewal, another claim may have held the lock. So a
    /// restored vote counts only once a renewal has succeeded without it.
    pub(super) fn renewal_counts(&self, master: usize, renewal: u32) -> bool {
        let state = self.state.lock();
        let is_restorable = renewal == 0 || !state.broken_on.contains(master);
        renewal <= state.last_won_renewal && is_restorable
    }

    pub(super) fn is_broken_on(&self, master: usize) -> bool {
        self.state.lock().broken_on.contains(master)
    }

    /// Records that another client broke the hold on a master.
    pub(super) fn broken_by_push(&self, master: usize) {
        let mut state = self.state.lock();
        state.notified_by.insert(master);
        state.broken_on.insert(master);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that a master has freed the lock.
    pub(super) fn notified_by(&self, master: usize) {
        self.state.lock().notified_by.insert(master);
        self.changed.notify_waiters();
    }

    /// Returns how many of `masters` have sent a notification since the last request.
    pub(super) fn notified(&self, masters: usize) -> Notified {
        match self.state.lock().notified_by.len() {
            0 => Notified::None,
            count if count < quorum(masters) => Notified::Minority,
            _ => Notified::Quorum,
        }
    }
}
