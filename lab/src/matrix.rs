//! Every store under every fault that exists for it.

mod judge;
mod page;
mod picture;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Trouble;
use crate::faults::{Expect, FAULTS, Fault};
use crate::ground::{Ground, Store};
use crate::storm::{Crew, Storm};

pub use judge::{Figures, judge};
pub use page::{Page, folder, keep};
pub use picture::picture;

/// One store under one fault.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Which store.
    pub store: Store,
    /// Which fault.
    pub fault: &'static Fault,
    /// What it promises then.
    pub expect: Expect,
    /// Within what time every name is granted again.
    pub bound: Duration,
}

/// All cells, store by store.
pub fn cells() -> impl Iterator<Item = Cell> {
    Store::ALL.into_iter().flat_map(|store| FAULTS.iter().filter_map(move |fault| cell(store, fault)))
}

/// The cell of a store and a fault, by their names.
///
/// # Errors
/// If there is none.
pub fn cell_named(store: &str, fault: &str) -> Result<Cell> {
    let found = cells().find(|cell| cell.store.name() == store && cell.fault.name == fault);
    found.with_context(|| format!("no cell {store}/{fault}; `cargo xtask lab --list` tells which there are"))
}

fn cell(store: Store, fault: &'static Fault) -> Option<Cell> {
    let &(store, expect, seconds) = fault.cells.iter().find(|(own, _, _)| *own == store)?;
    Some(Cell { store, fault, expect, bound: Duration::from_secs(seconds) })
}

impl Cell {
    /// `STORE/FAULT`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.store, self.fault.name)
    }

    /// The line that repeats a run of it.
    #[must_use]
    pub fn again(&self, seed: u64, time: Duration) -> String {
        let (store, fault, seconds) = (self.store, self.fault.name, time.as_secs_f64());
        format!("cargo xtask lab --store {store} --fault {fault} --seed {seed} --seconds {seconds}")
    }

    /// Runs it for so long; figures, and a picture in the folder. Of a run that has failed all that was told is there too.
    ///
    /// # Errors
    /// With what is wrong, and the line that repeats the run.
    pub fn run(&self, taker: &str, seed: u64, time: Duration, folder: &Path) -> Result<Figures> {
        let again = || format!("{}; again:\n  {}\n ", self.name(), self.again(seed, time));
        self.storm(taker, seed, time, folder).with_context(again)
    }

    fn storm(&self, taker: &str, seed: u64, time: Duration, folder: &Path) -> Result<Figures> {
        let begun = Instant::now();
        let (trouble, crew) = match self.expect {
            Expect::Exclusion => (Trouble::Endured, Crew::Patient),
            Expect::Tokens => (Trouble::Suffered, Crew::Steady),
            Expect::Refusal => (Trouble::Suffered, Crew::Impatient),
        };
        let ground = Ground::make(taker, self.store, self.fault.needs)?;
        let mut storm = Storm::begin(ground, seed, trouble, crew)?;
        storm.rage(self.fault, time, self.bound)?;
        let passed = storm.end()?;
        let file = |ending: &str| folder.join(format!("{}-{}.{ending}", self.store, self.fault.name));
        fs::write(file("svg"), picture(self, &passed)?)?;
        let judged = judge(self, &passed);
        if judged.is_err() {
            let strikes = passed.strikes.iter().map(|strike| format!("# {strike:?}"));
            let lines = strikes.chain(passed.told.iter().map(ToString::to_string));
            fs::write(file("events"), lines.map(|line| line + "\n").collect::<String>())?;
            passed.ground.keep(&file("servers"))?;
        }
        let mut figures = judged?;
        figures.seed = seed;
        figures.took = begun.elapsed();
        Ok(figures)
    }
}
