//! All masters of a store: one request to each of them, until a quorum has decided.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use super::master::Master;
use super::quorum::{MasterVote, QuorumCount, RoundResult, quorum};
use crate::client::{no_reply, reply_timeout};
use leasehold_core::Result;
use leasehold_core::internal::background;

/// The masters of a store, in the order of its URL.
#[derive(Debug)]
pub(super) struct Masters {
    pub(super) all: Vec<Arc<Master>>,
    /// Drives the requests of callers on it; the background thread drives them if it is `None`.
    pub(super) runtime: Option<Handle>,
}

/// How long opening a store waits for the last masters once a quorum is connected.
const STRAGGLERS_MAX: Duration = Duration::from_millis(50);
/// How long opening a store waits for masters that were busy or cut off at first.
const SECOND_CHANCE: Duration = Duration::from_secs(2);
/// How long a ping may take.
const PING_MAX: Duration = Duration::from_millis(500);
/// How long the masters of a minority may take to reply after a quorum has replied.
const MINORITY_MAX: Duration = Duration::from_millis(250);

impl Masters {
    pub(super) fn quorum(&self) -> usize {
        quorum(self.all.len())
    }

    /// Returns the median of the masters' clocks. Neither a single master's nor a client's clock
    /// can raise the tokens. The store was opened with a quorum, whose clocks are known.
    pub(super) fn micros(&self) -> u64 {
        let known = self
            .all
            .iter()
            .filter(|master| master.quarantine.is_known());
        let mut clocks: Vec<u64> = known.map(|master| master.clock.micros()).collect();
        clocks.sort_unstable();

        clocks.get(clocks.len() / 2).copied().unwrap_or_default()
    }

    /// Waits until a quorum of masters is connected, and a moment longer for the others.
    ///
    /// A master that refuses fails the opening only if too few others remain. The links of masters
    /// that refuse or are silent continue to connect; once connected, their votes count.
    pub(super) async fn wait_for_quorum(&self) -> Result<()> {
        let mut connecting: FuturesUnordered<_> = self
            .all
            .iter()
            .map(|master| async move { (master, master.links.first().await) })
            .collect();
        let mut count = QuorumCount::of(self.all.len());
        let mut until = None;

        while let Some((master, connected)) = next_until(&mut connecting, until).await {
            match connected {
                Ok(()) => count.succeed(),
                // This is a mistake in the URL, and not the failure of a minority.
                Err(error) if master.quarantine.is_duplicate() => return Err(error),
                Err(error) => {
                    let reason = error.to_string();
                    count.fail(&master.url, error)?;
                    tracing::warn!(
                        server = master.url,
                        error = reason,
                        "opening the store without this master for now"
                    );
                }
            }
            if count.is_reached() {
                until.get_or_insert_with(|| Instant::now() + STRAGGLERS_MAX);
            }
        }

        tracing::debug!(?count, "masters");
        if count.is_reached() {
            return Ok(());
        }
        self.second_chance(count).await
    }

    /// Waits for masters that were busy or cut off for a moment.
    #[cold]
    async fn second_chance(&self, mut count: QuorumCount) -> Result<()> {
        let links = self.all.iter().map(|master| &master.links.background);
        let sessions = join_all(links.map(|link| link.session(SECOND_CHANCE))).await;
        let connected = sessions.iter().filter(|session| session.is_ok());
        count.restart(connected.count());

        count.result()
    }

    /// Starts one request to each master. `send` takes how long it waits for a connection.
    pub(super) fn round<F>(&self, send: impl Fn(Arc<Master>, Duration) -> F) -> MasterRound<F>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let connected = self.all.iter().filter(|master| master.session().is_ok());
        // A round waits for a connection only if the connected masters are not a quorum.
        let wait = if connected.count() >= self.quorum() {
            Duration::ZERO
        } else {
            reply_timeout(Duration::from_secs(2))
        };

        let is_on_caller_runtime = self.all[0].links.caller.is_on_caller_runtime();
        let masters = self.all.iter().map(Arc::clone);
        MasterRound {
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
        F: Future<Output = (Arc<Master>, Result<MasterVote>)>,
    {
        let mut result = RoundResult::begin(self.all.len(), token);
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
                result.time_out();
                break;
            };
            awaited.remove(&master.at);
            match reply {
                Ok(vote) => result.count(master.at, vote),
                Err(error) => result.fail(&master.url, error),
            }
        }
        result
    }

    /// Returns the masters to wait for. Silent ones are among them only if a quorum needs them.
    fn awaited(&self) -> BTreeSet<usize> {
        let all = 0..self.all.len();
        let responsive: BTreeSet<usize> = all
            .clone()
            .filter(|at| !self.all[*at].silent.load(Ordering::Relaxed))
            .collect();
        if responsive.len() >= self.quorum() {
            responsive
        } else {
            all.collect()
        }
    }

    fn mark_silent(&self, masters: &BTreeSet<usize>) {
        for at in masters {
            self.all[*at].silent.store(true, Ordering::Relaxed);
        }
    }

    /// Pings the masters until a quorum has replied.
    #[cold]
    pub(super) async fn reach_quorum(&self) -> Result<()> {
        let mut pings: FuturesUnordered<_> = self
            .all
            .iter()
            .map(|master| async move {
                let ping = async { master.session()?.0.ping().await };
                let reply = timeout(PING_MAX, ping).await;
                let reply = reply.unwrap_or_else(|_| Err(no_reply()));
                (master, reply)
            })
            .collect();

        let mut count = QuorumCount::of(self.all.len());
        while let Some((master, reply)) = pings.next().await {
            match reply {
                Ok(()) => count.succeed(),
                Err(error) => count.note_failure(&master.url, error),
            }
            if count.is_reached() {
                return Ok(());
            }
        }
        count.result()
    }

    /// Waits for the replies of the masters, and for those of a minority only briefly after a
    /// quorum has replied: a master that is down or silent must not delay the others.
    pub(super) async fn replies<T, F>(&self, requests: impl Iterator<Item = F>) -> Vec<Result<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let mut replies: Vec<_> = self.all.iter().map(|_| Err(no_reply())).collect();
        let numbered = requests.enumerate();
        let mut requests: FuturesUnordered<_> = numbered
            .map(|(at, request)| async move { (at, request.await) })
            .collect();

        let mut succeeded = 0;
        let mut wait_until = None;
        loop {
            let Some((at, reply)) = next_until(&mut requests, wait_until).await else {
                return replies;
            };

            succeeded += usize::from(reply.is_ok());
            replies[at] = reply;
            if succeeded == self.quorum() {
                wait_until = Some(Instant::now() + MINORITY_MAX);
            }
        }
    }

    /// Returns what the masters have replied, if they are a quorum.
    pub(super) fn of_quorum<T>(&self, replies: Vec<Result<T>>) -> Result<Vec<T>> {
        let mut count = QuorumCount::of(self.all.len());
        let mut successes = Vec::new();
        for (master, reply) in self.all.iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    count.succeed();
                    successes.push(reply);
                }
                Err(error) => count.fail(&master.url, error)?,
            }
        }
        count.result().map(|()| successes)
    }
}

async fn next_until<F: Future>(
    futures: &mut FuturesUnordered<F>,
    until: Option<Instant>,
) -> Option<F::Output> {
    match until {
        Some(until) => timeout_at(until, futures.next()).await.ok().flatten(),
        None => futures.next().await,
    }
}

/// Requests to several masters. When it is dropped, the requests in flight continue.
pub(super) struct MasterRound<F: Future + Send + 'static>
where
    F::Output: Send,
{
    pub(super) requests: FuturesUnordered<F>,
    /// `None` for the background thread.
    executor: Option<Handle>,
}

impl<F: Future + Send + 'static> Drop for MasterRound<F>
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
