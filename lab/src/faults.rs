//! The one list of faults: what each does, to which stores, how it is done, how it is seen to have had an effect, and what a
//! store promises under it.

#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod clients;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod clocks;
mod files;
mod kept;
mod list;
mod names;
mod processes;
mod servers;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod state;
#[expect(clippy::unnecessary_wraps, reason = "all faults are of one form")]
mod wires;
mod zookeeper;

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use crate::ground::Store;
use crate::storm::{Storm, Struck};
use crate::{Random, now};

pub use list::FAULTS;

/// A fault, and what is promised under it.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// As it is called in commands and tables.
    pub name: &'static str,
    /// What happens.
    pub does: &'static str,
    /// What shows that it had an effect.
    pub seen: &'static str,
    /// What a store must be given for it.
    pub needs: Needs,
    /// How often it must have an effect in a run, however short.
    pub least: usize,
    /// The stores it exists for, what each promises, and within how many seconds each name is granted again.
    pub cells: &'static [(Store, Expect, u64)],
    /// Does it once, and ends it; `None` if it had no effect.
    pub strike: fn(&mut Storm, &mut Random) -> Result<Option<Struck>>,
}

/// What a store must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing out of the ordinary.
    Nothing,
    /// To keep its data.
    Data,
    /// Clocks of their own for servers.
    OwnClock,
    /// Wall clocks of their own for takers.
    TakersClocks,
    /// A user of its own for takers.
    OwnUser,
    /// A disk that is soon full.
    SmallDisk,
    /// To keep its data, and to read it slowly.
    SlowStart,
    /// Locks whose names mean something elsewhere.
    HostileNames,
}

/// What a store promises under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No two hold at once by the common clock, and tokens rise.
    Exclusion,
    /// Tokens are unique and rise. Two may hold at once, and whoever holds wrongly hears of it in time.
    Tokens,
    /// As exclusion, and who asks while it lasts is refused.
    Refusal,
}

impl Expect {
    /// Its letter in tables.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Exclusion => 'C',
            Self::Tokens => 'T',
            Self::Refusal => 'R',
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}

/// Faults that need nothing and must be borne, three of them with nothing between.
fn mixed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let here = storm.ground.store;
    let borne = |fault: &&Fault| {
        let is_borne = fault.cells.iter().any(|(own, expect, _)| *own == here && *expect == Expect::Exclusion);
        is_borne && fault.needs == Needs::Nothing && fault.name != "mixed"
    };
    let borne: Vec<&Fault> = FAULTS.iter().filter(borne).collect();
    let since = now();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let fault = borne[usize::try_from(random.below(borne.len() as u64))?];
        let struck = (fault.strike)(storm, &mut Random::seeded(random.below(u64::MAX)))?;
        seen.extend(struck.map(|struck| format!("{}: {}", fault.name, struck.seen)));
    }
    Ok((!seen.is_empty()).then(|| lasted(since, seen.join("; "))))
}

/// A fault that was over as soon as it was done.
fn at_once(seen: impl Into<String>) -> Struck {
    let now = now();
    Struck { since: now, until: now, over: now, seen: seen.into() }
}

/// Until now.
fn lasted(since: u64, seen: impl Into<String>) -> Struck {
    let until = now();
    Struck { since, until, over: until, seen: seen.into() }
}

/// A fault of one moment.
fn at(at: u64, seen: impl Into<String>) -> Struck {
    Struck { since: at, until: at, over: at, seen: seen.into() }
}

/// A fault lasts as long.
fn last(time: Duration) {
    std::thread::sleep(time);
}

fn millis(random: &mut Random, least: u64, most: u64) -> Duration {
    Duration::from_millis(least + random.below(most - least))
}
