//! What the masters know of locks, for inspection.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout, timeout_at};

use super::VotingStore;
use super::master::Master;
use super::quorum_count::QuorumCount;
use super::record::{Holder, Inspected};
use crate::client;
use crate::client::{READ_TIMEOUT, Scan, decode, reply_timeout};
use leasehold_core::store::{Standing, replies};
use leasehold_core::{Entry, Error, Name, Result, ServerStatus, Token};

/// The status of one master, and the claim that has its vote.
pub(super) struct Observation {
    pub(super) status: ServerStatus,
    holder: Option<Holder>,
}

impl<const MASTERS_MIN: usize> VotingStore<MASTERS_MIN> {
    pub(super) fn entry(&self, holder: &Holder, token: Token) -> Entry {
        let standing = Standing::Held { token };
        // A key that does not expire is reported with the shortest time.
        let ends = self.masters.len() == 1 && holder.remaining > Duration::from_millis(1);
        let mut entry = replies::entry(holder.id, holder.share, standing, holder.info.clone());
        entry.lease_left = ends.then_some(holder.remaining);
        entry
    }

    /// Returns the holder that has the votes of a quorum, and its token.
    pub(super) fn elected<'a>(
        &self,
        observations: &'a [Observation],
    ) -> Option<(&'a Holder, Token)> {
        let mut votes: BTreeMap<_, (usize, &Holder)> = BTreeMap::new();
        for holder in observations.iter().filter_map(|seen| seen.holder.as_ref()) {
            let vote = votes.entry((holder.token, holder.id));
            vote.or_insert((0, holder)).0 += 1;
        }

        let elected = votes.values().find(|(count, _)| *count >= self.quorum());
        let (_, holder) = elected?;
        Some((holder, Token::new(holder.token)?))
    }

    /// Inspects a lock on all masters.
    ///
    /// # Errors
    /// The reason why a quorum could not be inspected.
    pub(super) async fn observe(&self, key: &str) -> Result<Vec<Observation>> {
        let limit = reply_timeout(READ_TIMEOUT) / 4;
        let replies = self.masters.iter().map(|master| async move {
            let reply = timeout(limit, self.inspect_master(master, key)).await;
            reply.unwrap_or_else(|_| Err(Error::unavailable("the server does not reply")))
        });
        let replies = self.replies(replies).await;

        let observed = self.masters.iter().zip(&replies);
        let observations = observed
            .map(|(master, reply)| observation(master, reply))
            .collect();
        self.of_quorum(replies).map(|_| observations)
    }

    /// Waits for the replies of the masters, and for those of a minority only briefly after a
    /// quorum has replied: a master that is down or silent must not delay the others.
    async fn replies<T, F>(&self, requests: impl Iterator<Item = F>) -> Vec<Result<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let mut replies: Vec<_> = self
            .masters
            .iter()
            .map(|_| Err(Error::unavailable("the server does not reply")))
            .collect();
        let numbered = requests.enumerate();
        let mut requests: FuturesUnordered<_> = numbered
            .map(|(at, request)| async move { (at, request.await) })
            .collect();

        let mut succeeded = 0;
        let mut wait_until = None;
        loop {
            let next = match wait_until {
                Some(wait_until) => timeout_at(wait_until, requests.next()).await.ok().flatten(),
                None => requests.next().await,
            };
            let Some((at, reply)) = next else {
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
        let mut count = QuorumCount::of(self.masters.len());
        let mut successes = Vec::new();
        for (master, reply) in self.masters.iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    count.succeed();
                    successes.push(reply);
                }
                Err(error) => count.fail(&master.url, error)?,
            }
        }
        if count.is_reached() {
            return Ok(successes);
        }
        Err(count.error())
    }

    async fn inspect_master(&self, master: &Master, key: &str) -> Result<Inspected> {
        let (session, _) = master.session()?;
        let script = self.format.inspect_script();
        let reply = script.run(&session, &[key], &[]).await?;
        let (record, left_ms): (Vec<u8>, u64) = decode(reply)?;
        if record.is_empty() {
            return Ok(Inspected {
                last_token: 0,
                holder: None,
            });
        }

        let inspected = self.format.read(&record, Duration::from_millis(left_ms));
        inspected
            .ok_or_else(|| Error::damaged("the record of this lock was not written by leasehold"))
    }

    /// Lists the names with a record on each master.
    ///
    /// Only one of several masters may have the first names, so the list is cut when the votes are
    /// counted.
    pub(super) async fn list_on_masters(
        &self,
        pattern: &str,
        count_max: usize,
    ) -> Vec<Result<BTreeSet<Name>>> {
        let count_max = if self.masters.len() == 1 {
            count_max
        } else {
            usize::MAX
        };
        let scan = Scan {
            pattern,
            key_type: "string",
            script: self.format.list_script(),
            count_max,
        };
        let listings = self.masters.iter().map(|master| {
            let link = &master.links.background;
            client::list(link, scan, |key: &str| self.format.name_of(key))
        });
        self.replies(listings).await
    }
}

/// How long the masters of a minority may take to reply after a quorum has replied.
const MINORITY_MAX: Duration = Duration::from_millis(250);

fn observation(master: &Master, reply: &Result<Inspected>) -> Observation {
    let mut status = replies::server_status(master.url.clone());
    let inspected = match reply {
        Ok(inspected) => inspected,
        Err(error) => {
            status.error = Some(error.to_string());
            return Observation {
                status,
                holder: None,
            };
        }
    };

    if !master.quarantine.remaining().is_zero() {
        status.error = Some(master.quarantine.message());
    }
    status.last_token = Token::new(inspected.last_token);
    if let Some(holder) = &inspected.holder {
        status.holder = Token::new(holder.token).map(|token| (holder.id, token));
        status.remaining = holder.remaining;
    }
    Observation {
        status,
        holder: inspected.holder.clone(),
    }
}
