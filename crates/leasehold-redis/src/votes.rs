//! Locks by the votes of independent Redis servers, the masters: what [`Redlock`](redlock::Redlock)
//! and [`RedisPlain`](plain::RedisPlain) share.
//!
//! A claim holds the lock once a majority of the masters has granted it. [`quorum`] counts the
//! votes. `docs/protocols/redlock.md` describes the protocol in steps. A single server is one
//! master, and its vote is the majority.
//!
//! A [`VoteFormat`] defines how a lock is written on a master. `SingleKey` is the format of other
//! libraries; both stores can use it.

mod departures;
mod events;
mod format;
mod inspect;
mod master;
mod masters;
mod open;
pub(crate) mod plain;
mod quarantine;
pub(crate) mod quorum;
mod record;
pub(crate) mod redlock;
#[cfg(test)]
mod tests;
mod tracked_claim;
mod vote;
mod wait;

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::builder::ServerStore;
use crate::client::id_text;
use crate::local_claims::LocalClaims;
use departures::{Departures, MasterDeparture};
use events::Events;
use format::{Keys, LeaveRequest, LeaveScope, VoteFormat, VoteKind, VoteRequest};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{
    Claim, Entered, Extensions, OnContention, Share, Standing, Store, Votes, replies, units,
};
use leasehold_core::{Error, Guarantees, LockState, Name, Result, ServerVote, Token};
use master::Master;
use masters::Masters;
use open::VotingConfig;
use quarantine::MasterSettings;
use quorum::{LeaveCount, QuorumCount, RoundResult, TallyOutcome};
use record::{DAY, Holder, millis};
use tracked_claim::{ClaimVotes, TrackedClaim};
use vote::{LeaveReply, request_vote};

pub(super) use record::{hashed, parse_info, write_info};

/// Locks by the votes of Redis servers: [`Redlock`](redlock::Redlock) has several, and
/// [`RedisPlain`](plain::RedisPlain) one.
#[derive(Debug)]
pub struct VotingStore<Servers> {
    voting: Voting,
    servers: PhantomData<Servers>,
}

#[async_trait]
impl<Servers: Debug + Send + Sync + 'static> ServerStore for VotingStore<Servers> {
    type Address = VotingConfig;

    async fn open(config: VotingConfig, runtime: Option<Handle>) -> Result<Self> {
        Ok(Self {
            voting: open::open(config, runtime).await?,
            servers: PhantomData,
        })
    }
}

#[async_trait]
impl<Servers: Debug + Send + Sync + 'static> Store for VotingStore<Servers> {
    fn guarantees(&self) -> Guarantees {
        open::guarantees(self.voting.format)
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.voting.enter(claim, on_contention).await
    }

    async fn queued(&self, claim: &Claim, _ahead: u32) -> Result<Standing> {
        self.voting.queued(claim).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        self.voting.lost(claim, token).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.voting.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.voting.leave(claim).await
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        inspect::inspect(&self.voting, name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        inspect::list(&self.voting, prefix, count_max).await
    }

    fn extensions(&self) -> Extensions<'_> {
        let is_voted_on = self.voting.settings.has_several_servers();
        Extensions {
            votes: is_voted_on.then_some(&self.voting),
            ..Extensions::default()
        }
    }
}

impl Votes for Voting {
    fn votes(&self, claim: &Claim) -> Vec<ServerVote> {
        let now = BootInstant::now();
        let tracked = self.claims.get(claim.id);
        let vote = |master: &Arc<Master>| {
            let tracked = tracked.as_ref();
            let until = tracked.and_then(|tracked| tracked.vote_until(master.at));
            let remaining = until.map_or(Duration::ZERO, |until| until.duration_since(now));
            replies::server_vote(master.url.clone(), remaining)
        };
        self.masters.all.iter().map(vote).collect()
    }
}

/// The claims of one client, and the masters that vote for them.
#[derive(Debug)]
pub(crate) struct Voting {
    masters: Masters,
    /// One for each master.
    departures: Vec<Arc<Departures>>,
    claims: Arc<LocalClaims<ClaimVotes>>,
    client: Arc<str>,
    /// The number whose last three digits each token of this client has. Two clients rarely propose
    /// the same.
    token_digits: u64,
    format: &'static dyn VoteFormat,
    settings: MasterSettings,
    /// Why the last round did not reach a quorum, if the masters were not available.
    quorum_error: Mutex<Option<Error>>,
    /// The keyspace notifications of a single server. Other libraries publish no release.
    events: Option<Arc<Events>>,
}

/// What a voting round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VoteMode {
    /// To hold the lock now.
    Acquire,
    /// To hold the lock, or to receive a notification when it is free.
    AcquireOrNotify,
    /// To keep the lock. A master that has not voted yet may vote too, if it remembers tokens.
    Renew,
}

/// The outcome of an attempt to acquire the lock.
enum AcquireOutcome {
    Won(Token),
    /// Another claim has the lock.
    Contended {
        /// Its remaining lease, if it has an end.
        remaining: Option<Duration>,
        /// The claim itself, if the masters have named it.
        holder: Option<Holder>,
    },
}

/// How often a round with split votes, or with a token that is too low, is repeated before the lock
/// counts as held by another claim.
const REPEATS_MAX: u32 = 6;
/// The highest token: a record has 19 digits for it.
const TOKEN_MAX: u64 = 9_999_999_999_999_999_999;
/// The number of tokens that differ only in their client's digits.
const TOKEN_STEP: u64 = 1_000;
/// The head start of a notified waiter of another client: a few round trips.
const HEAD_START: Duration = Duration::from_millis(5);
/// The number of claims that one call of `renew` renews at the same time. The limit keeps each
/// renewal short, however many claims there are.
const RENEWALS_AT_ONCE: usize = 64;

impl Voting {
    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let tracked = self.tracked(claim)?;
        let waits = on_contention == OnContention::Queue;
        let standing = match tracked.standing() {
            Standing::Held { token } if self.confirm(&tracked, token).await? => {
                Standing::Held { token }
            }
            _ if waits => self.enter_queue(&tracked).await?,
            _ => return self.enter_now(&tracked).await,
        };
        Ok(Entered::new(standing, claim.lease))
    }

    /// No master keeps a queue, so that no number of claims ahead changes.
    async fn queued(&self, claim: &Claim) -> Result<Standing> {
        let Some(tracked) = self.claims.get(claim.id) else {
            return Ok(Standing::Gone);
        };
        match tracked.standing() {
            Standing::Queued { .. } => wait::wait_for_grant(self, &tracked).await,
            standing => Ok(standing),
        }
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        match self.claims.get(claim.id) {
            Some(tracked) => wait::wait_for_loss(self, &tracked, token).await,
            None => Ok(()),
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

        // A claim whose renewal failed is valid for as long as it was before, because nothing shortens
        // a validity. The other claims keep their replies.
        let leases = replies.into_iter();
        Ok(leases
            .map(|reply| reply.unwrap_or(Some(Duration::ZERO)))
            .collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let tracked = self.claims.close(claim.id);
        let was_there = self.leave_all(claim, tracked.as_ref()).await?;
        self.claims.forget(claim.id);
        Ok(was_there || tracked.is_some_and(|tracked| tracked.has_waited()))
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
                    .map(|(holder, token)| inspect::entry(self, holder, token));
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
        if !self.claims.is_first(tracked) {
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
                    self.masters.reach_quorum().await?;
                    *self.quorum_error.lock() = None;
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

    /// Returns the state of a claim that this store supports.
    fn tracked(&self, claim: &Claim) -> Result<Arc<TrackedClaim>> {
        if units(claim.share) != units(Share::MUTEX) {
            return Err(Error::unsupported(format!(
                "this store supports mutexes only, not {}",
                claim.share.kind()
            ))
            .help("use a mutex, or the stores redis: and file: for shares"));
        }
        if claim.lease > self.settings.longest_lease {
            return Err(Error::invalid(format!(
                "the longest lease on these masters is {:?}",
                self.settings.longest_lease
            ))
            .help(
                "use a shorter lease, or set a larger longest-lease= in the URLs of all clients",
            ));
        }

        let keys = self.format.keys(&claim.name)?;
        let master_locks = if self.format.remembers_last_token() {
            0
        } else {
            self.masters.all.len()
        };
        let votes = ClaimVotes::new(keys, master_locks, self.masters.micros());
        Ok(self.claims.begin(claim, votes))
    }

    /// Returns how long the masters keep a vote.
    ///
    /// It is longer than the holder's lease, because the masters' clocks may run faster.
    fn vote_life(&self, lease: Duration) -> Duration {
        if self.settings.has_several_servers() {
            lease.mul_f64(1.01) + Duration::from_millis(2)
        } else {
            lease
        }
    }

    /// Votes until the claim holds the lock, or another claim seems to hold it.
    async fn try_acquire(
        &self,
        tracked: &Arc<TrackedClaim>,
        mode: VoteMode,
    ) -> Result<AcquireOutcome> {
        let mut repeats = 0;
        loop {
            let token = self.proposal(tracked)?;
            let result = self.vote(tracked, token, mode).await;
            if result.outcome == TallyOutcome::Won {
                let token = Token::new(token).expect("a clock has started");
                self.claims.hold(tracked, token);
                tracked.request_decided();
                return Ok(AcquireOutcome::Won(token));
            }

            self.take_back(tracked, &result);
            let error = (!result.has_quorum()).then(|| result.no_quorum());
            // Other names may be refused for another reason, or not at all.
            *self.quorum_error.lock() = error.clone().filter(Error::is_unavailable);
            if let Some(error) = error {
                return Err(error);
            }
            if result.is_held() || repeats == REPEATS_MAX {
                return Ok(AcquireOutcome::Contended {
                    remaining: result.remaining,
                    holder: result.holder().cloned(),
                });
            }
            repeats += 1;
            if !result.is_stale() {
                tokio::time::sleep(split_pause(repeats)).await;
            }
        }
    }

    /// Returns whether a claim still holds the lock. If it does, its lease starts again.
    async fn confirm(&self, tracked: &Arc<TrackedClaim>, token: Token) -> Result<bool> {
        let result = self.vote(tracked, token.get(), VoteMode::Renew).await;
        match result.outcome {
            TallyOutcome::Won => Ok(true),
            TallyOutcome::Lost => {
                // The remaining votes would block other claims.
                self.take_back(tracked, &result);
                Ok(false)
            }
            TallyOutcome::Unknown => Err(result.not_renewed(|at| self.masters.all[at].url.clone())),
        }
    }

    /// Returns a token that is larger than every token that the claim has received or proposed: the
    /// time of the masters' clocks, or the successor of the highest token.
    ///
    /// These tokens may be ahead of the clocks by any amount: a clock that was ahead may have been
    /// corrected since.
    fn proposal(&self, tracked: &TrackedClaim) -> Result<u64> {
        let seen = tracked.highest_reply_token().max(tracked.highest_token());
        next_token(self.masters.micros(), seen, self.token_digits)
    }

    /// Requests the votes of all masters for a token.
    async fn vote(&self, tracked: &Arc<TrackedClaim>, token: u64, mode: VoteMode) -> RoundResult {
        let lease = tracked.claim.lease;
        let renewal = match mode {
            VoteMode::Renew => tracked.begin_renewal(),
            VoteMode::Acquire | VoteMode::AcquireOrNotify => 0,
        };
        let request = Arc::new(self.vote_request(tracked, token, mode, renewal));

        // The lease counts from before the request.
        let valid_until = BootInstant::now().saturating_add(lease);
        tracked.request_sent(token);
        let mut round = self.masters.round(|master, wait| {
            let tracked = Arc::clone(tracked);
            let request = Arc::clone(&request);
            async move {
                let vote = request_vote(&master, &request, wait, &tracked, valid_until).await;
                (master, vote)
            }
        });

        let limit = (lease / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let deadline = Instant::now() + limit;
        let tally = self.masters.tally(&mut round.requests, token, deadline);
        let result = tally.await;
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
            id: id_text(claim.id).to_string(),
            token,
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
        let safe_until = tracked.safe_until(self.masters.quorum());
        let is_valid = safe_until.is_some_and(|until| BootInstant::now() < until);
        let has_others = self.settings.has_several_servers();
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
        if !self.format.guarantees_tokens() {
            return String::new();
        }
        millis(lease + DAY).to_string()
    }

    /// Takes back the votes that masters may have given in a lost round.
    fn take_back(&self, tracked: &Arc<TrackedClaim>, result: &RoundResult) {
        let keys = tracked.details.keys.clone();
        let scope = LeaveScope::Quiet;
        let request = Arc::new(self.leave_request(&tracked.claim, keys, result.token, scope));
        let round = self.masters.round(|master, _| {
            let tracked = Some(Arc::clone(tracked));
            let request = Arc::clone(&request);
            let departures = Arc::clone(&self.departures[master.at]);
            let has_refused = result.refused_by.contains(&master.at);
            async move {
                // A master that refused has replied: no vote of this round can follow there.
                if !has_refused {
                    // Without a reply it is repeated. Any other error leaves the vote to its lease.
                    let _ = departures.leave(MasterDeparture { request, tracked }).await;
                }
            }
        });
        drop(round);
    }

    /// Leaves all masters. Returns whether a quorum of them had the claim, or may have had it: a
    /// slow master keeps a single vote for longer than a hold that was broken, or left before.
    async fn leave_all(&self, claim: &Claim, tracked: Option<&Arc<TrackedClaim>>) -> Result<bool> {
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

        let mut round = self.masters.round(|master, _| {
            let tracked = tracked.cloned();
            let request = Arc::clone(&request);
            let departures = Arc::clone(&self.departures[master.at]);
            async move {
                let left = departures.leave(MasterDeparture { request, tracked }).await;
                (master, left)
            }
        });

        let mut count = QuorumCount::of(self.masters.all.len());
        let mut left = LeaveCount::of(self.masters.all.len());
        while !(count.is_reached() && left.is_known()) {
            let Some((master, reply)) = round.requests.next().await else {
                break;
            };
            match reply {
                Ok(reply) => {
                    count.succeed();
                    left.count(reply != LeaveReply::NotHeld);
                    if reply == LeaveReply::HandedOver {
                        self.claims.give_head_start(&claim.name, HEAD_START);
                    }
                }
                Err(error) => {
                    count.fail(&master.url, error)?;
                    if count.is_impossible() {
                        count.result()?;
                    }
                }
            }
        }
        Ok(left.may_have_held())
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
            id: id_text(claim.id).to_string(),
            hexadecimal_id: claim.id.to_string(),
            highest_token: format!("{highest_token:019}"),
            client: self.client.to_string(),
            scope,
            counter_life: self.counter_life(claim.lease),
        }
    }
}

/// Returns the token of a moment, in microseconds, or the successor of the highest token that was
/// seen. Its last three digits are those of the client's number.
fn next_token(micros: u64, seen: u64, client: u64) -> Result<u64> {
    let digits = client % TOKEN_STEP;
    let token = micros * TOKEN_STEP + digits;
    if token > seen {
        return Ok(token);
    }
    if seen > TOKEN_MAX - 2 * TOKEN_STEP {
        return Err(Error::damaged(format!(
            "the store's last token for this name, {seen}, leaves no larger token"
        ))
        .help("find the program that wrote it, and delete the key; or use another name"));
    }
    Ok((seen / TOKEN_STEP + 1) * TOKEN_STEP + digits)
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

/// Returns a random pause after split votes, so that the rival claims do not collide again.
fn split_pause(splits: u32) -> Duration {
    let longest = 2_000 + 4_000 * u64::from(splits);
    Duration::from_micros(fastrand::u64(500..longest))
}
