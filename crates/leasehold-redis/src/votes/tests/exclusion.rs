//! Exclusion with clocks of the same rate. One master may forget everything, once.

use stateright::{Model, Property};

use super::register::VoteRegister;
use crate::test_models::{breaks, holds};
use crate::votes::quorum::{Tally, TallyOutcome};
use crate::votes::record::VoteOutcome;

const MASTERS: usize = 3;
const LEASE: u8 = 2;
/// The last moment of the model.
const END: u8 = 5;

#[derive(Clone, Copy, Debug)]
struct Exclusion {
    /// How long the votes of a master that has forgotten do not count.
    quarantine: u8,
    /// The moment from which the holder counts its lease.
    counts_from: ValidityStart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValidityStart {
    /// Before the request, as in the library.
    Request,
    /// The reply that makes a quorum.
    Reply,
}

/// The masters are sorted, as they are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    masters: [Master; MASTERS],
    acquisitions: Vec<Acquisition>,
    has_forgotten: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Master {
    register: VoteRegister<u8>,
    /// When the lease of the claim ends that has the vote.
    ends: u8,
    counts_from: u8,
    /// The requests in flight to this master, a bit for each acquisition.
    votes: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Acquisition {
    sent_at: u8,
    count: Tally,
    /// Until when the client may trust its hold; 0 if it has none.
    until: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Begin,
    /// A master receives a request at any time, and replies at once. A request that is never
    /// received is lost.
    Vote {
        master: usize,
        by: u8,
    },
    Forget(usize),
}

impl Model for Exclusion {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let masters = [Master::default(); MASTERS];
        vec![State {
            now: 1,
            masters,
            acquisitions: Vec::new(),
            has_forgotten: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }

        if state.acquisitions.len() < 2 {
            actions.push(Action::Begin);
        }

        for (master, at) in state.masters.iter().zip(0..) {
            let coming = (0..2).filter(|by| master.votes & (1 << by) != 0);
            actions.extend(coming.map(|by| Action::Vote { master: at, by }));
            if !state.has_forgotten {
                actions.push(Action::Forget(at));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => {
                next.now += 1;
                let over = next
                    .masters
                    .iter_mut()
                    .filter(|master| master.ends <= next.now);
                over.for_each(|master| master.register.expire());
            }
            Action::Begin => {
                let bit = 1 << next.acquisitions.len();
                next.acquisitions.push(Acquisition {
                    sent_at: next.now,
                    count: Tally::of(MASTERS),
                    until: 0,
                });
                next.masters
                    .iter_mut()
                    .for_each(|master| master.votes |= bit);
            }
            Action::Vote { master, by } => self.vote(&mut next, master, by),
            Action::Forget(at) => {
                // Its connections break, and the requests in flight are lost.
                next.masters[at] = Master {
                    counts_from: next.now + self.quarantine,
                    ..Master::default()
                };
                next.has_forgotten = true;
            }
        }

        next.masters.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two hold", |_, state: &State| {
                state
                    .acquisitions
                    .iter()
                    .filter(|one| state.now < one.until)
                    .count()
                    < 2
            }),
            Property::sometimes("both are granted", |_, state: &State| {
                state
                    .acquisitions
                    .iter()
                    .filter(|one| one.until > 0)
                    .count()
                    == 2
            }),
        ]
    }
}

impl Exclusion {
    fn vote(self, state: &mut State, at: usize, by: u8) {
        let master = &mut state.masters[at];
        let one = &mut state.acquisitions[usize::from(by)];
        master.votes &= !(1 << by);

        // Each acquisition proposes a higher token than the one before.
        let is_granted = master.register.vote(by, u64::from(by) + 1) == VoteOutcome::Granted;
        if is_granted {
            master.ends = state.now + LEASE;
        }

        if one.count.outcome().is_some() {
            return;
        }

        match (is_granted, master.counts_from <= state.now) {
            (true, true) => one.count.granted += 1,
            (true, false) => one.count.unknown += 1,
            (false, _) => one.count.refused += 1,
        }

        if one.count.outcome() == Some(TallyOutcome::Won) {
            let from = if self.counts_from == ValidityStart::Request {
                one.sent_at
            } else {
                state.now
            };
            one.until = from + LEASE;
        }
    }
}

#[test]
fn quarantine_model_keeps_exclusion() {
    holds(Exclusion {
        quarantine: LEASE,
        counts_from: ValidityStart::Request,
    });
}

#[test]
fn missing_quarantine_breaks_exclusion() {
    breaks(
        Exclusion {
            quarantine: 0,
            counts_from: ValidityStart::Request,
        },
        "no two hold",
    );
}

#[test]
fn quarantine_shorter_than_the_lease_breaks_exclusion() {
    breaks(
        Exclusion {
            quarantine: LEASE - 1,
            counts_from: ValidityStart::Request,
        },
        "no two hold",
    );
}

#[test]
fn validity_counted_from_vote_reply_breaks_exclusion() {
    breaks(
        Exclusion {
            quarantine: LEASE,
            counts_from: ValidityStart::Reply,
        },
        "no two hold",
    );
}
