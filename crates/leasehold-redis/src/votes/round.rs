//! One request to all masters at once.
//!
//! A round ends when a quorum has decided. Later replies are read in the background.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::VotingStore;
use super::master::Master;
use super::quorum_count::MissingVote;
use super::record::Holder;
use super::requests::{MasterReply, MasterVote};
use super::voting::{Tally, TallyOutcome, quorum};
use crate::client::reply_timeout;
use leasehold_core::internal::background;
use leasehold_core::{Error, Result};

/// Requests to several masters. When it is dropped, the requests in flight continue.
pub(super) struct Round<F: Future + Send + 'static>
where
    F::Output: Send,
{
    pub(super) requests: FuturesUnordered<F>,
    /// `None` for the background thread.
    executor: Option<Handle>,
}

impl<F: Future + Send + 'static> Drop for Round<F>
where
    F::Output: Send,
{
    fn drop(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let mut requests = std::mem::take(&mut self.requests);
        let ending = async move { while requests.next().await.is_some() {} };
        background::spawn_on(self.executor.as_ref(), ending);
    }
}

impl<const MASTERS_MIN: usize> VotingStore<MASTERS_MIN> {
    /// Starts one request to each master. `send` takes how long it waits for a connection.
    pub(super) fn round<F>(&self, send: impl Fn(Arc<Master>, Duration) -> F) -> Round<F>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let connected = self
            .masters
            .iter()
            .filter(|master| master.session().is_ok());
        // A round waits for a connection only if the connected masters are not a quorum.
        let wait = if connected.count() >= self.quorum() {
            Duration::ZERO
        } else {
            reply_timeout(Duration::from_secs(2))
        };

        let is_on_caller_runtime = self.masters[0].links.caller.is_on_caller_runtime();
        let masters = self.masters.iter().map(Arc::clone);
        Round {
            requests: masters.map(|master| send(master, wait)).collect(),
            executor: self.runtime.clone().filter(|_| is_on_caller_runtime),
        }
    }

    /// Counts the replies to a proposal until they decide, or until the deadline.
    pub(super) async fn tally<F>(
        &self,
        requests: &mut FuturesUnordered<F>,
        token: u64,
        deadline: Instant,
    ) -> RoundResult
    where
        F: Future<Output = (Arc<Master>, Result<MasterReply>)>,
    {
        let mut result = RoundResult::begin(self.masters.len(), token);
        let mut awaited = self.awaited();
        loop {
            if let Some(outcome) = result.tally.outcome() {
                result.outcome = outcome;
                break;
            }

            let next = if awaited.is_empty() {
                None
            } else {
                timeout_at(deadline, requests.next()).await.ok().flatten()
            };
            let Some((master, reply)) = next else {
                self.mark_silent(&awaited);
                result.time_out(self.masters.len());
                break;
            };
            awaited.remove(&master.at);
            match reply {
                Ok(reply) => result.count(&master, reply.vote),
                Err(error) => result.fail(&master.url, error),
            }
        }
        // A minority never decides. The other masters may reply to the next round.
        if !self.no_quorum_without(result.refusals.len()) {
            result.refusals.clear();
        }
        result
    }

    /// Returns the masters to wait for. Silent ones are among them only if a quorum needs them.
    fn awaited(&self) -> BTreeSet<usize> {
        let all = 0..self.masters.len();
        let responsive: BTreeSet<usize> = all
            .clone()
            .filter(|at| !self.masters[*at].silent.load(Ordering::Relaxed))
            .collect();
        if responsive.len() >= self.quorum() {
            responsive
        } else {
            all.collect()
        }
    }

    fn mark_silent(&self, masters: &BTreeSet<usize>) {
        for at in masters {
            self.masters[*at].silent.store(true, Ordering::Relaxed);
        }
    }
}

/// What the masters have replied to a proposal.
#[derive(Debug)]
pub(super) struct RoundResult {
    pub(super) token: u64,
    pub(super) tally: Tally,
    pub(super) outcome: TallyOutcome,
    /// The tokens of other holders, one for each master that refused because of one.
    holder_tokens: Vec<u64>,
    /// The holders that these masters have named.
    holders: Vec<Holder>,
    /// The masters that refused. The claim has no vote there to take back.
    pub(super) refused_by: BTreeSet<usize>,
    /// The longest remaining lease of another holder, if it has an end.
    pub(super) remaining: Option<Duration>,
    pub(super) errors: Vec<MissingVote>,
    /// The errors that a retry cannot fix, if too few other masters remain for a quorum.
    pub(super) refusals: Vec<Error>,
}

impl RoundResult {
    fn begin(masters: usize, token: u64) -> Self {
        Self {
            token,
            tally: Tally::of(masters),
            outcome: TallyOutcome::Unknown,
            holder_tokens: Vec::new(),
            holders: Vec::new(),
            refused_by: BTreeSet::new(),
            remaining: None,
            errors: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Whether another claim has the lock, or may have it.
    pub(super) fn is_held(&self, masters: usize) -> bool {
        let tokens = &self.holder_tokens;
        let votes_of = |token: &u64| tokens.iter().filter(|other| *other == token).count();
        let most = tokens.iter().map(votes_of).max();
        let open = masters - self.tally.granted - self.tally.refused;
        most.is_some_and(|most| most + open >= quorum(masters))
    }

    /// Returns the holder that a quorum of the masters has named.
    pub(super) fn holder(&self, masters: usize) -> Option<&Holder> {
        let has_quorum = |holder: &&Holder| {
            let same = |other: &&Holder| other.id == holder.id;
            self.holders.iter().filter(same).count() >= quorum(masters)
        };
        self.holders.iter().find(has_quorum)
    }

    /// Whether the masters refused only because of the token.
    pub(super) fn is_stale(&self) -> bool {
        self.holder_tokens.is_empty() && self.tally.refused > 0
    }

    fn count(&mut self, master: &Master, vote: MasterVote) {
        match vote {
            MasterVote::Granted => self.tally.granted += 1,
            MasterVote::Quarantined => {
                self.tally.unknown += 1;
                let message = format!("{} was {}", master.url, master.quarantine.message());
                self.errors.push(MissingVote::because(message));
            }
            // The vote is taken back if the claim loses the round.
            MasterVote::Restored => self.tally.refused += 1,
            MasterVote::HeldByOther {
                token,
                remaining,
                holder,
            } => {
                self.refuse(master.at);
                self.holder_tokens.push(token);
                self.holders.extend(holder.map(|holder| *holder));
                let remaining = Some(remaining).filter(|remaining| !remaining.is_zero());
                self.remaining = self.remaining.max(remaining);
            }
            MasterVote::Stale => self.refuse(master.at),
        }
    }

    fn refuse(&mut self, at: usize) {
        self.tally.refused += 1;
        self.refused_by.insert(at);
    }

    fn fail(&mut self, url: &str, error: Error) {
        self.tally.unknown += 1;
        self.errors.push(MissingVote::of(url, &error));
        if !error.is_unavailable() {
            self.refusals.push(error);
        }
    }

    fn time_out(&mut self, masters: usize) {
        self.tally.unknown = masters - self.tally.granted - self.tally.refused;
        if masters > 1 {
            let error = "the other masters did not reply in time";
            self.errors.push(MissingVote::because(error));
        }
    }
}
