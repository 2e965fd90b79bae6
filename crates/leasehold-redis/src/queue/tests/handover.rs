//! Hand-over and cancelling: one of our claims among others. Replies and messages are late, lost or
//! overtaken, leases end, and our client leaves at any time.

use std::time::Duration;

use stateright::{Model, Property};

use super::server::{Holder, ModelServer, claim, id, liveness, request};
use crate::queue::claims::ClaimState;
use crate::queue::messages::{EnterMode, EnterReply, EnterRequest, Push, Sent};
use crate::test_models::{breaks, holds};
use leasehold_core::ClaimId;
use leasehold_core::internal::{BootInstant, hold_from, safe_duration};
use leasehold_core::store::Standing;
use leasehold_core::store::replies::released_within;

const OWN: u8 = 1;
/// The claim that holds at first, and the claim that comes later.
const OTHERS: [u8; 2] = [0, 2];
/// A tick of the clocks.
const TICK: Duration = Duration::from_secs(1);
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
}

#[derive(Clone, Copy, Debug)]
struct HandOver(Mutation);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    server: ModelServer,
    /// The holder and the waiters on the server.
    holder: Option<Holder>,
    waiters: Vec<ClaimId>,
    known: ClaimState,
    /// When the last script ran that granted or found our claim. An absence that began before this
    /// moment does not count.
    served: u8,
    /// When the client received the grant.
    pushed: u8,
    flight: Flight,
    requests: u8,
    /// Notifications for our client that it has not read yet.
    inbox: Vec<Push>,
    leaving: Leaving,
    has_entered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Flight {
    None,
    Sent(u8),
    Replied(u8, EnterReply),
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

impl Model for HandOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            now: 0,
            server: ModelServer::start(),
            holder: None,
            waiters: Vec::new(),
            known: ClaimState::default(),
            served: 0,
            pushed: 0,
            flight: Flight::None,
            requests: 0,
            inbox: Vec::new(),
            leaving: Leaving::No,
            has_entered: false,
        };

        state.server.subscribe(1, "inbox", OWN);
        state.enter(OTHERS[0]);
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

        if state.other_holder().is_some() {
            actions.push(Action::OtherLeaves);
        }

        if state.is_holder(OWN) && state.now >= state.served + GRACE {
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
                next.flight = Flight::Replied(at, next.enter(OWN));
            }
            Action::LoseReply => next.flight = Flight::None,
            Action::ReceiveReply => {
                let Flight::Replied(at, mut reply) =
                    std::mem::replace(&mut next.flight, Flight::None)
                else {
                    return None;
                };
                if self.0 == Mutation::RepliesWithoutTokens {
                    reply.last_token = 0;
                }
                next.known
                    .apply_reply(&reply, sent_at(at), moment(next.now));
                next.pushed = next.now;
            }
            Action::ReceivePush => {
                let push = next.inbox.remove(0);
                next.known.apply_push(&push);
                next.pushed = next.now;
            }
            Action::LosePush => {
                next.inbox.remove(0);
            }
            Action::Leave => next.leaving = Leaving::Sent,
            Action::ServeLeave => {
                next.leave(OWN);
                next.leaving = Leaving::Done;
            }
            Action::Enter => {
                next.has_entered = true;
                next.enter(OTHERS[1]);
            }
            Action::OtherLeaves => {
                let other = next.other_holder()?;
                next.leave(other);
            }
            Action::Revoke => next.leave(OWN),
        }

        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two hold", |model: &Self, state: &State| {
                let other = state
                    .holder
                    .as_ref()
                    .is_some_and(|holder| holder.id != id(OWN) && !holder.is_expired);
                !other || !state.trusts(model.0)
            }),
            Property::always("a claim that has left is not queued", |_, state: &State| {
                // A claim whose lease has ended is not a holder, even if its record is still
                // written.
                let is_there = state
                    .holder
                    .as_ref()
                    .is_some_and(|holder| holder.id == id(OWN) && !holder.is_expired)
                    || state.waiters.contains(&id(OWN));
                state.leaving != Leaving::Done || !is_there
            }),
            Property::always("a free lock has no waiters", |_, state: &State| {
                state.waiters.is_empty() || state.holder.is_some()
            }),
            Property::sometimes("a grant is notified", |model: &Self, state: &State| {
                state.requests == 1 && state.flight == Flight::None && state.trusts(model.0)
            }),
            Property::sometimes("a claim that leaves hands over", |_, state: &State| {
                state.leaving == Leaving::Done && state.is_holder(OTHERS[1])
            }),
        ]
    }
}

impl State {
    fn is_holder(&self, number: u8) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.id == id(number))
    }

    fn other_holder(&self) -> Option<u8> {
        OTHERS.into_iter().find(|other| self.is_holder(*other))
    }

    fn enter(&mut self, number: u8) -> EnterReply {
        let claim = claim(number, TICK * LEASE.into());
        let request = EnterRequest {
            proposal: self.server.now,
            ..request(&claim, EnterMode::Queue, liveness(number, 1, None))
        };
        let reply = self.server.enter(&request);
        self.has_run(number);
        reply
    }

    fn leave(&mut self, number: u8) {
        self.server.leave(number);
        self.has_run(number);
    }

    /// Receives what a script has sent. The lease of our claim begins again if the script ran for
    /// it or has granted it.
    fn has_run(&mut self, number: u8) {
        let pushes = self.server.take_pushes().into_iter();
        let pushes: Vec<Push> = pushes.map(|(_, push)| push).collect();
        let is_granted = pushes.iter().any(|push| matches!(push, Push::Held(_)));
        if number == OWN || is_granted {
            self.served = self.now;
        }

        self.inbox.extend(pushes);
        self.inspect();
    }

    fn tick(&mut self) {
        self.now += 1;
        self.server.pass(TICK);
        self.inspect();
    }

    fn inspect(&mut self) {
        self.holder = self.server.holder();
        self.waiters = self.server.waiters();
    }

    /// Whether our client trusts its hold.
    fn trusts(&self, mutation: Mutation) -> bool {
        let [lease, grace] = [LEASE, GRACE].map(|ticks| TICK * ticks.into());
        let kept_until = self
            .known
            .validity
            .confirmed
            .map(|(sent_at, _)| sent_at.saturating_add(safe_duration(lease)));

        let is_trusted = match mutation {
            Mutation::FromReceipt => self.now < self.pushed + GRACE,
            Mutation::WaitersLease => kept_until.is_some_and(|until| moment(self.now) < until),
            _ => kept_until.is_some_and(|until| {
                moment(self.now) < hold_from(until, lease, &released_within(grace)).0
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
