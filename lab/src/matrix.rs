//! Every store under every fault that is possible on it.

mod check;
mod order;
mod page;
mod picture;
mod power;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::backends::{BACKENDS, Backend};
use crate::fault_run::{FaultRun, Outcome};
use crate::faults::{FAULTS, Fault, Guarantee};

pub(crate) use check::settles_within;
pub use check::{Figures, check};
pub use page::{Page, folder, keep};

/// One store under one fault.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The store.
    pub backend: &'static Backend,
    /// The fault.
    pub fault: &'static Fault,
    /// What the store guarantees under the fault.
    pub guarantee: Guarantee,
    /// Within what time after the fault every name is granted again.
    pub bound: Duration,
}

/// All cells, store by store: a fault and each store that has what the fault needs.
pub fn cells() -> impl Iterator<Item = Cell> {
    BACKENDS
        .iter()
        .flat_map(|backend| FAULTS.iter().filter_map(|fault| cell(backend, fault)))
}

/// The cell of a store and a fault, by their names.
///
/// # Errors
/// If the cell does not exist.
pub fn cell_named(store: &str, fault: &str) -> Result<Cell> {
    let found = cells().find(|cell| cell.backend.name == store && cell.fault.name == fault);
    found.with_context(|| {
        format!("the cell {store}/{fault} does not exist; `cargo xtask lab --list` lists the cells")
    })
}

fn cell(backend: &'static Backend, fault: &'static Fault) -> Option<Cell> {
    let (guarantee, bound) = fault.expectation(backend)?;
    Some(Cell {
        backend,
        fault,
        guarantee,
        bound,
    })
}

impl Cell {
    /// `STORE/FAULT`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.backend, self.fault.name)
    }

    /// Whether a hold must be lost if the fault lasts for a lease or longer.
    #[must_use]
    pub fn must_lose(&self) -> bool {
        self.backend.has_any(self.fault.losses)
    }

    /// Whether new clients must be able to open the store while the fault lasts.
    #[must_use]
    pub fn must_open(&self) -> bool {
        self.backend.has_any(self.fault.opens)
    }

    /// The command that repeats a run.
    #[must_use]
    pub fn repeat_command(&self, seed: u64, time: Duration) -> String {
        format!(
            "cargo xtask lab --store {} --fault {} --seed {seed} --seconds {}",
            self.backend,
            self.fault.name,
            time.as_secs_f64()
        )
    }

    /// Injects the fault repeatedly for `time`, checks the history, and returns the figures. Writes
    /// a timeline to the folder; if the run fails, also the events and what the servers wrote.
    ///
    /// # Errors
    /// If a checker finds a violation. The error has the command that repeats the run.
    pub fn run(&self, worker: &str, seed: u64, time: Duration, folder: &Path) -> Result<Figures> {
        let begun = Instant::now();
        let figures = self
            .run_faults(worker, seed, time, folder)
            .with_context(|| {
                let command = self.repeat_command(seed, time);
                format!("{}; repeat with:\n  {command}\n ", self.name())
            })?;
        Ok(Figures {
            seed,
            took: begun.elapsed(),
            ..figures
        })
    }

    fn run_faults(
        &self,
        worker: &str,
        seed: u64,
        time: Duration,
        folder: &Path,
    ) -> Result<Figures> {
        let testbed = (self.backend.start)(worker, self.fault.requires)?;
        let mut run = FaultRun::begin(self, testbed, seed)?;
        run.run(time)?;
        let outcome = run.finish()?;
        self.check_and_keep(&outcome, folder)
    }

    /// Checks a history, and writes a timeline to the folder. If the check fails, it also writes
    /// the events and what the servers wrote.
    pub(crate) fn check_and_keep(&self, outcome: &Outcome, folder: &Path) -> Result<Figures> {
        let base = folder.join(format!("{}-{}", self.backend, self.fault.name));
        picture::draw(&base.with_extension("svg"), self, outcome)?;
        let checked = check(self, outcome);
        if checked.is_err() {
            fs::write(base.with_extension("events"), transcript(outcome))?;
            outcome.keep_servers(&base.with_extension("servers"))?;
        }
        checked
    }
}

/// The injections and the events of a run, one per line.
fn transcript(outcome: &Outcome) -> String {
    let injections = outcome.injections.iter().map(|i| format!("# {i:?}\n"));
    let events = outcome.events.iter().map(|event| format!("{event}\n"));
    injections.chain(events).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cells_match_the_committed_list() {
        let lines: BTreeSet<String> = cells()
            .map(|cell| {
                let seconds = cell.bound.as_secs();
                let loses = if cell.must_lose() { " loses" } else { "" };
                let opens = if cell.must_open() { " opens" } else { "" };
                format!("{} {} {seconds}{loses}{opens}", cell.name(), cell.guarantee)
            })
            .collect();
        let committed: BTreeSet<String> = include_str!("../tests/matrix/cells.txt")
            .lines()
            .map(str::to_owned)
            .collect();

        let differences: Vec<&String> = lines.symmetric_difference(&committed).collect();
        assert!(
            differences.is_empty(),
            "lab/tests/matrix/cells.txt has, or lacks: {differences:#?}"
        );
    }
}
