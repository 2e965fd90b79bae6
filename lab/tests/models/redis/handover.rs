//! Hand-over and cancelling: one of our claims among others. Replies and messages are late, lost or
//! overtaken, leases end, and our client leaves at any time.

use std::time::Duration;

use leasehold::modelled::{BootInstant, ClaimState, Push, Sent, hold_from, safe_duration};
use leasehold::store::Standing;
use leasehold::{CrashDetection, Token};
use stateright::{Model, Property};

use super::crash_detection::answer;
use super::lock_model::{EnterMode, EnterRequest, Id, Link, LockModel, ModelPush, Reply, Script};
use super::{breaks, holds};

const OWN: Id = 1;
/// The claim that holds at first, and the claim that comes later.
const OTHERS: [Id; 2] = [0, 2];
/// The lease, in ticks.
const LEASE: u8 = 2;
/// How long a holder's connection must be gone before a contender ends its hold.
const GRACE: u8 = 1;
/// The last moment of the model.
const END: u8 = 4;
/// How often our claim enters: for the first time, and again where it received no reply.
const REQUESTS: u8 = 2;

/// A difference from the library. It shows whether the mutated rule matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// No difference.
    None,
    /// Replies do not contain the last token that the server gave before.
    RepliesWithoutTokens,
    /// A grant counts from the moment at which the client receives it.
    FromReceipt,
    /// The client trusts a hold for as long as the server kept the claim while it waited.
    WaitersLease,
    /// Leaving does not wait for a request that is under way.
    LeavingOvertakes,
    /// Leaving does not hand over to the next waiter.
    NoHandOver,
}

#[derive(Clone, Copy, Debug)]
struct HandOver(Mutation);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    model: LockModel,
    /// When the lease of each claim ends, by the number of the claim.
    ends: [u8; 3],
    known: ClaimState,
    /// When the last script ran that granted or found our claim. An absence that began before this
    /// moment does not count.
    served: u8,
    /// When the client received the grant.
    pushed: u8,
    flight: Flight,
    requests: u8,
    /// Notifications for our client that it has not read yet.
    inbox: Vec<ModelPush>,
    leaving: Leaving,
    has_entered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Flight {
    None,
    Sent(u8),
    Replied(u8, Reply),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leaving {
    No,
    Sent,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Send,
    Serve,
    /// A request, or a reply, is lost.
    LoseReply,
    ReceiveReply,
    ReceivePush,
    LosePush,
    Leave,
    ServeLeave,
    /// The other claim enters.
    Enter,
    /// Another client that holds leaves.
    OtherLeaves,
    /// Our connection has been gone for the grace: a contender ends our hold.
    Revoke,
}

fn moment(tick: u8) -> BootInstant {
    BootInstant::from_nanos(u64::from(tick + 1) * 1_000_000_000)
}

fn sent_at(tick: u8) -> Sent {
    Sent {
        at: moment(tick),
        liveness_epoch: 1,
        caller_epoch: 1,
    }
}

fn asking(id: Id) -> EnterRequest {
    EnterRequest {
        id,
        mode: EnterMode::Queue,
        link: Link {
            epoch: 1,
            verdict: false,
        },
        nonce: 1,
        expired: Vec::new(),
    }
}

impl Model for HandOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            now: 0,
            model: LockModel::default(),
            ends: [0; 3],
            known: ClaimState::default(),
            served: 0,
            pushed: 0,
            flight: Flight::None,
            requests: 0,
            inbox: Vec::new(),
            leaving: Leaving::No,
            has_entered: false,
        };

        state.run(OTHERS[0], |script| script.enter(&asking(OTHERS[0])));
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }

        match state.flight {
            Flight::None if state.requests < REQUESTS && state.leaving == Leaving::No => {
                actions.push(Action::Send);
            }
            Flight::None => {}
            Flight::Sent(_) => actions.extend([Action::Serve, Action::LoseReply]),
            Flight::Replied(..) => actions.extend([Action::ReceiveReply, Action::LoseReply]),
        }

        if !state.inbox.is_empty() {
            actions.extend([Action::ReceivePush, Action::LosePush]);
        }

        let may_leave = state.flight == Flight::None || self.0 == Mutation::LeavingOvertakes;
        match state.leaving {
            Leaving::No if state.requests > 0 && may_leave => actions.push(Action::Leave),
            Leaving::Sent => actions.push(Action::ServeLeave),
            Leaving::No | Leaving::Done => {}
        }

        if !state.has_entered {
            actions.push(Action::Enter);
        }

        if state.model.holder.is_some_and(|holder| holder.id != OWN) {
            actions.push(Action::OtherLeaves);
        }

        let is_ours = state.model.holder.is_some_and(|holder| holder.id == OWN);
        if is_ours && state.now >= state.served + GRACE {
            actions.push(Action::Revoke);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.tick(),
            Action::Send => {
                next.requests += 1;
                next.flight = Flight::Sent(next.now);
            }
            Action::Serve => {
                let Flight::Sent(at) = next.flight else {
                    return None;
                };
                let model_reply = next.run(OWN, |script| script.enter(&asking(OWN)));
                next.flight = Flight::Replied(at, model_reply);
            }
            Action::LoseReply => next.flight = Flight::None,
            Action::ReceiveReply => {
                let Flight::Replied(at, model_reply) =
                    std::mem::replace(&mut next.flight, Flight::None)
                else {
                    return None;
                };
                let mut reply = answer(model_reply);
                if self.0 == Mutation::RepliesWithoutTokens {
                    reply.last_token = 0;
                }
                next.known
                    .apply_reply(&reply, sent_at(at), moment(next.now));
                next.pushed = next.now;
            }
            Action::ReceivePush => {
                let events = match next.inbox.remove(0) {
                    ModelPush::Held(token) => Push::Held(Token::new(u64::from(token))?),
                    ModelPush::Next => Push::Next,
                    ModelPush::Gone => Push::Gone,
                };
                next.known.apply_push(&events);
                next.pushed = next.now;
            }
            Action::LosePush => drop(next.inbox.remove(0)),
            Action::Leave => next.leaving = Leaving::Sent,
            Action::ServeLeave => {
                if self.0 == Mutation::NoHandOver {
                    next.model.holder.take_if(|holder| holder.id == OWN);
                    next.model.queue.retain(|waiter| waiter.id != OWN);
                } else {
                    next.run(OWN, |script| script.leave(OWN));
                }
                next.leaving = Leaving::Done;
            }
            Action::Enter => {
                next.has_entered = true;
                next.run(OTHERS[1], |script| script.enter(&asking(OTHERS[1])));
            }
            Action::OtherLeaves => {
                let id = next.model.holder?.id;
                next.run(id, |script| script.leave(id));
            }
            Action::Revoke => {
                next.run(OWN, |script| script.leave(OWN));
            }
        }

        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two hold", |model: &Self, state: &State| {
                let other = state
                    .model
                    .holder
                    .is_some_and(|holder| holder.id != OWN && !holder.expired);
                !other || !state.trusts(model.0)
            }),
            Property::always("a claim that has left is not queued", |_, state: &State| {
                // A claim whose lease has ended is not a holder, even if its record is still
                // written.
                let is_there = state
                    .model
                    .holder
                    .is_some_and(|holder| holder.id == OWN && !holder.expired)
                    || state.model.queue.iter().any(|waiter| waiter.id == OWN);
                state.leaving != Leaving::Done || !is_there
            }),
            Property::always("a free lock has no waiters", |_, state: &State| {
                state.model.queue.is_empty() || state.model.holder.is_some()
            }),
            Property::sometimes("a grant is notified", |model: &Self, state: &State| {
                state.requests == 1 && state.flight == Flight::None && state.trusts(model.0)
            }),
            Property::sometimes("a claim that leaves hands over", |_, state: &State| {
                state.leaving == Leaving::Done
                    && state
                        .model
                        .holder
                        .is_some_and(|holder| holder.id == OTHERS[1])
            }),
        ]
    }
}

impl State {
    /// Runs a script for a claim. The lease of this claim begins again, and so does the lease of a
    /// claim that the script grants.
    fn run<T>(&mut self, of: Id, request: impl FnOnce(&mut Script<'_>) -> T) -> T {
        let mut script = Script::on(&mut self.model, &|_| true);
        let reply = request(&mut script);
        let ends = self.now + LEASE;
        self.ends[usize::from(of)] = ends;

        if of == OWN {
            self.served = self.now;
        }

        for (id, push) in script.pushes {
            if matches!(push, ModelPush::Held(_)) {
                self.ends[usize::from(id)] = ends;
                if id == OWN {
                    self.served = self.now;
                }
            }
            if id == OWN {
                self.inbox.push(push);
            }
        }

        reply
    }

    fn tick(&mut self) {
        self.now += 1;
        let now = self.now;
        let ends = self.ends;
        let is_over = |id: Id| ends[usize::from(id)] <= now;
        if let Some(holder) = &mut self.model.holder {
            holder.expired |= is_over(holder.id);
        }
        for waiter in &mut self.model.queue {
            waiter.expired |= is_over(waiter.id);
        }
    }

    /// Whether our client trusts its hold.
    fn trusts(&self, mutation: Mutation) -> bool {
        let [lease, grace] = [LEASE, GRACE].map(|ticks| Duration::from_secs(u64::from(ticks)));
        let kept_until = self
            .known
            .renewed_at
            .map(|(sent_at, _)| sent_at.saturating_add(safe_duration(lease)));

        let is_trusted = match mutation {
            Mutation::FromReceipt => self.now < self.pushed + GRACE,
            Mutation::WaitersLease => kept_until.is_some_and(|until| moment(self.now) < until),
            _ => kept_until.is_some_and(|until| {
                moment(self.now) < hold_from(until, lease, CrashDetection::Within(grace)).0
            }),
        };
        let is_held = matches!(self.known.standing, Some(Standing::Held { .. }));
        is_held && is_trusted && self.leaving == Leaving::No
    }
}

/// Shows G-01.
#[test]
fn handover_model_keeps_exclusion() {
    holds(HandOver(Mutation::None));
}

#[test]
fn trusting_an_earlier_grant_breaks_exclusion() {
    breaks(HandOver(Mutation::RepliesWithoutTokens), "no two hold");
}

#[test]
fn validity_counted_from_receipt_breaks_exclusion() {
    breaks(HandOver(Mutation::FromReceipt), "no two hold");
}

/// Shows G-01.
#[test]
fn hold_trusted_for_the_waiters_lease_makes_two() {
    breaks(HandOver(Mutation::WaitersLease), "no two hold");
}

#[test]
fn leave_that_overtakes_enter_leaves_an_entry() {
    breaks(
        HandOver(Mutation::LeavingOvertakes),
        "a claim that has left is not queued",
    );
}

#[test]
fn leave_without_handover_is_detected() {
    breaks(HandOver(Mutation::NoHandOver), "a free lock has no waiters");
}
