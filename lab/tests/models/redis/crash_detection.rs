//! Crash detection: the connection of a holder breaks and comes back, while a waiter wants its
//! lock. The holder trusts its hold for as long as the library does. The waiter takes the lock when
//! the library would. The model compares no clocks, and a delay has no upper limit.

use std::time::Duration;

use leasehold::Token;
use leasehold::modelled::{
    Absence, BootInstant, ClaimState, EnterReply, Observed, Push, Renewed, Sent, safe_duration,
};
use leasehold::store::Standing;
use stateright::{Model, Property};

use super::lock_model::{
    AbsenceNote, EnterMode, EnterRequest, Id, Kept, Link, LockModel, ModelStanding, Reply, Script,
};
use super::{breaks, holds};

const HOLDER: Id = 0;
const CONTENDER: Id = 1;
/// Two ticks, less the margin that the library adds for clocks that differ.
const GRACE: Duration = Duration::from_millis(1_900);
const LEASE: Duration = Duration::from_secs(3_600);
/// The last moment of the model.
const END: u8 = 4;
const CONNECTIONS: usize = 2;
/// How often the holder sends a renewal, and how often the waiter polls.
const REQUESTS: u8 = 2;
const POLLS: u8 = 3;

/// A difference from the library. It shows whether the mutated rule matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// No difference.
    None,
    /// A sign of life on any connection counts.
    AnyConnection,
    /// A renewal keeps the note of an absence.
    AbsenceIsNotCleared,
    /// The waiter counts an absence from before the request whose reply reported it.
    CountedFromRequest,
    /// The holder trusts its connection for longer than the waiter waits.
    LongerGrace,
    /// The nonce that notes an absence is always the same.
    SameNonce,
}

#[derive(Clone, Copy, Debug)]
struct CrashDetection(Mutation);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    model: LockModel,
    /// The holder's connections, one after the other.
    connections: Vec<Connection>,
    /// Whether the holder considers the last of them intact.
    is_up: bool,
    known: ClaimState,
    /// The holder trusts its hold before this moment.
    until: BootInstant,
    observed: Observed,
    flight: Flight,
    requests: u8,
    polled: u8,
    /// When the lock was granted to the waiter.
    taken: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Connection {
    /// Whether the connection exists from the server's view.
    is_there: bool,
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
        request: EnterRequest,
        expired: String,
    },
    Replied {
        at: u8,
        reply: Reply,
        expired: String,
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

fn link(connection: usize) -> Link {
    Link {
        epoch: u8::try_from(connection).expect("few") * 2 + 1,
        verdict: true,
    }
}

fn claim(id: Id) -> String {
    format!("{id:022}")
}

fn nonce(number: u8) -> String {
    format!("{number:011}")
}

impl Model for CrashDetection {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut lock_state = LockModel::default();
        let request = EnterRequest {
            id: HOLDER,
            mode: EnterMode::Queue,
            link: link(0),
            nonce: 200,
            expired: Vec::new(),
        };
        let mut known = ClaimState::default();
        let granted = answer(Script::on(&mut lock_state, &|_| true).enter(&request));
        let sent = Sent {
            at: moment(0),
            liveness_epoch: 1,
            caller_epoch: 1,
        };
        known.apply_reply(&granted, sent, moment(0));

        let request = EnterRequest {
            id: CONTENDER,
            ..request
        };
        Script::on(&mut lock_state, &|_| true).enter(&request);

        let connections = vec![Connection {
            is_there: true,
            sent_at: None,
            replied_at: None,
        }];
        let observed = Observed::default();
        let flight = Flight::None;
        let until = self.trusted_from(0);
        vec![State {
            now: 0,
            model: lock_state,
            connections,
            is_up: true,
            known,
            until,
            observed,
            flight,
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
            .filter(|(_, connection)| connection.is_there)
        {
            actions.push(Action::Drop(at));
            if connection.sent_at.is_some() {
                actions.push(Action::Serve(at));
            }
        }

        match state.flight {
            Flight::None if state.taken.is_none() && state.polled < POLLS => {
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
                next.connections.push(Connection {
                    is_there: true,
                    sent_at: None,
                    replied_at: None,
                });
                next.is_up = true;
            }
            Action::Drop(at) => {
                next.connections[at].is_there = false;
                next.connections[at].sent_at = None;
            }
            Action::Send => self.send(&mut next),
            Action::Serve(at) => self.serve(&mut next, at),
            Action::ReceiveReply => self.receive(&mut next)?,
            Action::Poll => self.poll(&mut next),
            Action::ServePoll => serve_poll(&mut next)?,
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
                    && state.known.renewed_at == Some((moment(0), 1))
                    && state.until > model.trusted_from(1)
            }),
            Property::sometimes(
                "the hold survives a reconnect",
                |model: &Self, state: &State| {
                    state.known.renewed_at.is_some_and(|(_, epoch)| epoch == 3)
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

        let epoch = match (self.0, state.known.renewed_at) {
            (Mutation::AnyConnection, Some((_, named))) => named,
            _ => u32::from(link(at).epoch),
        };
        let is_enough = state
            .known
            .is_covered_by_liveness(epoch, LEASE, GRACE, moment(state.now));
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

    fn serve(self, state: &mut State, at: usize) {
        let Some(request) = state.connections[at].sent_at.take() else {
            return;
        };
        let noted = if self.0 == Mutation::AbsenceIsNotCleared {
            AbsenceNote::Stays
        } else {
            AbsenceNote::Ends
        };

        let is_there = match request.kind {
            RequestKind::Liveness => true,
            RequestKind::Renewal => {
                Script::on(&mut state.model, &|_| true).renew(HOLDER, link(at), noted) == Kept::Held
            }
        };
        // The server sends no reply to a connection that the holder has given up.
        if state.is_up && at + 1 == state.connections.len() {
            state.connections[at].replied_at = Some((request, is_there));
        }
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
                .apply_renewal(Renewed::Held, moment(request.at), u32::from(link(at).epoch));
        }

        // A hold whose validity has ended never comes back.
        if moment(state.now) < state.until {
            state.until = state.until.max(self.trusted_from(request.at));
        }

        Some(())
    }

    fn poll(self, state: &mut State) {
        let expired = state.observed.expired(moment(state.now));
        let named = expired.as_bytes().chunks(33).map(|one| {
            let one = std::str::from_utf8(one).expect("text");
            (
                one[..22].parse().expect("digits"),
                one[22..].parse().expect("digits"),
            )
        });
        state.polled += 1;

        let nonce = if self.0 == Mutation::SameNonce {
            1
        } else {
            state.polled
        };
        // After a reconnect a renewal extends the hold as well. Otherwise it only inspects the
        // lock.
        let mode = if state.polled == 2 {
            EnterMode::Refresh
        } else {
            EnterMode::Poll
        };
        let link = Link {
            epoch: 1,
            verdict: false,
        };
        let request = EnterRequest {
            id: CONTENDER,
            mode,
            link,
            nonce,
            expired: named.collect(),
        };
        state.flight = Flight::Sent {
            at: state.now,
            request,
            expired,
        };
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
        state
            .observed
            .observe(&answer(reply), &expired, moment(read));
        Some(())
    }
}

fn serve_poll(state: &mut State) -> Option<()> {
    let Flight::Sent {
        at,
        request,
        expired,
    } = std::mem::replace(&mut state.flight, Flight::None)
    else {
        return None;
    };
    let is_there = state
        .connections
        .iter()
        .any(|connection| connection.is_there);
    let there = |id: Id| id != HOLDER || is_there;
    let reply = Script::on(&mut state.model, &there).enter(&request);
    if matches!(reply.standing, ModelStanding::Held(_)) {
        state.taken = state.taken.or(Some(state.now));
    }

    state.flight = Flight::Replied { at, reply, expired };
    Some(())
}

/// The reply as the client reads it.
pub(super) fn answer(reply: Reply) -> EnterReply {
    let absences = reply.absences.into_iter().map(|(id, number)| Absence {
        claim: claim(id),
        nonce: nonce(number),
        grace: GRACE,
    });
    let standing = match reply.standing {
        ModelStanding::Held(token) => Standing::Held {
            token: Token::new(u64::from(token)).expect("above zero"),
        },
        ModelStanding::Queued(ahead) => Standing::Queued {
            ahead: u32::from(ahead),
        },
        ModelStanding::Gone => Standing::Gone,
    };

    let is_checked = reply.is_next || reply.standing == ModelStanding::Gone;
    let soonest = is_checked.then_some(LEASE);
    let last = u64::from(reply.last);
    let position = u32::from(reply.position);
    EnterReply {
        standing,
        last_token: last,
        is_next: reply.is_next,
        position,
        next_expiry: soonest,
        absences: absences.collect(),
    }
}

/// Shows G-01.
#[test]
fn crash_detection_model_keeps_exclusion() {
    holds(CrashDetection(Mutation::None));
}

#[test]
fn absence_counted_over_reconnect_breaks_exclusion() {
    breaks(CrashDetection(Mutation::AnyConnection), "no two hold");
}

#[test]
fn absence_kept_over_renewal_breaks_exclusion() {
    breaks(CrashDetection(Mutation::AbsenceIsNotCleared), "no two hold");
}

#[test]
fn absence_counted_from_request_breaks_exclusion() {
    breaks(CrashDetection(Mutation::CountedFromRequest), "no two hold");
}

#[test]
fn longer_grace_of_the_holder_breaks_exclusion() {
    breaks(CrashDetection(Mutation::LongerGrace), "no two hold");
}

#[test]
fn reused_nonce_breaks_exclusion() {
    breaks(CrashDetection(Mutation::SameNonce), "no two hold");
}
