//! Crash detection: a holder whose connection breaks and comes back, and somebody who waits for its lock. The holder counts on
//! what the library counts on, who waits takes what the library would; no clock is compared, and nothing has a longest delay.

use std::time::Duration;

use leasehold::modelled::{Absence, Answer, Known, Moment, Renewed, Sighting, Told, trusted};
use leasehold::{Standing, Token};
use stateright::{Model, Property};

use super::line::{Asking, How, Id, Kept, Line, Link, Noted, Place, Reply, Script};
use super::{breaks, holds};

const HOLDER: Id = 0;
const CONTENDER: Id = 1;
/// Two ticks, less what the library adds for clocks that differ.
const GRACE: Duration = Duration::from_millis(1_900);
const LEASE: Duration = Duration::from_secs(3_600);
/// The last moment there is.
const END: u8 = 4;
const CONNECTIONS: usize = 2;
/// How often the holder asks, and who waits looks.
const QUESTIONS: u8 = 2;
const LOOKS: u8 = 3;

/// What is different from the library, to see whether it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// Nothing.
    None,
    /// A sign of life on any connection counts.
    AnyConnection,
    /// A renewal leaves what was noted of an absence.
    NoteStays,
    /// Who waits counts an absence from before the question that told of it.
    FromTheQuestion,
    /// The holder counts on its connection for longer than who waits waits.
    LongerGrace,
    /// What notes an absence is always the same.
    SameNonce,
}

#[derive(Clone, Copy, Debug)]
struct Presence(Twin);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    line: Line,
    /// The holder's connections, one after the other.
    connections: Vec<Connection>,
    /// Whether the holder takes the last of them for whole.
    is_up: bool,
    known: Known,
    /// The holder trusts its hold before this.
    until: Moment,
    sighting: Sighting,
    flight: Flight,
    asked: u8,
    looked: u8,
    /// When the lock was given to who waits.
    taken: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Connection {
    /// As the server sees it.
    is_there: bool,
    asked: Option<Question>,
    answered: Option<(Question, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
    at: u8,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    SignOfLife,
    Renewal,
}

/// The question of who waits, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Flight {
    None,
    Asked { at: u8, asking: Asking, ripe: String },
    Answered { at: u8, reply: Reply, ripe: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    /// The holder finds its connection broken.
    Break,
    Connect,
    /// The server finds a connection broken.
    Drop(usize),
    Ask,
    Serve(usize),
    Hear,
    Look,
    ServeLook,
    HearLook,
}

fn moment(tick: u8) -> Moment {
    Moment::from_nanos(u64::from(tick + 1) * 1_000_000_000)
}

fn link(connection: usize) -> Link {
    Link { epoch: u8::try_from(connection).expect("few") * 2 + 1, judged: true }
}

fn claim(id: Id) -> String {
    format!("{id:022}")
}

fn nonce(number: u8) -> String {
    format!("{number:011}")
}

impl Model for Presence {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut line = Line::default();
        let asking = Asking { id: HOLDER, how: How::Queue, link: link(0), nonce: 200, ripe: Vec::new() };
        let mut known = Known::default();
        let granted = answer(Script::on(&mut line, &|_| true).enter(&asking));
        known.answered(&granted, moment(0), 1, 1, moment(0));
        let asking = Asking { id: CONTENDER, ..asking };
        Script::on(&mut line, &|_| true).enter(&asking);
        let connections = vec![Connection { is_there: true, asked: None, answered: None }];
        let (sighting, flight) = (Sighting::default(), Flight::None);
        let until = self.trusted_from(0);
        vec![State {
            now: 0,
            line,
            connections,
            is_up: true,
            known,
            until,
            sighting,
            flight,
            asked: 0,
            looked: 0,
            taken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }
        let last = state.connections.last().expect("there is one");
        if state.is_up {
            actions.push(Action::Break);
            if last.asked.is_none() && last.answered.is_none() && state.asked < QUESTIONS {
                actions.push(Action::Ask);
            }
            if last.answered.is_some() {
                actions.push(Action::Hear);
            }
        } else if state.connections.len() < CONNECTIONS {
            actions.push(Action::Connect);
        }
        for (at, connection) in state.connections.iter().enumerate().filter(|(_, connection)| connection.is_there) {
            actions.push(Action::Drop(at));
            if connection.asked.is_some() {
                actions.push(Action::Serve(at));
            }
        }
        match state.flight {
            Flight::None if state.taken.is_none() && state.looked < LOOKS => actions.push(Action::Look),
            Flight::None => {}
            Flight::Asked { .. } => actions.push(Action::ServeLook),
            Flight::Answered { .. } => actions.push(Action::HearLook),
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Break => {
                next.is_up = false;
                // What is on its way to the server may still come there.
                next.connections.last_mut()?.answered = None;
            }
            Action::Connect => {
                next.connections.push(Connection { is_there: true, asked: None, answered: None });
                next.is_up = true;
            }
            Action::Drop(at) => (next.connections[at].is_there, next.connections[at].asked) = (false, None),
            Action::Ask => self.ask(&mut next),
            Action::Serve(at) => self.serve(&mut next, at),
            Action::Hear => self.hear(&mut next)?,
            Action::Look => self.look(&mut next),
            Action::ServeLook => serve_look(&mut next)?,
            Action::HearLook => self.hear_look(&mut next)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two hold", |_, state: &State| state.taken.is_none_or(|at| state.until <= moment(at))),
            Property::sometimes("a crash is noticed", |_, state: &State| state.taken.is_some()),
            Property::sometimes("signs of life are enough", |model: &Self, state: &State| {
                state.connections.len() == 1
                    && state.known.heard == Some((moment(0), 1))
                    && state.until > model.trusted_from(1)
            }),
            Property::sometimes("it is held on over a reconnect", |model: &Self, state: &State| {
                state.known.heard.is_some_and(|(_, epoch)| epoch == 3) && state.until > model.trusted_from(1)
            }),
        ]
    }
}

impl Presence {
    fn trusted_from(self, asked: u8) -> Moment {
        let longer = if self.0 == Twin::LongerGrace { Duration::from_secs(1) } else { Duration::ZERO };
        moment(asked).after(trusted(GRACE + longer))
    }

    fn ask(self, state: &mut State) {
        let at = state.connections.len() - 1;
        state.asked += 1;
        let epoch = match (self.0, state.known.heard) {
            (Twin::AnyConnection, Some((_, named))) => named,
            _ => u32::from(link(at).epoch),
        };
        let is_enough = state.known.is_vouched_for(epoch, LEASE, GRACE, moment(state.now));
        let what = if is_enough { What::SignOfLife } else { What::Renewal };
        state.connections[at].asked = Some(Question { at: state.now, what });
    }

    fn serve(self, state: &mut State, at: usize) {
        let Some(question) = state.connections[at].asked.take() else { return };
        let noted = if self.0 == Twin::NoteStays { Noted::Stays } else { Noted::Ends };
        let is_there = match question.what {
            What::SignOfLife => true,
            What::Renewal => Script::on(&mut state.line, &|_| true).renew(HOLDER, link(at), noted) == Kept::Held,
        };
        // To a connection that the holder has given up nothing is answered.
        if state.is_up && at + 1 == state.connections.len() {
            state.connections[at].answered = Some((question, is_there));
        }
    }

    fn hear(self, state: &mut State) -> Option<()> {
        let at = state.connections.len() - 1;
        let (question, is_there) = state.connections[at].answered.take()?;
        if !is_there {
            state.known.told(&Told::Gone);
            state.until = Moment::from_nanos(0);
            return Some(());
        }
        if question.what == What::Renewal {
            state.known.renewal(Renewed::Held, moment(question.at), u32::from(link(at).epoch));
        }
        // What has run out never comes back.
        if moment(state.now) < state.until {
            state.until = state.until.max(self.trusted_from(question.at));
        }
        Some(())
    }

    fn look(self, state: &mut State) {
        let ripe = state.sighting.ripe(moment(state.now));
        let named = ripe.as_bytes().chunks(33).map(|one| {
            let one = std::str::from_utf8(one).expect("text");
            (one[..22].parse().expect("digits"), one[22..].parse().expect("digits"))
        });
        state.looked += 1;
        let nonce = if self.0 == Twin::SameNonce { 1 } else { state.looked };
        // After a reconnect it is kept as well, else it only looks.
        let how = if state.looked == 2 { How::Find } else { How::Look };
        let link = Link { epoch: 1, judged: false };
        let asking = Asking { id: CONTENDER, how, link, nonce, ripe: named.collect() };
        state.flight = Flight::Asked { at: state.now, asking, ripe };
    }

    fn hear_look(self, state: &mut State) -> Option<()> {
        let Flight::Answered { at, reply, ripe } = std::mem::replace(&mut state.flight, Flight::None) else {
            return None;
        };
        let read = if self.0 == Twin::FromTheQuestion { at } else { state.now };
        state.sighting.read(&answer(reply), &ripe, moment(read));
        Some(())
    }
}

fn serve_look(state: &mut State) -> Option<()> {
    let Flight::Asked { at, asking, ripe } = std::mem::replace(&mut state.flight, Flight::None) else { return None };
    let is_there = state.connections.iter().any(|connection| connection.is_there);
    let there = |id: Id| id != HOLDER || is_there;
    let reply = Script::on(&mut state.line, &there).enter(&asking);
    if matches!(reply.place, Place::Held(_)) {
        state.taken = state.taken.or(Some(state.now));
    }
    state.flight = Flight::Answered { at, reply, ripe };
    Some(())
}

/// As the client reads it.
pub(super) fn answer(reply: Reply) -> Answer {
    let absences =
        reply.absences.into_iter().map(|(id, number)| Absence { claim: claim(id), nonce: nonce(number), grace: GRACE });
    let standing = match reply.place {
        Place::Held(token) => Standing::Held { token: Token::new(u64::from(token)).expect("above zero") },
        Place::Queued(ahead) => Standing::Queued { ahead: u32::from(ahead) },
        Place::Gone => Standing::Gone,
    };
    let looked = reply.is_next || reply.place == Place::Gone;
    let soonest = looked.then_some(LEASE);
    let (last, position) = (u64::from(reply.last), u32::from(reply.position));
    Answer { standing, last, is_next: reply.is_next, position, soonest, absences: absences.collect() }
}

#[test]
fn presence_keeps_two_apart() {
    holds(Presence(Twin::None));
}

#[test]
fn counted_over_a_reconnect_two_hold() {
    breaks(Presence(Twin::AnyConnection), "no two hold");
}

#[test]
fn with_notes_that_outlive_a_renewal_two_hold() {
    breaks(Presence(Twin::NoteStays), "no two hold");
}

#[test]
fn counted_from_the_question_two_hold() {
    breaks(Presence(Twin::FromTheQuestion), "no two hold");
}

#[test]
fn with_a_longer_grace_of_the_holder_two_hold() {
    breaks(Presence(Twin::LongerGrace), "no two hold");
}

#[test]
fn with_one_nonce_for_all_two_hold() {
    breaks(Presence(Twin::SameNonce), "no two hold");
}
