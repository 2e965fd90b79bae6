//! The one list of faults: what each does, to which stores, how it is done, how it is seen to have had an effect, and what a
//! store promises under it.

#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod clients;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod clocks;
mod files;
mod list;
mod names;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod network;
mod persistence;
mod processes;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod redis_state;
mod servers;
mod zookeeper;

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use crate::fault_run::{Effect, FaultRun};
use crate::testbed::Backend;
use crate::{Random, now};

pub use list::FAULTS;

/// A fault, and what is promised under it.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// As it is called in commands and tables.
    pub name: &'static str,
    /// What happens.
    pub description: &'static str,
    /// What shows that it had an effect.
    pub evidence: &'static str,
    /// What a store must be given for it.
    pub requires: Requirement,
    /// How often it must have an effect in a run, however short.
    pub min_effects: usize,
    /// The stores it exists for, what each promises, and within how many seconds each name is granted again.
    pub cells: &'static [(Backend, Guarantee, u64)],
    /// Does it once, and ends it; `None` if it had no effect.
    pub inject: fn(&mut FaultRun, &mut Random) -> Result<Option<Effect>>,
}

/// What a store must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing out of the ordinary.
    None,
    /// To keep its data.
    PersistentData,
    /// Clocks of their own for servers.
    ServerClock,
    /// Wall clocks of their own for takers.
    WorkerClocks,
    /// A user of its own for takers.
    DedicatedUser,
    /// A disk that is soon full.
    SmallDisk,
    /// To keep its data, and to read it slowly.
    SlowStart,
    /// Locks whose names mean something elsewhere.
    HostileNames,
}

/// What a store promises under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// No two hold at once by the common clock, and tokens rise.
    Exclusion,
    /// Tokens are unique and rise. Two may hold at once, and whoever holds wrongly hears of it in time.
    TokensOnly,
    /// As exclusion, and who asks while it lasts is refused.
    Refuses,
}

impl Guarantee {
    /// Its letter in tables.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Exclusion => 'E',
            Self::TokensOnly => 'T',
            Self::Refuses => 'R',
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}

/// Faults that need nothing and must be borne, three of them with nothing between.
fn mixed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let here = run.testbed.backend;
    let tolerated = |fault: &&Fault| {
        let is_tolerated = fault
            .cells
            .iter()
            .any(|(own, guarantee, _)| *own == here && *guarantee == Guarantee::Exclusion);
        is_tolerated && fault.requires == Requirement::None && fault.name != "mixed"
    };
    let tolerated: Vec<&Fault> = FAULTS.iter().filter(tolerated).collect();
    let since = now();
    let mut evidence = Vec::new();
    for _ in 0..3 {
        let fault = tolerated[usize::try_from(random.below(tolerated.len() as u64))?];
        let effect = (fault.inject)(run, &mut Random::seeded(random.below(u64::MAX)))?;
        evidence.extend(effect.map(|effect| format!("{}: {}", fault.name, effect.evidence)));
    }
    Ok((!evidence.is_empty()).then(|| ended_now(since, evidence.join("; "))))
}

/// A fault that was over as soon as it was done.
fn instant(evidence: impl Into<String>) -> Effect {
    let now = now();
    Effect {
        since: now,
        until: now,
        recovered: now,
        evidence: evidence.into(),
    }
}

/// Until now.
fn ended_now(since: u64, evidence: impl Into<String>) -> Effect {
    let until = now();
    Effect {
        since,
        until,
        recovered: until,
        evidence: evidence.into(),
    }
}

/// A fault of one moment.
fn at_moment(at: u64, evidence: impl Into<String>) -> Effect {
    Effect {
        since: at,
        until: at,
        recovered: at,
        evidence: evidence.into(),
    }
}

/// A fault lasts as long.
fn wait(time: Duration) {
    std::thread::sleep(time);
}

fn millis(random: &mut Random, least: u64, most: u64) -> Duration {
    Duration::from_millis(least + random.below(most - least))
}
