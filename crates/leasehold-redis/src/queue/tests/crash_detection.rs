//! Crash detection: the connection of a holder breaks and comes back, while a waiter wants its
//! lock. The holder trusts its hold for as long as the library does. The waiter takes the lock when
//! the library would. The model compares no clocks, and a delay has no upper limit.
//!
//! The server's clock stands still: no lease ends.

use std::time::Duration;

use lab_redis_model::Connection as ConnectionId;
use stateright::{Model, Property};

use super::server::{ModelServer, claim, liveness, request};
use crate::queue::claims::{ClaimState, ClaimValidity};
use crate::queue::messages::{
    Absence, EnterMode, EnterReply, EnterRequest, Nonce, Push, Renewed, Sent,
};
use crate::queue::record::LivenessRef;
use crate::test_models::{breaks, holds};
use leasehold_core::internal::{BootInstant, Observed, safe_duration};

const HOLDER: u8 = 0;
const CONTENDER: u8 = 1;
/// Two ticks, less the margin that the library adds for clocks that differ.
const GRACE: Duration = Duration::from_millis(1_900);
const LEASE: Duration = Duration::from_secs(3_600);
/// The last moment of the model.
const END: u8 = 4;
const CONNECTIONS: usize = 2;
/// How often the holder sends a renewal, how often the waiter polls, and how often processes try.
const REQUESTS: u8 = 2;
const POLLS: u8 = 3;
const TRIES: u8 = 2;

/// A difference from the library. It shows whether the mutated rule matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// No difference.
    None,
    /// A sign of life on any connection counts.
    AnyConnection,
    /// The waiter counts an absence from before the request whose reply reported it.
    CountedFromRequest,
    /// The holder trusts its connection for longer than the waiter waits.
    LongerGrace,
    /// The nonce that notes an absence is always the same.
    SameNonce,
}

/// How the contender asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    /// One process waits in the queue.
    Waits,
    /// One process tries again and again.
    Tries,
}

#[derive(Clone, Copy, Debug)]
struct CrashDetection(Mutation, Contender);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    server: ModelServer,
    /// The holder's connections, one after the other.
    connections: Vec<Connection>,
    /// Whether the holder considers the last of them intact.
    is_up: bool,
    known: ClaimState,
    /// The holder trusts its hold before this moment.
    until: BootInstant,
    observed: Observed<String>,
    flight: Flight,
    requests: u8,
    polled: u8,
    /// When the lock was granted to the waiter.
    taken: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Connection {
    /// Whether the server has found the connection broken.
    is_dropped: bool,
    sent_at: Option<Request>,
    replied_at: Option<(Request, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    at: u8,
    kind: RequestKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RequestKind {
    Liveness,
    Renewal,
}

/// The waiter's request, and its reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Flight {
    None,
    Sent {
        at: u8,
        expired: Vec<Absence>,
    },
    Replied {
        at: u8,
        reply: EnterReply,
        expired: Vec<Absence>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    /// The holder finds its connection broken.
    Break,
    Connect,
    /// The server finds a connection broken.
    Drop(usize),
    Send,
    Serve(usize),
    ReceiveReply,
    Poll,
    ServePoll,
    ReceivePoll,
}

fn moment(tick: u8) -> BootInstant {
    BootInstant::from_nanos(u64::from(tick + 1) * 1_000_000_000)
}

/// Returns the number of connections and disconnections before the end of this connection.
fn epoch(connection: usize) -> u32 {
    u32::try_from(connection).expect("few") * 2 + 1
}

fn holder_liveness(connection: usize) -> LivenessRef {
    liveness(HOLDER, epoch(connection), Some(GRACE))
}

impl Model for CrashDetection {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut server = ModelServer::start();
        server.subscribe(0, "alive", HOLDER);
        let holder = claim(HOLDER, LEASE);
        let granted = server.enter(&request(&holder, EnterMode::Queue, holder_liveness(0)));
        let sent = Sent {
            at: moment(0),
            liveness_epoch: 1,
            caller_epoch: 1,
        };
        let mut known = ClaimState::new(ClaimValidity::new(LEASE, Some(GRACE)));
        known.apply_reply(&granted, sent, moment(0));

        if self.1 == Contender::Waits {
            let contender = claim(CONTENDER, LEASE);
            let link = liveness(CONTENDER, 1, None);
            server.enter(&request(&contender, EnterMode::Queue, link));
        }

        vec![State {
            now: 0,
            server,
            connections: vec![Connection::default()],
            is_up: true,
            known,
            until: self.trusted_from(0),
            observed: Observed::default(),
            flight: Flight::None,
            requests: 0,
            polled: 0,
            taken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }

        let last = state
            .connections
            .last()
            .expect("the holder has a connection");
        if state.is_up {
            actions.push(Action::Break);
            if last.sent_at.is_none() && last.replied_at.is_none() && state.requests < REQUESTS {
                actions.push(Action::Send);
            }
            if last.replied_at.is_some() {
                actions.push(Action::ReceiveReply);
            }
        } else if state.connections.len() < CONNECTIONS {
            actions.push(Action::Connect);
        }

        for (at, connection) in state
            .connections
            .iter()
            .enumerate()
            .filter(|(_, connection)| !connection.is_dropped)
        {
            actions.push(Action::Drop(at));
            if connection.sent_at.is_some() {
                actions.push(Action::Serve(at));
            }
        }

        let polls = match self.1 {
            Contender::Waits => POLLS,
            Contender::Tries => TRIES,
        };
        match state.flight {
            Flight::None if state.taken.is_none() && state.polled < polls => {
                actions.push(Action::Poll);
            }
            Flight::None => {}
            Flight::Sent { .. } => actions.push(Action::ServePoll),
            Flight::Replied { .. } => actions.push(Action::ReceivePoll),
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Break => {
                next.is_up = false;
                // A request that is on its way to the server may still arrive there.
                next.connections.last_mut()?.replied_at = None;
            }
            Action::Connect => {
                let number = id_of(next.connections.len());
                next.server.subscribe(number, "alive", HOLDER);
                next.connections.push(Connection::default());
                next.is_up = true;
            }
            Action::Drop(at) => {
                next.server.disconnect(id_of(at));
                next.connections[at].is_dropped = true;
                next.connections[at].sent_at = None;
            }
            Action::Send => self.send(&mut next),
            Action::Serve(at) => serve(&mut next, at),
            Action::ReceiveReply => self.receive(&mut next)?,
            Action::Poll => poll(&mut next),
            Action::ServePoll => self.serve_poll(&mut next)?,
            Action::ReceivePoll => self.receive_poll(&mut next)?,
        }

        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two hold", |_, state: &State| {
                state.taken.is_none_or(|at| state.until <= moment(at))
            }),
            Property::sometimes("a crash is detected", |_, state: &State| {
                state.taken.is_some()
            }),
            Property::sometimes("signs of life are enough", |model: &Self, state: &State| {
                state.connections.len() == 1
                    && state.known.validity.confirmed == Some((moment(0), 1))
                    && state.until > model.trusted_from(1)
            }),
            Property::sometimes(
                "the hold survives a reconnect",
                |model: &Self, state: &State| {
                    state
                        .known
                        .validity
                        .confirmed
                        .is_some_and(|(_, epoch)| epoch == 3)
                        && state.until > model.trusted_from(1)
                },
            ),
        ]
    }
}

impl CrashDetection {
    fn trusted_from(self, sent_at: u8) -> BootInstant {
        let longer = if self.0 == Mutation::LongerGrace {
            Duration::from_secs(1)
        } else {
            Duration::ZERO
        };
        moment(sent_at).saturating_add(safe_duration(GRACE + longer))
    }

    fn send(self, state: &mut State) {
        let at = state.connections.len() - 1;
        state.requests += 1;

        let epoch = match (self.0, state.known.validity.confirmed) {
            (Mutation::AnyConnection, Some((_, named))) => named,
            _ => epoch(at),
        };
        let is_enough = state.known.is_covered_by_ping(epoch, moment(state.now));
        let kind = if is_enough {
            RequestKind::Liveness
        } else {
            RequestKind::Renewal
        };
        state.connections[at].sent_at = Some(Request {
            at: state.now,
            kind,
        });
    }

    fn receive(self, state: &mut State) -> Option<()> {
        let at = state.connections.len() - 1;
        let (request, is_there) = state.connections[at].replied_at.take()?;
        if !is_there {
            state.known.apply_push(&Push::Gone);
            state.until = BootInstant::from_nanos(0);
            return Some(());
        }

        if request.kind == RequestKind::Renewal {
            state
                .known
                .apply_renewal(Renewed::Held, moment(request.at), epoch(at));
        }

        // A hold whose validity has ended never comes back.
        if moment(state.now) < state.until {
            state.until = state.until.max(self.trusted_from(request.at));
        }

        Some(())
    }

    fn serve_poll(self, state: &mut State) -> Option<()> {
        let Flight::Sent { at, expired } = std::mem::replace(&mut state.flight, Flight::None)
        else {
            return None;
        };

        // After a reconnect a request extends the lease as well. Otherwise it only inspects the
        // lock.
        let mode = match self.1 {
            Contender::Tries => EnterMode::TryNow,
            Contender::Waits if state.polled == 2 => EnterMode::Refresh,
            Contender::Waits => EnterMode::Poll,
        };
        let number = if self.0 == Mutation::SameNonce {
            1
        } else {
            state.polled
        };
        let contender = claim(CONTENDER, LEASE);
        let reply = state.server.enter(&EnterRequest {
            nonce: Nonce(number.into()),
            expired: expired.clone(),
            ..request(&contender, mode, liveness(CONTENDER, 1, None))
        });
        if reply.standing.token().is_some() {
            state.taken = state.taken.or(Some(state.now));
        }

        state.flight = Flight::Replied { at, reply, expired };
        Some(())
    }

    fn receive_poll(self, state: &mut State) -> Option<()> {
        let Flight::Replied { at, reply, expired } =
            std::mem::replace(&mut state.flight, Flight::None)
        else {
            return None;
        };

        let read = if self.0 == Mutation::CountedFromRequest {
            at
        } else {
            state.now
        };
        let token = reply.standing.token();
        let has_looked = reply.next_expiry.is_some();
        let ended = if has_looked { &expired[..] } else { &[] };
        state
            .observed
            .observe(token, &reply.absences, ended, moment(read));
        Some(())
    }
}

fn serve(state: &mut State, at: usize) {
    let Some(request) = state.connections[at].sent_at.take() else {
        return;
    };
    let is_there = match request.kind {
        RequestKind::Liveness => true,
        RequestKind::Renewal => {
            let holder = claim(HOLDER, LEASE);
            state.server.renew(&holder, &holder_liveness(at)) == Renewed::Held
        }
    };

    // The server sends no reply to a connection that the holder has given up.
    if state.is_up && at + 1 == state.connections.len() {
        state.connections[at].replied_at = Some((request, is_there));
    }
}

fn poll(state: &mut State) {
    state.polled += 1;
    state.flight = Flight::Sent {
        at: state.now,
        expired: state.observed.ended(moment(state.now)),
    };
}

/// Returns a connection's number on the server.
fn id_of(connection: usize) -> ConnectionId {
    ConnectionId::try_from(connection).expect("few")
}

/// Shows G-01.
#[test]
fn crash_detection_model_keeps_exclusion() {
    holds(CrashDetection(Mutation::None, Contender::Waits));
}

#[test]
fn absence_counted_over_reconnect_breaks_exclusion() {
    breaks(
        CrashDetection(Mutation::AnyConnection, Contender::Waits),
        "no two hold",
    );
}

#[test]
fn absence_counted_from_request_breaks_exclusion() {
    breaks(
        CrashDetection(Mutation::CountedFromRequest, Contender::Waits),
        "no two hold",
    );
}

#[test]
fn longer_grace_of_the_holder_breaks_exclusion() {
    breaks(
        CrashDetection(Mutation::LongerGrace, Contender::Waits),
        "no two hold",
    );
}

#[test]
fn reused_nonce_breaks_exclusion() {
    breaks(
        CrashDetection(Mutation::SameNonce, Contender::Waits),
        "no two hold",
    );
}

/// Shows G-01.
#[test]
fn absence_observed_by_repeated_tries_keeps_exclusion() {
    holds(CrashDetection(Mutation::None, Contender::Tries));
}
