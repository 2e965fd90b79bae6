//! Hand-over and cancelling: one of our claims among others, with answers and messages that are late, lost or overtaken, leases
//! that end, and a departure at any time.

use std::time::Duration;

use leasehold::modelled::{Known, Moment, Told, hold_from, trusted};
use leasehold::{Crash, Standing, Token};
use stateright::{Model, Property};

use super::line::{Asking, How, Id, Line, Link, Reply, Script, Word};
use super::presence::answer;
use super::{breaks, holds};

const OURS: Id = 1;
/// Who holds at first, and who comes later.
const OTHERS: [Id; 2] = [0, 2];
/// In ticks.
const LEASE: u8 = 2;
/// For so long a holder's connection must be gone before its hold is ended.
const GRACE: u8 = 1;
/// The last moment there is.
const END: u8 = 4;
/// So often our claim enters: for the first time, and again where it was not answered.
const QUESTIONS: u8 = 2;

/// What is different from the library, to see whether it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// Nothing.
    None,
    /// Answers do not say which tokens were given before.
    AnswersWithoutTokens,
    /// A grant counts from when it is heard of.
    FromReceipt,
    /// A hold is trusted for as long as the claim was kept while it waited.
    WaitersLease,
    /// Leaving does not wait for a question that is under way.
    LeavingOvertakes,
    /// Leaving hands over to nobody.
    NoHandOver,
}

#[derive(Clone, Copy, Debug)]
struct HandOver(Twin);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    line: Line,
    /// When the lease of each claim ends, by its number.
    ends: [u8; 3],
    known: Known,
    /// When the last script ran that granted or found our claim: no absence that began before counts.
    served: u8,
    /// When the grant was heard of.
    heard_of: u8,
    flight: Flight,
    asked: u8,
    /// Told to our client, and not read yet.
    inbox: Vec<Word>,
    leaving: Leaving,
    has_come: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Flight {
    None,
    Asked(u8),
    Answered(u8, Reply),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leaving {
    No,
    Asked,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Ask,
    Serve,
    /// A question, or an answer, is lost.
    Lose,
    Hear,
    HearWord,
    LoseWord,
    Leave,
    ServeLeave,
    /// The other one comes.
    Come,
    /// Somebody else who holds leaves.
    OtherLeaves,
    /// Our connection has been gone for the grace: a contender ends our hold.
    Revoke,
}

fn moment(tick: u8) -> Moment {
    Moment::from_nanos(u64::from(tick + 1) * 1_000_000_000)
}

fn asking(id: Id) -> Asking {
    Asking { id, how: How::Queue, link: Link { epoch: 1, judged: false }, nonce: 1, ripe: Vec::new() }
}

impl Model for HandOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            now: 0,
            line: Line::default(),
            ends: [0; 3],
            known: Known::default(),
            served: 0,
            heard_of: 0,
            flight: Flight::None,
            asked: 0,
            inbox: Vec::new(),
            leaving: Leaving::No,
            has_come: false,
        };
        state.run(OTHERS[0], |script| script.enter(&asking(OTHERS[0])));
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }
        match state.flight {
            Flight::None if state.asked < QUESTIONS && state.leaving == Leaving::No => actions.push(Action::Ask),
            Flight::None => {}
            Flight::Asked(_) => actions.extend([Action::Serve, Action::Lose]),
            Flight::Answered(..) => actions.extend([Action::Hear, Action::Lose]),
        }
        if !state.inbox.is_empty() {
            actions.extend([Action::HearWord, Action::LoseWord]);
        }
        let may_leave = state.flight == Flight::None || self.0 == Twin::LeavingOvertakes;
        match state.leaving {
            Leaving::No if state.asked > 0 && may_leave => actions.push(Action::Leave),
            Leaving::Asked => actions.push(Action::ServeLeave),
            Leaving::No | Leaving::Done => {}
        }
        if !state.has_come {
            actions.push(Action::Come);
        }
        if state.line.holder.is_some_and(|holder| holder.id != OURS) {
            actions.push(Action::OtherLeaves);
        }
        let is_ours = state.line.holder.is_some_and(|holder| holder.id == OURS);
        if is_ours && state.now >= state.served + GRACE {
            actions.push(Action::Revoke);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.tick(),
            Action::Ask => {
                next.asked += 1;
                next.flight = Flight::Asked(next.now);
            }
            Action::Serve => {
                let Flight::Asked(at) = next.flight else { return None };
                let reply = next.run(OURS, |script| script.enter(&asking(OURS)));
                next.flight = Flight::Answered(at, reply);
            }
            Action::Lose => next.flight = Flight::None,
            Action::Hear => {
                let Flight::Answered(at, reply) = std::mem::replace(&mut next.flight, Flight::None) else {
                    return None;
                };
                let mut answer = answer(reply);
                if self.0 == Twin::AnswersWithoutTokens {
                    answer.last = 0;
                }
                next.known.answered(&answer, moment(at), 1, 1, moment(next.now));
                next.heard_of = next.now;
            }
            Action::HearWord => {
                let told = match next.inbox.remove(0) {
                    Word::Held(token) => Told::Held(Token::new(u64::from(token))?),
                    Word::Next => Told::Next,
                    Word::Gone => Told::Gone,
                };
                next.known.told(&told);
                next.heard_of = next.now;
            }
            Action::LoseWord => drop(next.inbox.remove(0)),
            Action::Leave => next.leaving = Leaving::Asked,
            Action::ServeLeave => {
                if self.0 == Twin::NoHandOver {
                    next.line.holder.take_if(|holder| holder.id == OURS);
                    next.line.queue.retain(|waiter| waiter.id != OURS);
                } else {
                    next.run(OURS, |script| script.leave(OURS));
                }
                next.leaving = Leaving::Done;
            }
            Action::Come => {
                next.has_come = true;
                next.run(OTHERS[1], |script| script.enter(&asking(OTHERS[1])));
            }
            Action::OtherLeaves => {
                let id = next.line.holder?.id;
                next.run(id, |script| script.leave(id));
            }
            Action::Revoke => {
                next.run(OURS, |script| script.leave(OURS));
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two hold", |model: &Self, state: &State| {
                let other = state.line.holder.is_some_and(|holder| holder.id != OURS && !holder.over);
                !other || !state.believes(model.0)
            }),
            Property::always("what has left is not in line", |_, state: &State| {
                // A lease that is over is nobody's, whatever is still written.
                let is_there = state.line.holder.is_some_and(|holder| holder.id == OURS && !holder.over)
                    || state.line.queue.iter().any(|waiter| waiter.id == OURS);
                state.leaving != Leaving::Done || !is_there
            }),
            Property::always("nobody waits for nobody", |_, state: &State| {
                state.line.queue.is_empty() || state.line.holder.is_some()
            }),
            Property::sometimes("a grant is told", |model: &Self, state: &State| {
                state.asked == 1 && state.flight == Flight::None && state.believes(model.0)
            }),
            Property::sometimes("it is handed over when it leaves", |_, state: &State| {
                state.leaving == Leaving::Done && state.line.holder.is_some_and(|holder| holder.id == OTHERS[1])
            }),
        ]
    }
}

impl State {
    /// Runs a script for a claim, whose lease begins anew, as does that of whoever is granted.
    fn run<T>(&mut self, of: Id, ask: impl FnOnce(&mut Script<'_>) -> T) -> T {
        let mut script = Script::on(&mut self.line, &|_| true);
        let answer = ask(&mut script);
        let ends = self.now + LEASE;
        self.ends[usize::from(of)] = ends;
        if of == OURS {
            self.served = self.now;
        }
        for (id, word) in script.words {
            if matches!(word, Word::Held(_)) {
                self.ends[usize::from(id)] = ends;
                if id == OURS {
                    self.served = self.now;
                }
            }
            if id == OURS {
                self.inbox.push(word);
            }
        }
        answer
    }

    fn tick(&mut self) {
        self.now += 1;
        let (now, ends) = (self.now, self.ends);
        let is_over = |id: Id| ends[usize::from(id)] <= now;
        if let Some(holder) = &mut self.line.holder {
            holder.over |= is_over(holder.id);
        }
        for waiter in &mut self.line.queue {
            waiter.over |= is_over(waiter.id);
        }
    }

    /// Whether our client counts on holding.
    fn believes(&self, twin: Twin) -> bool {
        let [lease, grace] = [LEASE, GRACE].map(|ticks| Duration::from_secs(u64::from(ticks)));
        let kept_until = self.known.heard.map(|(asked, _)| asked.after(trusted(lease)));
        let is_trusted = match twin {
            Twin::FromReceipt => self.now < self.heard_of + GRACE,
            Twin::WaitersLease => kept_until.is_some_and(|until| moment(self.now) < until),
            _ => kept_until.is_some_and(|until| moment(self.now) < hold_from(until, lease, Crash::Within(grace)).0),
        };
        let is_held = matches!(self.known.standing, Some(Standing::Held { .. }));
        is_held && is_trusted && self.leaving == Leaving::No
    }
}

#[test]
fn handing_over_keeps_two_apart() {
    holds(HandOver(Twin::None));
}

#[test]
fn an_earlier_grant_that_is_believed_makes_two() {
    breaks(HandOver(Twin::AnswersWithoutTokens), "no two hold");
}

#[test]
fn a_grant_that_counts_from_its_receipt_makes_two() {
    breaks(HandOver(Twin::FromReceipt), "no two hold");
}

#[test]
fn hold_trusted_for_the_waiters_lease_makes_two() {
    breaks(HandOver(Twin::WaitersLease), "no two hold");
}

#[test]
fn leaving_that_overtakes_leaves_a_claim_behind() {
    breaks(HandOver(Twin::LeavingOvertakes), "what has left is not in line");
}

#[test]
fn leaving_that_hands_over_to_nobody_is_found() {
    breaks(HandOver(Twin::NoHandOver), "nobody waits for nobody");
}
