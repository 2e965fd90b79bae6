//! One question to all masters at once. The answer is there when a quorum has decided; what comes later is heard in the background.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use super::Redlock;
use super::claims::TrackedClaim;
use super::master::{Master, text};
use super::record::{Keys, VoteReply, WireFormat, mark_renewal};
use super::voting::{Tally, TallyOutcome, VoteOutcome, quorum};
use crate::runtime::background;
use crate::runtime::clock::BootInstant;
use crate::stores::redis_client::Handshake;
use crate::stores::redis_client::Session;
use crate::stores::redis_client::id_text;
use crate::stores::redis_client::{self, reply_timeout};
use crate::{Claim, Error, Result};

/// What the masters have answered to a proposal.
#[derive(Debug)]
pub(super) struct RoundResult {
    pub(super) token: u64,
    pub(super) tally: Tally,
    pub(super) outcome: TallyOutcome,
    /// Tokens that are held, one for each master that refused for it.
    holder_tokens: Vec<u64>,
    /// Masters that said no, a bit each: what is asked of them later finds nothing.
    refused_by: u32,
    /// The longest that what was held will be held, if it has an end.
    pub(super) remaining: Option<Duration>,
    pub(super) errors: Vec<String>,
    /// What no asking again mends, if so many say so that the others cannot decide.
    pub(super) fatal: Option<Error>,
}

/// What a proposal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteMode {
    /// To hold, now.
    Acquire,
    /// To hold, and to be told when the lock is free if it is not.
    AcquireOrNotify,
    /// To go on holding. A master that remembers gives the vote that it has not given yet, too.
    Renew,
}

/// How a claim leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseScope {
    /// It was not granted by enough, and nobody hears of it.
    Quiet,
    /// Others of this client still wait for the lock.
    KeepWaiters,
    /// Nobody of this client waits for it any more.
    AllClaims,
}

/// What leaving a master has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseReply {
    /// There was nothing to give back.
    NotHeld,
    /// The vote is free.
    Freed,
    /// It is, and somebody who waits has been told.
    HandedOver,
}

/// Questions to several masters. Those that are under way when it is dropped are carried on.
struct Round<F: Future + Send + 'static>
where
    F::Output: Send,
{
    requests: FuturesUnordered<F>,
    executor: Handle,
}

impl<F: Future + Send + 'static> Drop for Round<F>
where
    F::Output: Send,
{
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            let mut requests = std::mem::take(&mut self.requests);
            self.executor
                .spawn(async move { while requests.next().await.is_some() {} });
        }
    }
}

/// What is asked of each master.
struct VoteRequest {
    format: WireFormat,
    keys: Keys,
    id: String,
    arguments: Vec<String>,
}

impl Redlock {
    /// Asks all masters to vote for a token.
    pub(super) async fn vote(
        &self,
        tracked: &Arc<TrackedClaim>,
        token: u64,
        mode: VoteMode,
    ) -> RoundResult {
        let claim = &tracked.claim;
        let mut record = self.format.record(claim, token, &self.client);
        let renewal = if mode == VoteMode::Renew {
            tracked.begin_renewal()
        } else {
            0
        };
        // Of one master, a vote that is gone is the lock. And what is over by this client's own clock is given up.
        let is_trusted = tracked.votes_at(BootInstant::now()) >= quorum(self.masters.len());
        let gives_again = mode == VoteMode::Renew
            && self.format != WireFormat::Fenced
            && self.masters.len() > 1
            && is_trusted;
        if gives_again {
            mark_renewal(&mut record, renewal);
        }
        let request = Arc::new(VoteRequest {
            format: self.format,
            keys: tracked.keys.clone(),
            id: id_text(claim.id),
            arguments: vec![
                record,
                self.format.life(self.life(claim.lease)).to_string(),
                self.format.memory(claim.lease),
                if mode == VoteMode::AcquireOrNotify {
                    format!("{}{}", self.client, tracked.since)
                } else {
                    String::new()
                },
                match mode {
                    VoteMode::Renew if gives_again => "R".to_owned(),
                    VoteMode::Renew => "K".to_owned(),
                    VoteMode::Acquire | VoteMode::AcquireOrNotify => String::new(),
                },
            ],
        });
        let until = BootInstant::now().saturating_add(claim.lease);
        tracked.request_sent(token);
        let limit = (claim.lease / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let mut round = self.round(|at, on_caller_link, wait| {
            let (masters, claims) = (Arc::clone(&self.masters), Arc::clone(&self.claims));
            let (tracked, request) = (Arc::clone(tracked), Arc::clone(&request));
            async move {
                let master = &masters[at];
                let reply = vote(master, at, on_caller_link, wait, &tracked, &request).await;
                if let Ok((reply, counts)) = &reply {
                    claims.saw_token(&tracked.claim.name, reply.last_token);
                    tracked.saw(reply.last_token);
                    if reply.outcome == VoteOutcome::Granted && *counts {
                        tracked.granted_by(at, token, until);
                    }
                }
                (at, reply)
            }
        });
        let result = self
            .tally(&mut round.requests, token, Instant::now() + limit)
            .await;
        // Of a claim that waits, one that was won is over when the claim holds.
        if result.outcome == TallyOutcome::Lost
            || mode == VoteMode::Renew && result.outcome == TallyOutcome::Won
        {
            tracked.request_decided();
        }
        if result.outcome == TallyOutcome::Won {
            tracked.won_renewal(renewal);
            tracing::trace!(
                name = claim.name.as_str(),
                token,
                votes = result.tally.granted,
                "granted"
            );
        }
        result
    }

    async fn tally<F>(
        &self,
        requests: &mut FuturesUnordered<F>,
        token: u64,
        until: Instant,
    ) -> RoundResult
    where
        F: Future<Output = (usize, Result<(VoteReply, bool)>)>,
    {
        let (mut tally, mut holder_tokens, mut refused_by) =
            (Tally::of(self.masters.len()), Vec::new(), 0);
        let (mut remaining, mut errors, mut refused): (Option<Duration>, _, _) =
            (None, Vec::new(), Vec::new());
        let mut awaited = self.awaited();
        let outcome = loop {
            if let Some(outcome) = tally.outcome() {
                break outcome;
            }
            let reply = if awaited == 0 {
                Ok(None)
            } else {
                timeout_at(until, requests.next()).await
            };
            let Ok(Some((at, reply))) = reply else {
                self.mark_silent(awaited);
                tally.unknown = self.masters.len() - tally.granted - tally.refused;
                errors.push("others do not answer in time".to_owned());
                break TallyOutcome::Unknown;
            };
            awaited &= !(1 << at);
            match reply {
                Ok((
                    VoteReply {
                        outcome: VoteOutcome::Granted,
                        ..
                    },
                    true,
                )) => tally.granted += 1,
                // It is given again to a claim that had lost it, and taken back if that has lost others.
                Ok((
                    VoteReply {
                        outcome: VoteOutcome::Granted,
                        ..
                    },
                    false,
                )) if self.format != WireFormat::Fenced => {
                    tally.refused += 1;
                }
                Ok((
                    VoteReply {
                        outcome: VoteOutcome::Granted,
                        ..
                    },
                    false,
                )) => {
                    tally.unknown += 1;
                    errors.push(self.quarantine_message(at));
                }
                Ok((reply, _)) => {
                    tally.refused += 1;
                    refused_by |= 1 << at;
                    if let VoteOutcome::Held(by) = reply.outcome {
                        holder_tokens.push(by);
                        remaining = remaining
                            .max(Some(reply.remaining).filter(|remaining| !remaining.is_zero()));
                    }
                }
                Err(error) => {
                    tally.unknown += 1;
                    errors.push(format!("{}: {error}", self.masters[at].url));
                    refused.extend(Some(error).filter(|error| !error.is_unavailable()));
                }
            }
        };
        // A minority decides nothing, whatever is wrong with it: the others may answer the next time.
        let is_hopeless = self.no_quorum_without(refused.len());
        let fatal = refused.into_iter().next().filter(|_| is_hopeless);
        RoundResult {
            token,
            tally,
            outcome,
            holder_tokens,
            refused_by,
            remaining,
            errors,
            fatal,
        }
    }

    /// The masters to wait for, a bit each: not those that have been silent of late, unless it takes them to decide.
    fn awaited(&self) -> u32 {
        let all = (1 << self.masters.len()) - 1;
        let responsive = self
            .masters
            .iter()
            .zip(0..)
            .filter(|(master, _)| !master.silent.load(Ordering::Relaxed));
        let responsive: u32 = responsive.map(|(_, at)| 1 << at).sum();
        if responsive.count_ones() as usize >= quorum(self.masters.len()) {
            responsive
        } else {
            all
        }
    }

    fn mark_silent(&self, masters: u32) {
        for (master, at) in self.masters.iter().zip(0..) {
            if masters & (1 << at) != 0 {
                master.silent.store(true, Ordering::Relaxed);
            }
        }
    }

    fn quarantine_message(&self, at: usize) -> String {
        let Master {
            url, quarantine, ..
        } = &self.masters[at];
        let remaining = quarantine.remaining();
        format!(
            "{url} was started or emptied not long ago, and its vote counts in {:.1} s",
            remaining.as_secs_f64()
        )
    }

    /// Gives back what a round that was not won may have been granted.
    pub(super) fn take_back(&self, tracked: &Arc<TrackedClaim>, result: &RoundResult) {
        let request = Arc::new(self.release_request(
            &tracked.claim,
            Some(tracked),
            result.token,
            ReleaseScope::Quiet,
        ));
        let round = self.round(|at, on_caller_link, _| {
            let (masters, tracked, request) = (
                Arc::clone(&self.masters),
                Arc::clone(tracked),
                Arc::clone(&request),
            );
            let refused = result.refused_by & (1 << at) != 0;
            async move {
                // A refusal is an answer: nothing of this claim will come there any more.
                if !refused {
                    let _master_lock = lock_master(Some(&tracked), at).await;
                    // What cannot be taken back ends with its lease.
                    let _ = leave(&masters[at], on_caller_link, &request).await;
                }
            }
        });
        drop(round);
    }

    /// Leaves all masters; says whether any had the claim.
    pub(super) async fn leave_all(
        &self,
        claim: &Claim,
        tracked: Option<&Arc<TrackedClaim>>,
    ) -> Result<bool> {
        let keys = self.format.keys(&claim.name)?;
        let has_waiters = self.claims.has_waiters(&keys.lock);
        let scope = if has_waiters {
            ReleaseScope::KeepWaiters
        } else {
            ReleaseScope::AllClaims
        };
        let request = Arc::new(self.release_request(
            claim,
            tracked,
            tracked.map_or(0, |tracked| tracked.highest_token()),
            scope,
        ));
        let mut round = self.round(|at, on_caller_link, _| {
            let (masters, tracked, request) = (
                Arc::clone(&self.masters),
                tracked.cloned(),
                Arc::clone(&request),
            );
            async move {
                let _master_lock = lock_master(tracked.as_ref(), at).await;
                (at, leave(&masters[at], on_caller_link, &request).await)
            }
        });
        let (all, quorum) = (self.masters.len(), quorum(self.masters.len()));
        let (mut done, mut was_there, mut errors, mut refused) = (0, false, Vec::new(), 0);
        while done < quorum {
            match round.requests.next().await {
                Some((_, Ok(reply))) => {
                    (done, was_there) = (done + 1, was_there || reply != ReleaseReply::NotHeld);
                    if reply == ReleaseReply::HandedOver {
                        self.claims.handed_over(&keys.lock);
                    }
                }
                Some((at, Err(error))) => {
                    errors.push(format!("{}: {error}", self.masters[at].url));
                    refused += usize::from(!error.is_unavailable());
                    if refused > all - quorum {
                        return Err(error);
                    }
                    if errors.len() > all - quorum {
                        return Err(self.too_few(done, &errors));
                    }
                }
                None => unreachable!("all have been counted"),
            }
        }
        Ok(was_there)
    }

    fn release_request(
        &self,
        claim: &Claim,
        tracked: Option<&Arc<TrackedClaim>>,
        highest: u64,
        scope: ReleaseScope,
    ) -> VoteRequest {
        let keys = tracked.map(|tracked| tracked.keys.clone());
        let keys = keys.unwrap_or_else(|| {
            self.format
                .keys(&claim.name)
                .expect("it was asked for before")
        });
        let client = self.client.to_string();
        let departing_client = if scope == ReleaseScope::AllClaims {
            client.clone()
        } else {
            String::new()
        };
        let quietly = if scope == ReleaseScope::Quiet {
            "Q".to_owned()
        } else {
            String::new()
        };
        let mut arguments = vec![
            id_text(claim.id),
            format!("{highest:019}"),
            client,
            departing_client,
            quietly,
        ];
        if self.format != WireFormat::Fenced {
            arguments.extend([claim.id.to_string(), self.format.memory(claim.lease)]);
        }
        VoteRequest {
            format: self.format,
            keys,
            id: id_text(claim.id),
            arguments,
        }
    }

    /// One question to each master; `send` is given its number, the link to use, and how long to wait for a connection.
    fn round<F>(&self, send: impl Fn(usize, bool, Duration) -> F) -> Round<F>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let on_caller_link = self.masters[0].caller_link.is_on_caller_runtime();
        let there = self
            .masters
            .iter()
            .filter(|master| master.session(on_caller_link).is_ok())
            .count();
        // A master that is not there is not waited for, unless it takes it to decide.
        let wait = if there >= quorum(self.masters.len()) {
            Duration::ZERO
        } else {
            reply_timeout(Duration::from_secs(2))
        };
        let executor = self
            .runtime
            .clone()
            .filter(|_| on_caller_link)
            .unwrap_or_else(|| background::handle().clone());
        let requests = (0..self.masters.len())
            .map(|at| send(at, on_caller_link, wait))
            .collect();
        Round { requests, executor }
    }
}

impl RoundResult {
    /// Whether somebody has it, or may.
    pub(super) fn is_held(&self, masters: usize) -> bool {
        let most = self
            .holder_tokens
            .iter()
            .map(|token| {
                self.holder_tokens
                    .iter()
                    .filter(|other| *other == token)
                    .count()
            })
            .max();
        let open = masters - self.tally.granted - self.tally.refused;
        most.is_some_and(|most| most + open >= quorum(masters))
    }

    /// Whether it was refused for the token alone.
    pub(super) fn is_stale(&self) -> bool {
        self.holder_tokens.is_empty() && self.tally.refused > 0
    }
}

async fn lock_master(
    tracked: Option<&Arc<TrackedClaim>>,
    at: usize,
) -> Option<OwnedMutexGuard<()>> {
    let lock = tracked?.master_locks.get(at)?;
    Some(Arc::clone(lock).lock_owned().await)
}

async fn session(
    master: &Master,
    on_caller_link: bool,
    wait: Duration,
) -> Result<(Arc<Session>, Handshake)> {
    match master.session(on_caller_link) {
        Err(_) if !wait.is_zero() => {
            master.link(on_caller_link).session(wait).await?;
            master.session(on_caller_link)
        }
        found => found,
    }
}

/// A master's answer, and whether it counts.
async fn vote(
    master: &Master,
    at: usize,
    on_caller_link: bool,
    wait: Duration,
    tracked: &Arc<TrackedClaim>,
    request: &VoteRequest,
) -> Result<(VoteReply, bool)> {
    let _master_lock = lock_master(Some(tracked), at).await;
    let (session, incarnation) = session(master, on_caller_link, wait).await?;
    let VoteRequest {
        format,
        keys,
        id,
        arguments,
    } = request;
    let [record, life, memory, inbox, keep] = &arguments[..] else {
        unreachable!("a vote has five arguments")
    };
    let keep = if keep == "R" && tracked.is_broken_on(at) {
        "K"
    } else {
        &**keep
    };
    let (second, third) = match format {
        WireFormat::Fenced => (
            super::record::INCARNATION_KEY,
            incarnation.as_deref().unwrap_or_default(),
        ),
        WireFormat::Plain { .. } => (&*keys.tokens, &**memory),
    };
    let arguments = [&**record, life, third, inbox, keep];
    let reply = format
        .vote()
        .run(&session, &[&keys.lock, second, &keys.waits], &arguments)
        .await?;
    let Some(reply) = VoteReply::parse(&text(reply)?, id) else {
        session.close();
        return Err(redis_client::protocol_error());
    };
    master.silent.store(false, Ordering::Relaxed);
    let counts = match format {
        WireFormat::Fenced => master
            .quarantine
            .counts(&incarnation, reply.has_incarnation),
        WireFormat::Plain { .. } => tracked.renewal_counts(at, reply.renewal),
    };
    if !reply.has_incarnation {
        // It has been emptied: whoever greets it anew marks it anew.
        master.reconnect();
    }
    Ok((reply, counts))
}

async fn leave(
    master: &Master,
    on_caller_link: bool,
    request: &VoteRequest,
) -> Result<ReleaseReply> {
    let (session, _) = session(master, on_caller_link, Duration::ZERO).await?;
    let VoteRequest {
        format,
        keys,
        id,
        arguments,
    } = request;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let keys = [&*keys.lock, &*keys.waits, &*keys.tokens];
    let keys = if *format == WireFormat::Fenced {
        &keys[..2]
    } else {
        &keys[..]
    };
    let reply = text(format.leave().run(&session, keys, &arguments).await?)?;
    match reply.split_at_checked(1) {
        Some(("0", of)) if of == id => Ok(ReleaseReply::NotHeld),
        Some(("1", of)) if of == id => Ok(ReleaseReply::Freed),
        Some(("2", of)) if of == id => Ok(ReleaseReply::HandedOver),
        _ => {
            session.close();
            Err(Error::unavailable(
                "the answer belongs to another question; the connection was closed",
            ))
        }
    }
}
