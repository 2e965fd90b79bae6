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

use super::super::link::Greeting;
use super::super::record::id_text;
use super::super::session::Session;
use super::super::{patience, trouble};
use super::Redlock;
use super::master::{Master, text};
use super::pages::Page;
use super::record::{Answer, Format, Keys, mark_renewal};
use super::rule::{Count, Outcome, Verdict, quorum};
use crate::clock::Moment;
use crate::{Claim, Error, Result, background};

/// What the masters have answered to a proposal.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) token: u64,
    pub(super) count: Count,
    pub(super) outcome: Outcome,
    /// Tokens that are held, one for each master that refused for it.
    held: Vec<u64>,
    /// Masters that said no, a bit each: what is asked of them later finds nothing.
    refusals: u32,
    /// The longest that what was held will be held, if it has an end.
    pub(super) left: Option<Duration>,
    pub(super) troubles: Vec<String>,
    /// What no asking again mends, if so many say so that the others cannot decide.
    pub(super) refusal: Option<Error>,
}

/// What a proposal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// To hold, now.
    Take,
    /// To hold, and to be told when the lock is free if it is not.
    TakeOrHear,
    /// To go on holding. A master that remembers gives the vote that it has not given yet, too.
    Keep,
}

/// How a claim leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// It was not granted by enough, and nobody hears of it.
    Quietly,
    /// Others of this client still wait for the lock.
    OthersWait,
    /// Nobody of this client waits for it any more.
    ForAll,
}

/// What leaving a master has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// There was nothing to give back.
    Nothing,
    /// The vote is free.
    Free,
    /// It is, and somebody who waits has been told.
    ToAnother,
}

/// Questions to several masters. Those that are under way when it is dropped are carried on.
struct Round<F: Future + Send + 'static>
where
    F::Output: Send,
{
    asks: FuturesUnordered<F>,
    carrier: Handle,
}

impl<F: Future + Send + 'static> Drop for Round<F>
where
    F::Output: Send,
{
    fn drop(&mut self) {
        if !self.asks.is_empty() {
            let mut asks = std::mem::take(&mut self.asks);
            self.carrier.spawn(async move { while asks.next().await.is_some() {} });
        }
    }
}

/// What is asked of each master.
struct Question {
    format: Format,
    keys: Keys,
    id: String,
    arguments: Vec<String>,
}

impl Redlock {
    /// Asks all masters to vote for a token.
    pub(super) async fn vote(&self, page: &Arc<Page>, token: u64, aim: Aim) -> Ballot {
        let claim = &page.claim;
        let mut record = self.format.record(claim, token, &self.client);
        let renewal = if aim == Aim::Keep { page.begin_renewal() } else { 0 };
        // Of one master, a vote that is gone is the lock. And what is over by this client's own clock is given up.
        let is_trusted = page.votes_at(Moment::now()) >= quorum(self.masters.len());
        let gives_again = aim == Aim::Keep && self.format != Format::Fenced && self.masters.len() > 1 && is_trusted;
        if gives_again {
            mark_renewal(&mut record, renewal);
        }
        let question = Arc::new(Question {
            format: self.format,
            keys: page.keys.clone(),
            id: id_text(claim.id),
            arguments: vec![
                record,
                self.format.life(self.life(claim.lease)).to_string(),
                self.format.memory(claim.lease),
                if aim == Aim::TakeOrHear { format!("{}{}", self.client, page.since) } else { String::new() },
                match aim {
                    Aim::Keep if gives_again => "R".to_owned(),
                    Aim::Keep => "K".to_owned(),
                    Aim::Take | Aim::TakeOrHear => String::new(),
                },
            ],
        });
        let until = Moment::now().after(claim.lease);
        page.asks(token);
        let limit = (claim.lease / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let mut round = self.round(|at, near, wait| {
            let (masters, pages) = (Arc::clone(&self.masters), Arc::clone(&self.pages));
            let (page, question) = (Arc::clone(page), Arc::clone(&question));
            async move {
                let master = &masters[at];
                let answer = vote(master, at, near, wait, &page, &question).await;
                if let Ok((answer, counts)) = &answer {
                    pages.saw(&page.claim.name, answer.last);
                    page.saw(answer.last);
                    if answer.verdict == Verdict::Granted && *counts {
                        page.granted_by(at, token, until);
                    }
                }
                (at, answer)
            }
        });
        let ballot = self.count(&mut round.asks, token, Instant::now() + limit).await;
        // Of a claim that waits, one that was won is over when the claim holds.
        if ballot.outcome == Outcome::Lost || aim == Aim::Keep && ballot.outcome == Outcome::Won {
            page.asked();
        }
        if ballot.outcome == Outcome::Won {
            page.won_renewal(renewal);
            tracing::trace!(name = claim.name.as_str(), token, votes = ballot.count.granted, "granted");
        }
        ballot
    }

    async fn count<F>(&self, asks: &mut FuturesUnordered<F>, token: u64, until: Instant) -> Ballot
    where
        F: Future<Output = (usize, Result<(Answer, bool)>)>,
    {
        let (mut count, mut held, mut refusals) = (Count::of(self.masters.len()), Vec::new(), 0);
        let (mut left, mut troubles, mut refused): (Option<Duration>, _, _) = (None, Vec::new(), Vec::new());
        let mut awaited = self.awaited();
        let outcome = loop {
            if let Some(outcome) = count.outcome() {
                break outcome;
            }
            let answer = if awaited == 0 { Ok(None) } else { timeout_at(until, asks.next()).await };
            let Ok(Some((at, answer))) = answer else {
                self.fall_silent(awaited);
                count.unknown = self.masters.len() - count.granted - count.refused;
                troubles.push("others do not answer in time".to_owned());
                break Outcome::Unknown;
            };
            awaited &= !(1 << at);
            match answer {
                Ok((Answer { verdict: Verdict::Granted, .. }, true)) => count.granted += 1,
                // It is given again to a claim that had lost it, and taken back if that has lost others.
                Ok((Answer { verdict: Verdict::Granted, .. }, false)) if self.format != Format::Fenced => {
                    count.refused += 1;
                }
                Ok((Answer { verdict: Verdict::Granted, .. }, false)) => {
                    count.unknown += 1;
                    troubles.push(self.disbelief(at));
                }
                Ok((answer, _)) => {
                    count.refused += 1;
                    refusals |= 1 << at;
                    if let Verdict::Held(by) = answer.verdict {
                        held.push(by);
                        left = left.max(Some(answer.left).filter(|left| !left.is_zero()));
                    }
                }
                Err(error) => {
                    count.unknown += 1;
                    troubles.push(format!("{}: {error}", self.masters[at].place));
                    refused.extend(Some(error).filter(|error| !error.is_unavailable()));
                }
            }
        };
        // A minority decides nothing, whatever is wrong with it: the others may answer the next time.
        let is_hopeless = self.no_quorum_without(refused.len());
        let refusal = refused.into_iter().next().filter(|_| is_hopeless);
        Ballot { token, count, outcome, held, refusals, left, troubles, refusal }
    }

    /// The masters to wait for, a bit each: not those that have been silent of late, unless it takes them to decide.
    fn awaited(&self) -> u32 {
        let all = (1 << self.masters.len()) - 1;
        let lively = self.masters.iter().zip(0..).filter(|(master, _)| !master.silent.load(Ordering::Relaxed));
        let lively: u32 = lively.map(|(_, at)| 1 << at).sum();
        if lively.count_ones() as usize >= quorum(self.masters.len()) { lively } else { all }
    }

    fn fall_silent(&self, masters: u32) {
        for (master, at) in self.masters.iter().zip(0..) {
            if masters & (1 << at) != 0 {
                master.silent.store(true, Ordering::Relaxed);
            }
        }
    }

    fn disbelief(&self, at: usize) -> String {
        let Master { place, trust, .. } = &self.masters[at];
        let left = trust.quarantine();
        format!("{place} was started or emptied not long ago, and its vote counts in {:.1} s", left.as_secs_f64())
    }

    /// Gives back what a round that was not won may have been granted.
    pub(super) fn take_back(&self, page: &Arc<Page>, ballot: &Ballot) {
        let question = Arc::new(self.leaving(&page.claim, Some(page), ballot.token, Leaving::Quietly));
        let round = self.round(|at, near, _| {
            let (masters, page, question) = (Arc::clone(&self.masters), Arc::clone(page), Arc::clone(&question));
            let refused = ballot.refusals & (1 << at) != 0;
            async move {
                // A refusal is an answer: nothing of this claim will come there any more.
                if !refused {
                    let _alone = alone(Some(&page), at).await;
                    // What cannot be taken back ends with its lease.
                    let _ = leave(&masters[at], near, &question).await;
                }
            }
        });
        drop(round);
    }

    /// Leaves all masters; says whether any had the claim.
    pub(super) async fn leave_all(&self, claim: &Claim, page: Option<&Arc<Page>>) -> Result<bool> {
        let keys = self.format.keys(&claim.name)?;
        let stays = self.pages.is_wanted(&keys.lock);
        let leaving = if stays { Leaving::OthersWait } else { Leaving::ForAll };
        let question = Arc::new(self.leaving(claim, page, page.map_or(0, |page| page.highest()), leaving));
        let mut round = self.round(|at, near, _| {
            let (masters, page, question) = (Arc::clone(&self.masters), page.cloned(), Arc::clone(&question));
            async move {
                let _alone = alone(page.as_ref(), at).await;
                (at, leave(&masters[at], near, &question).await)
            }
        });
        let (all, quorum) = (self.masters.len(), quorum(self.masters.len()));
        let (mut done, mut was_there, mut troubles, mut refused) = (0, false, Vec::new(), 0);
        while done < quorum {
            match round.asks.next().await {
                Some((_, Ok(left))) => {
                    (done, was_there) = (done + 1, was_there || left != Left::Nothing);
                    if left == Left::ToAnother {
                        self.pages.handed_over(&keys.lock);
                    }
                }
                Some((at, Err(error))) => {
                    troubles.push(format!("{}: {error}", self.masters[at].place));
                    refused += usize::from(!error.is_unavailable());
                    if refused > all - quorum {
                        return Err(error);
                    }
                    if troubles.len() > all - quorum {
                        return Err(self.too_few(done, &troubles));
                    }
                }
                None => unreachable!("all have been counted"),
            }
        }
        Ok(was_there)
    }

    fn leaving(&self, claim: &Claim, page: Option<&Arc<Page>>, highest: u64, leaving: Leaving) -> Question {
        let keys = page.map(|page| page.keys.clone());
        let keys = keys.unwrap_or_else(|| self.format.keys(&claim.name).expect("it was asked for before"));
        let client = self.client.to_string();
        let waits_no_more = if leaving == Leaving::ForAll { client.clone() } else { String::new() };
        let quietly = if leaving == Leaving::Quietly { "Q".to_owned() } else { String::new() };
        let mut arguments = vec![id_text(claim.id), format!("{highest:019}"), client, waits_no_more, quietly];
        if self.format != Format::Fenced {
            arguments.extend([claim.id.to_string(), self.format.memory(claim.lease)]);
        }
        Question { format: self.format, keys, id: id_text(claim.id), arguments }
    }

    /// One question to each master; `ask` is given its number, the link to use, and how long to wait for a connection.
    fn round<F>(&self, ask: impl Fn(usize, bool, Duration) -> F) -> Round<F>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let near = self.masters[0].near.is_home();
        let there = self.masters.iter().filter(|master| master.session(near).is_ok()).count();
        // A master that is not there is not waited for, unless it takes it to decide.
        let wait = if there >= quorum(self.masters.len()) { Duration::ZERO } else { patience(Duration::from_secs(2)) };
        let carrier = self.home.clone().filter(|_| near).unwrap_or_else(|| background::handle().clone());
        let asks = (0..self.masters.len()).map(|at| ask(at, near, wait)).collect();
        Round { asks, carrier }
    }
}

impl Ballot {
    /// Whether somebody has it, or may.
    pub(super) fn is_held(&self, masters: usize) -> bool {
        let most = self.held.iter().map(|token| self.held.iter().filter(|other| *other == token).count()).max();
        let open = masters - self.count.granted - self.count.refused;
        most.is_some_and(|most| most + open >= quorum(masters))
    }

    /// Whether it was refused for the token alone.
    pub(super) fn is_low(&self) -> bool {
        self.held.is_empty() && self.count.refused > 0
    }
}

async fn alone(page: Option<&Arc<Page>>, at: usize) -> Option<OwnedMutexGuard<()>> {
    let lane = page?.lanes.get(at)?;
    Some(Arc::clone(lane).lock_owned().await)
}

async fn session(master: &Master, near: bool, wait: Duration) -> Result<(Arc<Session>, Greeting)> {
    match master.session(near) {
        Err(_) if !wait.is_zero() => {
            master.link(near).session(wait).await?;
            master.session(near)
        }
        found => found,
    }
}

/// A master's answer, and whether it counts.
async fn vote(
    master: &Master,
    at: usize,
    near: bool,
    wait: Duration,
    page: &Arc<Page>,
    question: &Question,
) -> Result<(Answer, bool)> {
    let _alone = alone(Some(page), at).await;
    let (session, mark) = session(master, near, wait).await?;
    let Question { format, keys, id, arguments } = question;
    let [record, life, memory, inbox, keep] = &arguments[..] else { unreachable!("a vote has five arguments") };
    let keep = if keep == "R" && page.is_broken_on(at) { "K" } else { &**keep };
    let (second, third) = match format {
        Format::Fenced => (super::record::MARK, mark.as_deref().unwrap_or_default()),
        Format::Plain { .. } => (&*keys.tokens, &**memory),
    };
    let arguments = [&**record, life, third, inbox, keep];
    let answer = format.vote().run(&session, &[&keys.lock, second, &keys.waits], &arguments).await?;
    let Some(answer) = Answer::parse(&text(answer)?, id) else {
        session.poison();
        return Err(trouble::strange());
    };
    master.silent.store(false, Ordering::Relaxed);
    let counts = match format {
        Format::Fenced => master.trust.counts(&mark, answer.marked),
        Format::Plain { .. } => page.counts(at, answer.renewal),
    };
    if !answer.marked {
        // It has been emptied: whoever greets it anew marks it anew.
        master.distrust();
    }
    Ok((answer, counts))
}

async fn leave(master: &Master, near: bool, question: &Question) -> Result<Left> {
    let (session, _) = session(master, near, Duration::ZERO).await?;
    let Question { format, keys, id, arguments } = question;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let keys = [&*keys.lock, &*keys.waits, &*keys.tokens];
    let keys = if *format == Format::Fenced { &keys[..2] } else { &keys[..] };
    let answer = text(format.leave().run(&session, keys, &arguments).await?)?;
    match answer.split_at_checked(1) {
        Some(("0", of)) if of == id => Ok(Left::Nothing),
        Some(("1", of)) if of == id => Ok(Left::Free),
        Some(("2", of)) if of == id => Ok(Left::ToAnother),
        _ => {
            session.poison();
            Err(Error::unavailable("the answer belongs to another question; the connection was closed"))
        }
    }
}
