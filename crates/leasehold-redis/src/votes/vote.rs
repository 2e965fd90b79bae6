//! Voting rounds and leave rounds.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use super::VotingStore;
use super::departures::{MasterDeparture, leave_later};
use super::format::{Keys, VoteKind};
use super::master::Master;
use super::quorum_count::QuorumCount;
use super::record::{DAY, millis};
use super::requests::{LeaveReply, LeaveRequest, LeaveScope, MasterVote, VoteRequest, lock_master};
use super::round::RoundResult;
use super::tracked_claim::TrackedClaim;
use super::voting::TallyOutcome;
use crate::client::id_text;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Claim;
use leasehold_core::{Error, Result};

/// The head start of a notified waiter of another client: a few round trips.
const HEAD_START: Duration = Duration::from_millis(5);

/// What a voting round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteMode {
    /// To hold the lock now.
    Acquire,
    /// To hold the lock, or to receive a notification when it is free.
    AcquireOrNotify,
    /// To keep the lock. A master that has not voted yet may vote too, if it remembers tokens.
    Renew,
}

impl<const MASTERS_MIN: usize> VotingStore<MASTERS_MIN> {
    /// Requests the votes of all masters for a token.
    pub(super) async fn vote(
        &self,
        tracked: &Arc<TrackedClaim>,
        token: u64,
        mode: VoteMode,
    ) -> RoundResult {
        let lease = tracked.claim.lease;
        let renewal = match mode {
            VoteMode::Renew => tracked.begin_renewal(),
            VoteMode::Acquire | VoteMode::AcquireOrNotify => 0,
        };
        let request = Arc::new(self.vote_request(tracked, token, mode, renewal));

        // The lease counts from before the request.
        let valid_until = BootInstant::now().saturating_add(lease);
        tracked.request_sent(token);
        let mut round = self.round(|master, wait| {
            let tracked = Arc::clone(tracked);
            let request = Arc::clone(&request);
            async move {
                let reply = request.send(&master, wait, &tracked).await;
                if let Ok(reply) = &reply {
                    tracked.saw_token(reply.last_token);
                    if reply.vote == MasterVote::Granted {
                        tracked.granted_by(master.at, token, valid_until);
                    }
                }
                (master, reply)
            }
        });

        let limit = (lease / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let deadline = Instant::now() + limit;
        let result = self.tally(&mut round.requests, token, deadline).await;
        decided(tracked, mode, renewal, &result);
        result
    }

    fn vote_request(
        &self,
        tracked: &TrackedClaim,
        token: u64,
        mode: VoteMode,
        renewal: u32,
    ) -> VoteRequest {
        let claim = &tracked.claim;
        let kind = self.vote_kind(tracked, mode);
        let mut record = self.format.record(claim, token, &self.client);
        if kind == VoteKind::Restore {
            // The words of a record have no plus sign, and its readers skip this last word.
            record.push_str(" +");
            record.push_str(&renewal.to_string());
        }

        let waiter = match mode {
            VoteMode::AcquireOrNotify => format!("{}{}", self.client, tracked.details.since),
            VoteMode::Acquire | VoteMode::Renew => String::new(),
        };
        VoteRequest {
            format: self.format,
            keys: tracked.details.keys.clone(),
            id: id_text(claim.id),
            record,
            record_life: millis(self.record_life(claim.lease)).to_string(),
            counter_life: self.counter_life(claim.lease),
            waiter,
            kind,
        }
    }

    /// Returns how a master votes on a request.
    ///
    /// In a format without a last token, a renewal restores a lost vote only while a quorum of
    /// votes is valid. With a single server it never restores a vote: the lost key was the lock.
    fn vote_kind(&self, tracked: &TrackedClaim, mode: VoteMode) -> VoteKind {
        if mode != VoteMode::Renew {
            return VoteKind::Grant;
        }
        let is_valid = tracked.votes_at(BootInstant::now()) >= self.quorum();
        let has_others = self.masters.len() > 1;
        if !self.format.remembers_last_token() && has_others && is_valid {
            return VoteKind::Restore;
        }
        VoteKind::Keep
    }

    /// Returns how long a master keeps the record of a claim with this lease.
    fn record_life(&self, lease: Duration) -> Duration {
        let vote_life = self.vote_life(lease);
        if self.format.remembers_last_token() {
            vote_life + DAY
        } else {
            vote_life
        }
    }

    /// Returns how long a master keeps the counter of tokens. The format has one if its record does
    /// not keep the last token.
    fn counter_life(&self, lease: Duration) -> String {
        if self.format.remembers_last_token() || !self.format.guarantees_tokens() {
            return String::new();
        }
        millis(lease + DAY).to_string()
    }

    /// Takes back the votes that masters may have given in a lost round.
    pub(super) fn take_back(&self, tracked: &Arc<TrackedClaim>, result: &RoundResult) {
        let keys = tracked.details.keys.clone();
        let scope = LeaveScope::Quiet;
        let request = Arc::new(self.leave_request(&tracked.claim, keys, result.token, scope));
        let round = self.round(|master, _| {
            let tracked = Arc::clone(tracked);
            let request = Arc::clone(&request);
            let has_refused = result.refused_by.contains(&master.at);
            async move {
                // A master that refused has replied: no vote of this round can follow there.
                if !has_refused {
                    let tracked = Some(tracked);
                    // Without a reply it is repeated. Any other error leaves the vote to its lease.
                    let _ = Self::leave_master(&master, MasterDeparture { request, tracked }).await;
                }
            }
        });
        drop(round);
    }

    /// Leaves all masters. Returns whether any of them had the claim.
    pub(super) async fn leave_all(
        &self,
        claim: &Claim,
        tracked: Option<&Arc<TrackedClaim>>,
    ) -> Result<bool> {
        let (keys, highest_token) = match tracked {
            Some(tracked) => (tracked.details.keys.clone(), tracked.highest_token()),
            None => (self.format.keys(&claim.name)?, 0),
        };
        let scope = if self.claims.has_waiters(&claim.name) {
            LeaveScope::KeepWaiters
        } else {
            LeaveScope::StopWaiting
        };
        let request = Arc::new(self.leave_request(claim, keys, highest_token, scope));

        let mut round = self.round(|master, _| {
            let tracked = tracked.cloned();
            let request = Arc::clone(&request);
            async move {
                let left = Self::leave_master(&master, MasterDeparture { request, tracked }).await;
                (master, left)
            }
        });

        let mut count = QuorumCount::of(self.masters.len());
        let mut was_there = false;
        while !count.is_reached() {
            let next = round.requests.next().await;
            let (master, reply) = next.expect("the masters reply, or are too few");
            match reply {
                Ok(reply) => {
                    count.succeed();
                    was_there |= reply != LeaveReply::NotHeld;
                    if reply == LeaveReply::HandedOver {
                        self.claims.give_head_start(&claim.name, HEAD_START);
                    }
                }
                Err(error) => {
                    count.fail(&master.url, error)?;
                    if count.is_impossible() {
                        return Err(count.error());
                    }
                }
            }
        }
        Ok(was_there)
    }

    fn leave_request(
        &self,
        claim: &Claim,
        keys: Keys,
        highest_token: u64,
        scope: LeaveScope,
    ) -> LeaveRequest {
        LeaveRequest {
            format: self.format,
            keys,
            id: id_text(claim.id),
            hexadecimal_id: claim.id.to_string(),
            highest_token: format!("{highest_token:019}"),
            client: self.client.to_string(),
            scope,
            counter_life: self.counter_life(claim.lease),
        }
    }

    /// Leaves one master. A request without a reply is repeated in the background.
    ///
    /// The engine repeats the request to a master that is the only one.
    async fn leave_master(master: &Arc<Master>, departure: MasterDeparture) -> Result<LeaveReply> {
        let _master_lock = lock_master(departure.tracked.as_deref(), master).await;
        let reply = departure.request.send(master).await;
        if MASTERS_MIN > 1 && reply.as_ref().is_err_and(Error::is_unavailable) {
            leave_later(master, departure.clone());
        }
        reply
    }
}

/// Records the outcome of a round in the claim.
fn decided(tracked: &TrackedClaim, mode: VoteMode, renewal: u32, result: &RoundResult) {
    let is_won = result.outcome == TallyOutcome::Won;
    // A round that a waiting claim has won ends when the claim holds.
    if result.outcome == TallyOutcome::Lost || mode == VoteMode::Renew && is_won {
        tracked.request_decided();
    }
    if is_won {
        tracked.won_renewal(renewal);
        tracing::trace!(
            name = tracked.claim.name.as_str(),
            token = result.token,
            votes = result.tally.granted,
            "granted"
        );
    }
}
