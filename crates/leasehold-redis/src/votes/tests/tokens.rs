//! Tokens without any clock. A client proposes any token, and a lease ends at any time.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::register::VoteRegister;
use crate::test_models::{breaks, holds};
use crate::votes::quorum::{Tally, TallyOutcome};
use crate::votes::record::VoteOutcome;

const MASTERS: usize = 3;

/// A deviation from the library, which shows what the rule is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// The rule of the library.
    None,
    /// A master that is free grants any token.
    AnyToken,
    /// A leave does not raise the master's last token.
    NoTombstone,
    /// One master forgets everything, once, and votes at once.
    Amnesia,
}

#[derive(Clone, Copy, Debug)]
struct Tokens {
    acquisitions: u8,
    token_max: u64,
    /// Whether claims leave, and replies are lost. Leases end and requests are lost in any case.
    leaves: bool,
    mutation: Mutation,
}

/// The masters are sorted, as they are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    masters: [Master; MASTERS],
    acquisitions: Vec<Acquisition>,
    has_forgotten: bool,
}

/// A master, and the messages in flight to it: a bit for each acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Master {
    register: VoteRegister<u8>,
    votes: u8,
    releases: u8,
    /// The acquisitions that have left this master.
    left: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Acquisition {
    token: u64,
    count: Tally,
    /// The acquisitions that were granted before this one began, a bit each.
    after: u8,
    is_won: bool,
    has_left: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The next acquisition proposes this token.
    Begin(u64),
    /// A master receives a vote request at any time; its reply arrives or is lost. A request that
    /// is never received is lost.
    Vote {
        master: usize,
        by: u8,
        is_received: bool,
    },
    /// The acquisition leaves all masters, granted or not.
    Release(u8),
    /// A master receives a leave request.
    Leave {
        master: usize,
        by: u8,
    },
    Expire(usize),
    Forget(usize),
}

impl Model for Tokens {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            masters: [Master::default(); MASTERS],
            acquisitions: Vec::new(),
            has_forgotten: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let begun = state.begun();
        if begun < self.acquisitions {
            actions.extend((1..=self.token_max).map(Action::Begin));
        }

        for (master, at) in state.masters.iter().zip(0..) {
            for by in 0..begun {
                if master.votes & (1 << by) != 0 {
                    actions.push(Action::Vote {
                        master: at,
                        by,
                        is_received: true,
                    });
                    if self.leaves {
                        actions.push(Action::Vote {
                            master: at,
                            by,
                            is_received: false,
                        });
                    }
                }
                if master.releases & (1 << by) != 0 {
                    actions.push(Action::Leave { master: at, by });
                }
            }
            if master.register.held.is_some() {
                actions.push(Action::Expire(at));
            }
            if self.mutation == Mutation::Amnesia && !state.has_forgotten {
                actions.push(Action::Forget(at));
            }
        }

        if self.leaves {
            let staying = (0..begun).filter(|by| !state.acquisitions[usize::from(*by)].has_left);
            actions.extend(staying.map(Action::Release));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Begin(token) => next.begin(token),
            Action::Vote {
                master,
                by,
                is_received,
            } => self.vote(&mut next, master, by, is_received),
            Action::Release(by) => {
                next.acquisitions[usize::from(by)].has_left = true;
                next.masters
                    .iter_mut()
                    .for_each(|master| master.releases |= 1 << by);
            }
            Action::Leave { master, by } => self.leave(&mut next, master, by),
            Action::Expire(master) => next.masters[master].register.expire(),
            Action::Forget(master) => {
                next.masters[master].register = VoteRegister::default();
                next.has_forgotten = true;
            }
        }

        next.masters.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no token is given twice", |_, state: &State| {
                let won: Vec<u64> = state.won().map(|(_, one)| one.token).collect();
                won.iter().collect::<BTreeSet<_>>().len() == won.len()
            }),
            Property::always("tokens rise", |_, state: &State| {
                state.won().all(|(_, later)| {
                    state.won().all(|(at, earlier)| {
                        later.after & (1 << at) == 0 || later.token > earlier.token
                    })
                })
            }),
            Property::always(
                "no master votes for a claim that has left",
                |_, state: &State| {
                    state.masters.iter().all(|master| {
                        master
                            .register
                            .held
                            .is_none_or(|(_, by)| master.left & (1 << by) == 0)
                    })
                },
            ),
            Property::sometimes("all are granted", |model: &Self, state: &State| {
                state.won().count() == usize::from(model.acquisitions)
            }),
        ]
    }
}

impl Tokens {
    fn vote(&self, state: &mut State, at: usize, by: u8, is_received: bool) {
        let master = &mut state.masters[at];
        let one = &mut state.acquisitions[usize::from(by)];
        master.votes &= !(1 << by);

        if self.mutation == Mutation::AnyToken {
            master.register.last_token = 0;
        }

        let outcome = master.register.vote(by, one.token);
        if !is_received || one.has_left || one.count.outcome().is_some() {
            return;
        }

        match outcome {
            VoteOutcome::Granted => one.count.granted += 1,
            VoteOutcome::Held(_) | VoteOutcome::Stale(_) => one.count.refused += 1,
        }

        one.is_won = one.count.outcome() == Some(TallyOutcome::Won);
    }

    fn leave(&self, state: &mut State, at: usize, by: u8) {
        let master = &mut state.masters[at];
        let last = master.register.last_token;
        master
            .register
            .leave(by, state.acquisitions[usize::from(by)].token);
        if self.mutation == Mutation::NoTombstone {
            master.register.last_token = last;
        }
        master.releases &= !(1 << by);
        master.left |= 1 << by;
    }
}

impl State {
    fn begun(&self) -> u8 {
        u8::try_from(self.acquisitions.len()).expect("a few")
    }

    fn begin(&mut self, token: u64) {
        let by = self.begun();
        let after = self.won().map(|(other, _)| 1 << other).sum();
        self.acquisitions.push(Acquisition {
            token,
            count: Tally::of(MASTERS),
            after,
            is_won: false,
            has_left: false,
        });
        self.masters
            .iter_mut()
            .for_each(|master| master.votes |= 1 << by);
    }

    fn won(&self) -> impl Iterator<Item = (usize, &Acquisition)> {
        self.acquisitions
            .iter()
            .enumerate()
            .filter(|(_, one)| one.is_won)
    }
}

#[test]
fn token_model_keeps_two_acquisitions_apart() {
    holds(Tokens {
        acquisitions: 2,
        token_max: 3,
        leaves: true,
        mutation: Mutation::None,
    });
}

/// No claim leaves, and each reply arrives. Otherwise the model would not end within a minute.
#[test]
fn token_model_keeps_three_acquisitions_apart() {
    holds(Tokens {
        acquisitions: 3,
        token_max: 3,
        leaves: false,
        mutation: Mutation::None,
    });
}

#[test]
fn accepting_any_token_breaks_monotonicity() {
    for property in ["no token is given twice", "tokens rise"] {
        breaks(
            Tokens {
                acquisitions: 2,
                token_max: 2,
                leaves: true,
                mutation: Mutation::AnyToken,
            },
            property,
        );
    }
}

#[test]
fn missing_tombstones_revive_released_claims() {
    breaks(
        Tokens {
            acquisitions: 2,
            token_max: 2,
            leaves: true,
            mutation: Mutation::NoTombstone,
        },
        "no master votes for a claim that has left",
    );
}

#[test]
fn forgetful_master_breaks_monotonicity() {
    for property in ["no token is given twice", "tokens rise"] {
        breaks(
            Tokens {
                acquisitions: 2,
                token_max: 2,
                leaves: true,
                mutation: Mutation::Amnesia,
            },
            property,
        );
    }
}
