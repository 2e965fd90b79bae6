//! Every store under every fault that exists for it.

mod check;
mod page;
mod picture;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::OnError;
use crate::fault_run::{FaultRun, WorkloadProfile};
use crate::faults::{FAULTS, Fault, Guarantee};
use crate::testbed::{Backend, Testbed};

pub use check::{Figures, check};
pub use page::{Page, folder, keep};
pub use picture::picture;

/// One store under one fault.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Which store.
    pub backend: Backend,
    /// Which fault.
    pub fault: &'static Fault,
    /// What it promises then.
    pub guarantee: Guarantee,
    /// Within what time every name is granted again.
    pub bound: Duration,
}

/// All cells, store by store.
pub fn cells() -> impl Iterator<Item = Cell> {
    Backend::ALL
        .into_iter()
        .flat_map(|backend| FAULTS.iter().filter_map(move |fault| cell(backend, fault)))
}

/// The cell of a store and a fault, by their names.
///
/// # Errors
/// If there is none.
pub fn cell_named(store: &str, fault: &str) -> Result<Cell> {
    let found = cells().find(|cell| cell.backend.name() == store && cell.fault.name == fault);
    found.with_context(|| {
        format!("no cell {store}/{fault}; `cargo xtask lab --list` tells which there are")
    })
}

fn cell(backend: Backend, fault: &'static Fault) -> Option<Cell> {
    let &(backend, guarantee, seconds) = fault
        .cells
        .iter()
        .find(|(candidate, _, _)| *candidate == backend)?;
    Some(Cell {
        backend,
        fault,
        guarantee,
        bound: Duration::from_secs(seconds),
    })
}

impl Cell {
    /// `STORE/FAULT`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.backend, self.fault.name)
    }

    /// The line that repeats a run of it.
    #[must_use]
    pub fn repeat_command(&self, seed: u64, time: Duration) -> String {
        let (backend, fault, seconds) = (self.backend, self.fault.name, time.as_secs_f64());
        format!(
            "cargo xtask lab --store {backend} --fault {fault} --seed {seed} --seconds {seconds}"
        )
    }

    /// Runs it for so long; figures, and a picture in the folder. Of a run that has failed all that was told is there too.
    ///
    /// # Errors
    /// With what is wrong, and the line that repeats the run.
    pub fn run(&self, worker: &str, seed: u64, time: Duration, folder: &Path) -> Result<Figures> {
        let repeat_command = || {
            format!(
                "{}; again:\n  {}\n ",
                self.name(),
                self.repeat_command(seed, time)
            )
        };
        self.run_faults(worker, seed, time, folder)
            .with_context(repeat_command)
    }

    fn run_faults(
        &self,
        worker: &str,
        seed: u64,
        time: Duration,
        folder: &Path,
    ) -> Result<Figures> {
        let begun = Instant::now();
        let (on_error, profile) = match self.guarantee {
            Guarantee::Exclusion => (OnError::Retry, WorkloadProfile::Unbounded),
            Guarantee::TokensOnly => (OnError::RetryAll, WorkloadProfile::LongHolds),
            Guarantee::Refuses => (OnError::RetryAll, WorkloadProfile::Bounded),
        };
        let testbed = Testbed::make(worker, self.backend, self.fault.requires)?;
        let mut run = FaultRun::begin(testbed, seed, on_error, profile)?;
        run.run(self.fault, time, self.bound)?;
        let outcome = run.stop_file()?;
        let file =
            |ending: &str| folder.join(format!("{}-{}.{ending}", self.backend, self.fault.name));
        fs::write(file("svg"), picture(self, &outcome)?)?;
        let checked = check(self, &outcome);
        if checked.is_err() {
            let injections = outcome
                .injections
                .iter()
                .map(|injection| format!("# {injection:?}"));
            let lines = injections.chain(outcome.events.iter().map(ToString::to_string));
            fs::write(
                file("events"),
                lines.map(|line| line + "\n").collect::<String>(),
            )?;
            outcome.testbed.keep(&file("servers"))?;
        }
        let mut figures = checked?;
        figures.seed = seed;
        figures.took = begun.elapsed();
        Ok(figures)
    }
}
