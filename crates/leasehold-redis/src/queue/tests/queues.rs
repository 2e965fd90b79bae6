//! Compares random queues with the rule that decides all grants.

use std::ops::RangeInclusive;
use std::time::Duration;

use proptest::prelude::*;

use super::server::{DAY, ModelServer, Paths, claim, liveness, request};
use crate::client::id_text;
use crate::queue::layout::record as field;
use crate::queue::messages::{AbsenceSeen, EnterMode, EnterReply, EnterRequest, Push, Renewed};
use leasehold_core::store::{Claim, Share, Standing, admitted};
use leasehold_core::{ClaimId, Token};

/// The longest one is more than a client's refresh of the keys lasts at least, minus a day.
const LEASES: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(20 * 3_600)];
const HOUR: i64 = 3_600_000;
/// The life of a key that is not there.
const NO_KEY: i64 = -2;
/// A client that has no claim.
const OPERATOR: u8 = 0;
/// How many holders a refusal names.
const REFUSED_BY_MAX: usize = 8;

/// One step of a client. A position wraps around the length of the queue.
#[derive(Clone, Debug)]
enum Step {
    Enter(Entering),
    Leave(usize),
    /// Another client removes the claim.
    Break(usize),
    /// The client enters its claim again, with the smallest share of its kind.
    Shrink(usize),
    /// The client sends a request about a claim that is there.
    Again(usize, EnterMode),
    Renew(usize),
    Pass(Passing),
}

#[derive(Clone, Debug)]
struct Entering {
    share: Share,
    mode: EnterMode,
    lease: Duration,
    reserved: u32,
    /// By how much the client's hint exceeds the time of the server, in microseconds.
    hint_ahead: Option<u64>,
    proposes: bool,
}

/// The time passes, and all claims send a request, those first whose lease has ended, or last.
#[derive(Clone, Debug)]
struct Passing {
    until: Until,
    /// This claim is renewed before.
    renews: Option<usize>,
    are_ended_first: bool,
}

#[derive(Clone, Debug)]
enum Until {
    Millis(u64),
    EndOf(usize),
    MillisecondBeforeEndOf(usize),
}

/// A server, and its expected queue, in order of arrival.
struct Queue {
    server: ModelServer,
    entries: Vec<Entry>,
    /// The token of the last grant, and a number that the next token must exceed.
    last_token: u64,
    exceeded: u64,
    /// The first waiter that knows that it is next.
    next: Option<ClaimId>,
    entered: u8,
}

#[derive(Clone, Debug)]
struct Entry {
    claim: Claim,
    /// The share of its first request. The client sends it in all others but a downgrade.
    entered: Share,
    token: Option<u64>,
    /// In microseconds of the server.
    deadline: u64,
}

/// Shares of one kind: a mutex with readers and writers, or slots.
fn shares(slots: Option<u32>) -> BoxedStrategy<Share> {
    match slots {
        None => prop::sample::select(vec![Share::MUTEX, Share::READER, Share::WRITER]).boxed(),
        Some(of) => (1..=of)
            .prop_map(move |permits| Share::slots(permits, of).expect("in range"))
            .boxed(),
    }
}

fn entering(slots: Option<u32>) -> impl Strategy<Value = Entering> {
    let mode = prop::sample::select(vec![EnterMode::Queue, EnterMode::Queue, EnterMode::TryNow]);
    let hint_ahead = prop::sample::select(vec![None, None, Some(1_000), Some(60_000_000)]);
    let fields = (
        shares(slots),
        mode,
        prop::sample::select(LEASES.to_vec()),
        prop::sample::select(vec![0, 0, 3]),
        hint_ahead,
        any::<bool>(),
    );
    fields.prop_map(
        |(share, mode, lease, reserved, hint_ahead, proposes)| Entering {
            share,
            mode,
            lease,
            reserved,
            hint_ahead,
            proposes,
        },
    )
}

fn passing() -> impl Strategy<Value = Passing> {
    let until = prop_oneof![
        prop::sample::select(vec![1, 999, 29_999, 9 * 3_600_000]).prop_map(Until::Millis),
        any::<usize>().prop_map(Until::EndOf),
        any::<usize>().prop_map(Until::MillisecondBeforeEndOf),
    ];
    let fields = (until, any::<Option<usize>>(), any::<bool>());
    fields.prop_map(|(until, renews, are_ended_first)| Passing {
        until,
        renews,
        are_ended_first,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let again = vec![EnterMode::Refresh, EnterMode::Keep, EnterMode::Poll];
    prop_oneof![Just(None), (1_u32..5).prop_map(Some)].prop_flat_map(move |slots| {
        let step = prop_oneof![
            5 => entering(slots).prop_map(Step::Enter),
            2 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::Break),
            1 => any::<usize>().prop_map(Step::Shrink),
            2 => (any::<usize>(), prop::sample::select(again.clone()))
                .prop_map(|(number, mode)| Step::Again(number, mode)),
            1 => any::<usize>().prop_map(Step::Renew),
            2 => passing().prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 1..40)
    })
}

impl Queue {
    fn new(paths: Paths) -> Self {
        Self {
            server: ModelServer::with(paths, None),
            entries: Vec::new(),
            last_token: 0,
            exceeded: 0,
            next: None,
            entered: 0,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let at = |number: &usize| number % self.entries.len();
        match step {
            Step::Enter(entering) => self.enter(entering),
            _ if self.entries.is_empty() => Ok(()),
            Step::Leave(number) => self.leave(at(number)),
            Step::Break(number) => {
                let id = self.entries.remove(at(number)).claim.id;
                prop_assert!(self.server.leave_as('B', number_of(id), OPERATOR));
                self.settle(None, vec![(id, Push::Gone)])
            }
            Step::Shrink(number) => {
                let at = at(number);
                let claim = &mut self.entries[at].claim;
                claim.share = match claim.share.capacity() {
                    1 | Share::RW_CAPACITY => Share::READER,
                    slots => Share::slots(1, slots).expect("in range"),
                };
                self.again(at, EnterMode::TryNow)
            }
            Step::Again(number, mode) => self.again(at(number), *mode),
            Step::Renew(number) => self.renew(at(number)),
            Step::Pass(passing) => self.pass(passing),
        }
    }

    fn enter(&mut self, entering: &Entering) -> Result<(), TestCaseError> {
        self.entered += 1;
        // The order of the ids is not that of the arrivals.
        let number = self.entered.wrapping_mul(97);
        self.server.subscribe(number.into(), "inbox", number);
        let mut claim = claim(number, entering.lease);
        claim.share = entering.share;
        claim.reserved = entering.reserved;
        let mode = entering.mode;
        let hint = match entering.hint_ahead {
            Some(ahead) if mode == EnterMode::Queue => self.server.now + ahead,
            _ => 0,
        };
        let is_fast = entering.proposes && claim.share.is_whole() && claim.reserved == 0;
        let reply = self.server.enter(&EnterRequest {
            proposal: if is_fast && hint == 0 {
                self.server.now
            } else {
                0
            },
            highest_token: hint,
            ..request(&claim, mode, liveness(number, 1, None))
        });

        let before = self.entries.len();
        self.add(claim.clone());
        if mode == EnterMode::TryNow && admitted(self.shares()) <= before {
            self.entries.pop();
            return self.check_refusal(&reply);
        }
        self.exceeded = self.exceeded.max(hint);
        self.settle(Some(claim.id), Vec::new())?;
        self.check_reply(before, &reply)?;
        self.check_lives()
    }

    fn add(&mut self, claim: Claim) {
        self.entries.push(Entry {
            deadline: self.server.now + micros(claim.lease),
            token: None,
            entered: claim.share,
            claim,
        });
    }

    fn leave(&mut self, at: usize) -> Result<(), TestCaseError> {
        let number = number_of(self.entries.remove(at).claim.id);
        prop_assert!(self.server.leave(number));
        self.settle(None, Vec::new())?;
        prop_assert!(!self.server.leave(number));
        prop_assert_eq!(self.server.take_pushes(), []);
        Ok(())
    }

    /// Sends a request about a claim that is there. A waiter that polls keeps its lease as it is, and
    /// so does a holder that is not renewed.
    fn again(&mut self, at: usize, mode: EnterMode) -> Result<(), TestCaseError> {
        let reply = self.send(at, mode);
        let now = self.server.now;
        let entry = &mut self.entries[at];
        let id = entry.claim.id;
        let kept = if entry.token.is_some() {
            EnterMode::Keep
        } else {
            EnterMode::Poll
        };
        if mode != kept {
            entry.deadline = now + micros(entry.claim.lease);
        }
        self.settle(Some(id), Vec::new())?;
        self.check_reply(at, &reply)?;
        if mode == EnterMode::Poll {
            Ok(())
        } else {
            self.check_lives()
        }
    }

    fn send(&mut self, at: usize, mode: EnterMode) -> EnterReply {
        let entry = &self.entries[at];
        let mut claim = entry.claim.clone();
        if !mode.adds_claim() {
            claim.share = entry.entered;
        }
        let link = liveness(number_of(claim.id), 1, None);
        self.server.enter(&request(&claim, mode, link))
    }

    /// A waiter is told whether the lease of a holder has ended.
    fn renew(&mut self, at: usize) -> Result<(), TestCaseError> {
        let now = self.server.now;
        let held = self.entries.iter().filter(|entry| entry.token.is_some());
        let has_ended = held.clone().any(|holder| holder.deadline <= now);
        let held = held.count();
        let entry = &mut self.entries[at];
        let expected = if entry.deadline <= now {
            Renewed::Gone
        } else {
            entry.deadline = now + micros(entry.claim.lease);
            match entry.token {
                Some(_) => Renewed::Held,
                None => Renewed::Queued {
                    position: u32::try_from(at - held + 1).expect("a short queue"),
                    absence: if has_ended {
                        AbsenceSeen::New
                    } else {
                        AbsenceSeen::None
                    },
                },
            }
        };
        let claim = entry.claim.clone();
        let link = liveness(number_of(claim.id), 1, None);
        prop_assert_eq!(self.server.renew(&claim, &link), expected);
        prop_assert_eq!(self.server.take_pushes(), []);
        Ok(())
    }

    fn pass(&mut self, passing: &Passing) -> Result<(), TestCaseError> {
        let end_of = |number: usize| self.entries[number % self.entries.len()].deadline;
        self.server.now = match passing.until {
            Until::Millis(millis) => self.server.now + millis * 1_000,
            Until::EndOf(number) => end_of(number),
            Until::MillisecondBeforeEndOf(number) => end_of(number) - 1_000,
        };
        self.check_state()?;
        if let Some(number) = passing.renews {
            self.renew(number % self.entries.len())?;
        }

        let now = self.server.now;
        let ends = |entry: &Entry| entry.deadline <= now;
        if !self.entries.iter().any(ends) {
            return Ok(());
        }
        if !passing.are_ended_first {
            self.poll_one_that_is_there()?;
        }
        while let Some(at) = self.entries.iter().position(ends) {
            let reply = self.send(at, EnterMode::Poll);
            prop_assert_eq!(reply.standing, Standing::Gone);
            let polled = self.entries.remove(at);
            // The script finds the end of an exclusive hold before it knows whose request it is.
            let is_told = polled.token.is_some() && polled.claim.share.is_whole();
            let mut told = self.end_holds();
            told.extend(is_told.then_some((polled.claim.id, Push::Gone)));
            self.check_pushes(told)?;
        }
        if passing.are_ended_first {
            self.poll_one_that_is_there()
        } else {
            Ok(())
        }
    }

    fn poll_one_that_is_there(&mut self) -> Result<(), TestCaseError> {
        let now = self.server.now;
        let lives = |entry: &Entry| entry.deadline > now;
        let Some(at) = self.entries.iter().position(lives) else {
            return Ok(());
        };
        self.send(at, EnterMode::Poll);
        let entry = &mut self.entries[at];
        if entry.token.is_some() {
            entry.deadline = now + micros(entry.claim.lease);
        }
        let id = entry.claim.id;
        let told = self.end_holds();
        self.settle(Some(id), told)
    }

    /// Removes the holders whose lease has ended; returns what the server sends to them.
    fn end_holds(&mut self) -> Vec<(ClaimId, Push)> {
        let now = self.server.now;
        let ended = |entry: &mut Entry| entry.token.is_some() && entry.deadline <= now;
        let ended = self.entries.extract_if(.., ended);
        ended.map(|entry| (entry.claim.id, Push::Gone)).collect()
    }

    /// Grants to the first waiters that fit, as each script does, and checks the notifications: each
    /// claim whose standing has changed receives one, but the `caller` has it in its reply.
    fn settle(
        &mut self,
        caller: Option<ClaimId>,
        mut told: Vec<(ClaimId, Push)>,
    ) -> Result<(), TestCaseError> {
        let now = self.server.now;
        let next = loop {
            let is_waiter = |entry: &Entry| entry.token.is_none();
            let Some(at) = self.entries.iter().position(is_waiter) else {
                break None;
            };
            let fits = admitted(self.shares()) > at;
            let waiter = &mut self.entries[at];
            let id = waiter.claim.id;
            if waiter.deadline <= now {
                self.entries.remove(at);
                told.push((id, Push::Gone));
            } else if fits {
                // The tokens that a claim reserves are below its own.
                let above = 1 + u64::from(waiter.claim.reserved);
                let token = now.max(self.exceeded.max(self.last_token) + above);
                waiter.token = Some(token);
                waiter.deadline = now + micros(waiter.claim.lease);
                self.last_token = token;
                told.push((id, Push::Held(Token::new(token).expect("above zero"))));
            } else {
                break Some(id);
            }
        };
        if next != self.next {
            told.extend(next.map(|next| (next, Push::Next)));
        }
        self.next = next;
        told.retain(|(id, _)| Some(*id) != caller);
        self.check_pushes(told)?;
        self.check_state()
    }

    fn check_pushes(&mut self, mut told: Vec<(ClaimId, Push)>) -> Result<(), TestCaseError> {
        let mut pushes = self.server.take_pushes();
        for list in [&mut pushes, &mut told] {
            list.sort_by_key(|(id, push)| format!("{id} {push:?}"));
        }
        prop_assert_eq!(pushes, told);
        Ok(())
    }

    fn shares(&self) -> impl Iterator<Item = Share> + '_ {
        self.entries.iter().map(|entry| entry.claim.share)
    }

    fn standing(&self, at: usize) -> Standing {
        match self.entries[at].token {
            Some(token) => Standing::Held {
                token: Token::new(token).expect("above zero"),
            },
            None => Standing::Queued {
                ahead: u32::try_from(at).expect("a short queue"),
            },
        }
    }

    /// The last token, or one that a hint has raised.
    fn tokens_shown(&self) -> RangeInclusive<u64> {
        self.last_token..=self.last_token.max(self.exceeded)
    }

    fn check_reply(&self, at: usize, reply: &EnterReply) -> Result<(), TestCaseError> {
        prop_assert_eq!(reply.standing, self.standing(at));
        if self.entries[at].token.is_some() {
            return Ok(());
        }
        let holders = self.entries.iter().filter(|entry| entry.token.is_some());
        let held = holders.clone().count();
        let position = u32::try_from(at - held + 1).expect("a short queue");
        prop_assert_eq!(reply.position, position);
        prop_assert_eq!(reply.is_next, position == 1);
        prop_assert!(self.tokens_shown().contains(&reply.last_token));
        if let Some(expiry) = reply.next_expiry {
            let first = holders.map(|holder| holder.deadline).min();
            let left = first.expect("a waiter waits for a holder") - self.server.now;
            prop_assert_eq!(expiry, Duration::from_micros(left));
        }
        Ok(())
    }

    /// The claim was not added. The reply names the first holders, and counts all that are ahead.
    fn check_refusal(&self, reply: &EnterReply) -> Result<(), TestCaseError> {
        prop_assert_eq!(reply.standing, Standing::Gone);
        let refused = reply.refused.as_ref().expect("it was refused");
        let ahead = usize::try_from(refused.ahead).expect("a short queue");
        prop_assert_eq!(ahead, self.entries.len());
        let holders = self.entries.iter().filter(|entry| entry.token.is_some());
        let ids: Vec<String> = holders
            .map(|holder| id_text(holder.claim.id).to_string())
            .collect();
        let named = refused
            .holders
            .iter()
            .filter_map(|record| field::CLAIM.read(record));
        let named: Vec<&str> = named.collect();
        prop_assert_eq!(named.len(), ids.len().min(REFUSED_BY_MAX));
        prop_assert!(named.iter().all(|named| ids.iter().any(|id| id == named)));
        Ok(())
    }

    /// Checks what an inspection shows: the claims whose lease has not ended.
    fn check_state(&mut self) -> Result<(), TestCaseError> {
        let lock_state = self.server.lock_state();
        let shown: Vec<_> = lock_state
            .entries
            .iter()
            .map(|entry| (entry.id, entry.standing, entry.share, entry.reserved))
            .collect();
        let now = self.server.now;
        let lives = |at: &usize| self.entries[*at].deadline > now;
        let expected = (0..self.entries.len())
            .filter(lives)
            .enumerate()
            .map(|(shown_at, at)| {
                let entry = &self.entries[at];
                let standing = match self.standing(at) {
                    Standing::Queued { .. } => Standing::Queued {
                        ahead: u32::try_from(shown_at).expect("a short queue"),
                    },
                    standing => standing,
                };
                (
                    entry.claim.id,
                    standing,
                    entry.claim.share,
                    entry.claim.reserved,
                )
            });
        let expected: Vec<_> = expected.collect();
        prop_assert_eq!(&shown, &expected);

        if !self.entries.is_empty() {
            let last = lock_state.last_token.map_or(0, Token::get);
            prop_assert!(self.tokens_shown().contains(&last));
        }
        if shown.len() == self.entries.len() {
            prop_assert_eq!(self.server.is_listed(), !shown.is_empty());
        }
        let mut lives = self.server.lives().into_iter();
        prop_assert!(
            lives.all(|life| life <= 2 * DAY),
            "a key stays for too long"
        );
        Ok(())
    }

    /// Each request of a claim lets the keys live for 47 hours at least, which is more than the
    /// longest lease. The key of an exclusive holder lives for its lease and a day.
    fn check_lives(&mut self) -> Result<(), TestCaseError> {
        let [key, others @ ..] = self.server.lives();
        prop_assert!(key >= DAY);
        let mut others = others.into_iter();
        prop_assert!(others.all(|life| life == NO_KEY || life >= 47 * HOUR));
        Ok(())
    }
}

fn micros(lease: Duration) -> u64 {
    u64::try_from(lease.as_micros()).expect("a short lease")
}

fn number_of(id: ClaimId) -> u8 {
    id.to_bytes()[0]
}

proptest! {
    /// All requests follow the rule, and say the truth about it. Nothing stays when all claims have
    /// left, nor if their clients just stop.
    ///
    /// Shows G-01, G-05, S2.
    #[test]
    fn random_queues_match_the_model(steps in steps(), is_slow in any::<bool>()) {
        let mut queue = Queue::new(if is_slow { Paths::Slow } else { Paths::Both });
        for step in &steps {
            queue.step(step)?;
        }

        let last = LEASES[1] + Duration::from_millis(2 * DAY.unsigned_abs());
        let mut stopped = queue.server.clone();
        stopped.pass(last);
        prop_assert_eq!(stopped.keys(), 0, "keys stay");
        while !queue.entries.is_empty() {
            queue.leave(0)?;
            let [key, ..] = queue.server.lives();
            prop_assert!(!queue.entries.is_empty() || key >= DAY, "a free lock lives for {} ms", key);
        }
        queue.server.pass(Duration::from_millis(2 * DAY.unsigned_abs()));
        prop_assert_eq!(queue.server.keys(), 0, "a free lock has keys");
    }
}
