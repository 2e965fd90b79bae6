//! Locks by the votes of independent Redis servers, the masters: what the stores `redlock` and
//! `redis_plain` share.
//!
//! A claim holds the lock once a majority of the masters has granted it. [`voting`] counts the
//! votes. `docs/protocols/redlock.md` describes the protocol in steps. A single server is one master, and its vote is the majority.
//!
//! A [`VoteFormat`] defines how a lock is written on a master. [`SingleKey`] is the format of other
//! libraries; both stores can use it.

mod acquire;
mod departures;
mod events;
mod format;
mod inspect;
mod master;
mod open;
pub(crate) mod plain;
mod quarantine;
mod quorum_count;
mod record;
pub(crate) mod redlock;
mod requests;
mod round;
#[cfg(test)]
mod tests;
mod tracked_claim;
mod vote;
pub(crate) mod voting;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::local_claims::LocalClaims;
use acquire::AcquireOutcome;
use events::Events;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{
    Claim, Entered, Extensions, OnContention, Standing, Store, Votes, replies,
};
use leasehold_core::{Error, Guarantees, LockState, Name, Result, ServerVote, Token};
use master::Master;
use tracked_claim::{ClaimVotes, TrackedClaim};
use vote::VoteMode;
use voting::quorum;

pub(super) use format::{Call, Keys, SingleKey, VoteArguments, VoteFormat};
pub(super) use open::{MasterSettings, VotingBuilder};
pub(super) use quarantine::INCARNATION_KEY;
pub(super) use record::{
    CLIENT_LEN, Holder, ID_LEN, Inspected, TOKEN_LEN, hashed, parse_info, write_info,
};
pub(super) use requests::{LeaveRequest, VoteRequest};

/// The locks of one client on its masters: on at least this number of servers.
#[derive(Debug)]
pub struct VotingStore<const MASTERS_MIN: usize> {
    masters: Vec<Arc<Master>>,
    claims: Arc<LocalClaims<ClaimVotes>>,
    client: Arc<str>,
    /// The last three digits of each token of this client. Two clients rarely propose the same.
    token_digits: u64,
    runtime: Option<Handle>,
    format: &'static dyn VoteFormat,
    longest_lease: Duration,
    /// Why the last round did not reach a quorum.
    quorum_error: Mutex<Option<Error>>,
    /// The keyspace notifications of a single server. Other libraries publish no release.
    events: Option<Arc<Events>>,
}

/// The number of claims that one call of `renew` renews at the same time. The limit keeps each
/// renewal short, however many claims there are.
const RENEWALS_AT_ONCE: usize = 64;

#[async_trait]
impl<const MASTERS_MIN: usize> Store for VotingStore<MASTERS_MIN> {
    fn guarantees(&self) -> Guarantees {
        open::guarantees(self.format)
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let tracked = self.tracked(claim)?;
        if let Some(standing) = self.find_entered(&tracked, on_contention).await? {
            return Ok(Entered::new(standing, claim.lease));
        }
        if on_contention == OnContention::Fail {
            return self.enter_now(&tracked).await;
        }
        let standing = self.enter_queue(&tracked).await?;
        Ok(Entered::new(standing, claim.lease))
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let Some(tracked) = self.claims.get(claim.id) else {
            return Ok(Standing::Gone);
        };
        match (tracked.standing(), seen) {
            (Standing::Held { token }, Standing::Held { token: seen }) if token == seen => {
                self.wait_for_loss(&tracked, token).await
            }
            (Standing::Queued { .. }, Standing::Queued { .. }) => {
                self.wait_for_grant(&tracked).await
            }
            (standing, _) => Ok(standing),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let sent_at = BootInstant::now();
        let renewals: Vec<_> = claims
            .iter()
            .map(|claim| self.renew_one(claim, sent_at))
            .collect();
        let replies: Vec<_> = stream::iter(renewals)
            .buffered(RENEWALS_AT_ONCE)
            .collect()
            .await;
        if replies.iter().all(Result::is_err) {
            return replies.into_iter().collect();
        }

        // A claim whose renewal failed is valid for as long as it was before. The other claims
        // keep their replies.
        let leases = claims.iter().zip(replies).map(|(claim, reply)| {
            reply.unwrap_or_else(|_| Some(self.validity_without_renewal(claim, sent_at)))
        });
        Ok(leases.collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let tracked = self.claims.close(claim.id);
        let was_there = self.leave_all(claim, tracked.as_ref()).await?;
        self.claims.forget(claim.id);
        Ok(was_there || tracked.is_some_and(|tracked| tracked.has_waited()))
    }

    /// Returns the holder that a quorum of masters reports, and the waiters of this client.
    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let key = self.format.keys(name)?.lock;
        let observations = self.observe(&key).await?;
        let mut lock_state = replies::lock_state(name.clone());

        if let Some((holder, token)) = self.elected(&observations) {
            lock_state.entries.push(self.entry(holder, token));
            lock_state.last_token = Some(token);
        } else {
            lock_state.last_token = observations
                .iter()
                .filter_map(|seen| seen.status.last_token)
                .max();
        }

        lock_state.entries.extend(self.claims.waiters(name));
        if self.masters.len() > 1 {
            let statuses = observations.into_iter().map(|seen| seen.status);
            lock_state.servers = statuses.collect();
        }
        Ok(lock_state)
    }

    /// Returns the names of which a quorum of masters holds a record.
    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = self.format.pattern(prefix);
        let listings = self.list_on_masters(&pattern, count_max).await;

        let mut votes: BTreeMap<Name, usize> = BTreeMap::new();
        for name in self.of_quorum(listings)?.into_iter().flatten() {
            *votes.entry(name).or_default() += 1;
        }

        let held = votes
            .into_iter()
            .filter(|(_, count)| *count >= self.quorum());
        Ok(held.map(|(name, _)| name).take(count_max).collect())
    }

    fn extensions(&self) -> Extensions<'_> {
        let extensions = Extensions::default();
        if MASTERS_MIN == 1 {
            return extensions;
        }
        extensions.with_votes(self)
    }
}

impl<const MASTERS_MIN: usize> VotingStore<MASTERS_MIN> {
    fn quorum(&self) -> usize {
        quorum(self.masters.len())
    }

    /// Whether too few masters for a quorum remain if this number of them is missing.
    fn no_quorum_without(&self, missing: usize) -> bool {
        quorum_count::no_quorum_without(missing, self.masters.len())
    }

    /// Returns the standing of a claim that an earlier request has entered.
    async fn find_entered(
        &self,
        tracked: &Arc<TrackedClaim>,
        on_contention: OnContention,
    ) -> Result<Option<Standing>> {
        match tracked.standing() {
            Standing::Held { token } => {
                let is_held = self.confirm(tracked, token).await?;
                Ok(is_held.then_some(Standing::Held { token }))
            }
            Standing::Queued { .. } if on_contention == OnContention::Queue => {
                tracked.keep_until(BootInstant::now().saturating_add(tracked.claim.lease));
                Ok(Some(tracked.standing()))
            }
            _ => Ok(None),
        }
    }

    async fn enter_now(&self, tracked: &Arc<TrackedClaim>) -> Result<Entered> {
        let claim = &tracked.claim;
        match self.try_acquire(tracked, VoteMode::Acquire).await? {
            AcquireOutcome::Won(token) => Ok(Entered::new(Standing::Held { token }, claim.lease)),
            AcquireOutcome::Contended { holder, .. } => {
                let mut lock_state = replies::lock_state(claim.name.clone());
                let token = holder.as_ref().and_then(|holder| Token::new(holder.token));
                let entry = holder
                    .as_ref()
                    .zip(token)
                    .map(|(holder, token)| self.entry(holder, token));
                lock_state.entries.extend(entry);

                let standing = self.claims.gone(tracked);
                let refused = replies::refused(lock_state, None);
                Ok(Entered::new(standing, claim.lease).with_refused(Some(refused)))
            }
        }
    }

    async fn enter_queue(&self, tracked: &Arc<TrackedClaim>) -> Result<Standing> {
        let until = BootInstant::now().saturating_add(tracked.claim.lease);
        let name = &tracked.claim.name;
        if self.claims.has_waiters(name) && !self.claims.is_first(tracked) {
            return Ok(self.claims.wait(tracked, until));
        }

        self.claims.leave_head_start(name).await;
        let outcome = self.try_acquire(tracked, VoteMode::AcquireOrNotify).await?;
        if let AcquireOutcome::Won(token) = outcome {
            return Ok(Standing::Held { token });
        }
        Ok(self.claims.wait(tracked, until))
    }

    async fn renew_one(&self, claim: &Claim, sent_at: BootInstant) -> Result<Option<Duration>> {
        let Some(tracked) = self.claims.get(claim.id) else {
            return Ok(None);
        };

        match tracked.renew_waiting(sent_at, claim.lease) {
            (Standing::Queued { .. }, None) => {
                self.claims.close(claim.id);
                Ok(None)
            }
            (Standing::Queued { .. }, remaining) => {
                // The masters do not know a waiting claim, but its waiter must receive an error
                // when they cannot be reached.
                if self.quorum_error.lock().is_some() {
                    self.reach_quorum().await?;
                }
                Ok(remaining)
            }
            (Standing::Held { token }, _) => {
                let is_held = self.confirm(&tracked, token).await?;
                if !is_held {
                    self.claims.close(claim.id);
                }
                Ok(is_held.then_some(claim.lease))
            }
            _ => Ok(None),
        }
    }

    /// Returns how long a quorum of earlier votes for a claim counts, from a moment.
    #[cold]
    fn validity_without_renewal(&self, claim: &Claim, from: BootInstant) -> Duration {
        let tracked = self.claims.get(claim.id);
        let until = tracked.and_then(|tracked| tracked.quorum_until(self.quorum()));
        until.map_or(Duration::ZERO, |until| until.duration_since(from))
    }
}

impl<const MASTERS_MIN: usize> Votes for VotingStore<MASTERS_MIN> {
    fn votes(&self, claim: &Claim) -> Vec<ServerVote> {
        let now = BootInstant::now();
        let tracked = self.claims.get(claim.id);
        let vote = |master: &Arc<Master>| {
            let tracked = tracked.as_ref();
            let until = tracked.and_then(|tracked| tracked.vote_until(master.at));
            let remaining = until.map_or(Duration::ZERO, |until| until.duration_since(now));
            replies::server_vote(master.url.clone(), remaining)
        };
        self.masters.iter().map(vote).collect()
    }
}
