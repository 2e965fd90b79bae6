//! A client of the holder's machine sees that the holder's process has ended, and tells the server.
//!
//! The holder forks: its child has inherited the lock of the file and the connection, and may close
//! either. The holder may close its file too, and work on. Its process id may be used again. Two
//! clients look in any order, so that one of them may tell of an older hold. What a process has sent
//! arrives at any later time, also after its end.
//!
//! The child of a process cannot go on with a claim of the library: see `tests/fork.rs` of
//! `leasehold`. The model lets it do so as long as it has the lock of the file or the connection.
//!
//! Neither a lease nor a grace ends: only what was told revokes a hold.

use std::time::Duration;

use stateright::{Model, Property};

use super::server::{ModelServer, claim, liveness, request};
use crate::queue::layout::record as field;
use crate::queue::messages::EnterMode;
use crate::test_models::{breaks, holds};

const HOLDER: u8 = 0;
/// Waits for the holder. Its process does not end.
const NEXT: u8 = 1;
const GRACE: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(3_600);

/// A difference from the library. It shows whether the mutated rule matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// No difference.
    None,
    /// An unlocked file is enough.
    LockAlone,
    /// A process that is gone is enough.
    ProcessAlone,
    /// The hold is read after the look at the process.
    ReadLate,
    /// The server does not check the connection.
    AnyConnection,
    /// The server revokes whatever hold it has.
    AnyHold,
}

#[derive(Clone, Copy, Debug)]
struct EndedProcess(Mutation);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    server: ModelServer,
    /// Who holds the lock on the server.
    held_by: Option<u8>,
    was_next_granted: bool,
    parent: Process,
    /// `None` before the fork.
    child: Option<Process>,
    is_id_reused: bool,
    epoch: u32,
    /// The epoch in a renewal that the server has not executed yet.
    renewal: Option<u32>,
    /// Whether the connection of the next holder is missing.
    is_next_cut: bool,
    lookers: [Looker; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    runs: bool,
    has_lock: bool,
    has_connection: bool,
}

/// ```text
/// Idle ── reads ──► Read ── the process has ended ──► Told ── the server executes it ──► Idle
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Looker {
    Idle,
    /// The record of the holder.
    Read(String),
    Told(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Fork,
    Kill,
    KillChild,
    CloseLock,
    CloseChildLock,
    CloseChildConnection,
    /// The server finds the holder's connection broken: nobody has it, or the network fails.
    Drop,
    Reconnect,
    ReuseId,
    SendRenewal,
    ServeRenewal,
    CutNext,
    Read(usize),
    Look(usize),
    Serve(usize),
}

impl Model for EndedProcess {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut server = ModelServer::start();
        for number in [HOLDER, NEXT] {
            server.subscribe(number.into(), "alive", number);
            let claim = claim(number, LEASE);
            let link = liveness(number, 1, Some(GRACE));
            server.enter(&request(&claim, EnterMode::Queue, link));
        }
        vec![State {
            server,
            held_by: Some(HOLDER),
            was_next_granted: false,
            parent: Process {
                runs: true,
                has_lock: true,
                has_connection: true,
            },
            child: None,
            is_id_reused: false,
            epoch: 1,
            renewal: None,
            is_next_cut: false,
            lookers: [Looker::Idle, Looker::Idle],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::Drop, Action::CutNext]);
        if state.parent.runs {
            actions.extend([Action::Kill, Action::CloseLock, Action::SendRenewal]);
            if state.child.is_none() {
                actions.push(Action::Fork);
            }
            if !state.parent.has_connection && state.epoch == 1 {
                actions.push(Action::Reconnect);
            }
        } else {
            actions.push(Action::ReuseId);
        }
        if state.child.as_ref().is_some_and(|child| child.runs) {
            actions.extend([
                Action::KillChild,
                Action::CloseChildLock,
                Action::CloseChildConnection,
            ]);
        }
        if state.renewal.is_some() {
            actions.push(Action::ServeRenewal);
        }
        for (at, looker) in state.lookers.iter().enumerate() {
            actions.push(match looker {
                Looker::Idle => Action::Read(at),
                Looker::Read(_) => Action::Look(at),
                Looker::Told(_) => Action::Serve(at),
            });
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Fork => next.child = Some(next.parent.clone()),
            Action::Kill => next.parent = Process::ENDED,
            Action::KillChild => next.child = Some(Process::ENDED),
            Action::CloseLock => next.parent.has_lock = false,
            Action::CloseChildLock => next.child.as_mut()?.has_lock = false,
            Action::CloseChildConnection => next.child.as_mut()?.has_connection = false,
            Action::Drop => {
                next.server.disconnect(HOLDER.into());
                next.parent.has_connection = false;
                if let Some(child) = &mut next.child {
                    child.has_connection = false;
                }
            }
            Action::Reconnect => {
                next.server.subscribe(HOLDER.into(), "alive", HOLDER);
                next.parent.has_connection = true;
                next.epoch = 3;
            }
            Action::ReuseId => next.is_id_reused = true,
            Action::SendRenewal => next.renewal = Some(next.epoch),
            Action::ServeRenewal => {
                let link = liveness(HOLDER, next.renewal.take()?, Some(GRACE));
                next.server.renew(&claim(HOLDER, LEASE), &link);
            }
            Action::CutNext => {
                next.server.disconnect(NEXT.into());
                next.is_next_cut = true;
            }
            Action::Read(at) => next.lookers[at] = Looker::Read(next.server.held()?),
            Action::Look(at) => self.look(&mut next, at),
            Action::Serve(at) => self.serve(&mut next, at)?,
        }

        next.held_by = [HOLDER, NEXT]
            .into_iter()
            .find(|number| next.server.is_held_by(*number));
        next.was_next_granted |= next.held_by == Some(NEXT);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two hold", |_, state: &State| {
                state.held_by == Some(HOLDER) || !state.is_trusted_by_holder()
            }),
            Property::always("the next hold is not revoked", |_, state: &State| {
                !state.was_next_granted || state.held_by == Some(NEXT)
            }),
            Property::sometimes("a crash is noticed", |_, state: &State| {
                state.was_next_granted && !state.is_id_reused
            }),
            Property::sometimes("it is noticed after a reconnect", |_, state: &State| {
                state.was_next_granted && state.epoch == 3
            }),
        ]
    }
}

impl Process {
    const ENDED: Self = Self {
        runs: false,
        has_lock: false,
        has_connection: false,
    };
}

impl State {
    fn is_trusted_by_holder(&self) -> bool {
        let by_child = |child: &Process| child.has_lock || child.has_connection;
        self.parent.runs || self.child.as_ref().is_some_and(by_child)
    }
}

impl EndedProcess {
    fn look(self, state: &mut State, at: usize) {
        let Looker::Read(seen) = state.lookers[at].clone() else {
            return;
        };
        let is_locked =
            state.parent.has_lock || state.child.as_ref().is_some_and(|child| child.has_lock);
        let has_ended = match self.0 {
            Mutation::LockAlone => !is_locked,
            Mutation::ProcessAlone => !state.parent.runs,
            _ => !is_locked && !state.parent.runs,
        };

        // The process of the next holder runs.
        let is_of_holder = field::CLIENT.read(&seen) == Some(&liveness(HOLDER, 1, None).client);
        state.lookers[at] = match state.server.held() {
            Some(now) if self.0 == Mutation::ReadLate && has_ended => Looker::Told(now),
            _ if has_ended && is_of_holder => Looker::Told(seen),
            _ => Looker::Idle,
        };
    }

    fn serve(self, state: &mut State, at: usize) -> Option<()> {
        let Looker::Told(seen) = std::mem::replace(&mut state.lookers[at], Looker::Idle) else {
            return None;
        };
        let now = state.server.held()?;
        match self.0 {
            Mutation::AnyConnection if now == seen => state.server.leave(HOLDER),
            Mutation::AnyHold => state.server.revoke_ended(&now),
            _ => state.server.revoke_ended(&seen),
        };
        Some(())
    }
}

/// Shows G-01.
#[test]
fn told_end_of_a_process_keeps_exclusion() {
    holds(EndedProcess(Mutation::None));
}

#[test]
fn unlocked_file_alone_breaks_exclusion() {
    breaks(EndedProcess(Mutation::LockAlone), "no two hold");
}

#[test]
fn process_that_is_gone_alone_breaks_exclusion() {
    breaks(EndedProcess(Mutation::ProcessAlone), "no two hold");
}

#[test]
fn missing_check_of_the_connection_breaks_exclusion() {
    breaks(EndedProcess(Mutation::AnyConnection), "no two hold");
}

#[test]
fn hold_that_is_read_after_the_look_is_revoked_wrongly() {
    let property = "the next hold is not revoked";
    breaks(EndedProcess(Mutation::ReadLate), property);
}

#[test]
fn end_that_is_told_of_an_older_hold_revokes_a_later_one() {
    let property = "the next hold is not revoked";
    breaks(EndedProcess(Mutation::AnyHold), property);
}
