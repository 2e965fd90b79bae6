//! Long runs under mixed faults, which go on from a kept state.
//!
//! A soak is a row of rounds on one testbed. Each round has new workers, a seed of its own, and the
//! faults of the cell `STORE/mixed`. All checkers of the matrix read its history. Two more workers
//! are never killed, so that a leak adds up in them. Their memory is checked when they end. After
//! each injection the soak measures their descriptors and threads, and the keys, nodes, rows or
//! files of the store. A value that grows without a bound fails the round.

mod growth;
mod measure;
mod state;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Testbed;
use crate::fault_run::FaultRun;
use crate::faults::Requirement;
use crate::matrix::{Cell, Figures, cell_named};

use growth::Series;
use measure::WorkerSeries;
pub use state::SoakState;

/// The longest round. The history of a round is in memory.
const ROUND_MAX: Duration = Duration::from_secs(300);
/// A shorter round would end before its first measurements.
const ROUND_MIN: Duration = Duration::from_secs(3);
/// The least time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);
/// Keys, nodes, rows or files that one queue and a few killed processes leave for a while.
const ENTRIES_SLACK: u64 = 8;

/// What a soak runs, and for how long.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The store, as the lab names it.
    pub store: String,
    /// For how long it injects faults.
    pub time: Duration,
    /// Where the state is kept.
    pub state_file: PathBuf,
    /// Whether it goes on from the kept state.
    pub start: SoakStart,
}

/// Where a soak begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoakStart {
    /// With the first seed, and totals of zero. It fails if there is a kept state.
    New,
    /// With the next seed and the totals of the kept state, if there is one.
    Resumed,
}

impl Soak {
    /// Runs rounds until the time is over, and keeps the state after each of them.
    ///
    /// # Errors
    /// If a checker finds a violation, or a value grows without a bound. The state then still has
    /// the totals of the rounds before, and its next seed is the one of the failed round.
    pub fn run(&self, worker: &str) -> Result<SoakState> {
        let cell = cell_named(&self.store, "mixed")?;
        let mut state = SoakState::of(&self.state_file, &self.store, self.start)?;

        let begun = Instant::now();
        let mut testbed = (cell.backend.start)(worker, Requirement::None)?;
        let mut store_entries = Series::new("keys, nodes, rows or files", ENTRIES_SLACK);
        loop {
            let left = self.time.saturating_sub(begun.elapsed());
            if left < ROUND_MIN && state.rounds_of_run > 0 {
                break;
            }

            let time = left.clamp(ROUND_MIN, ROUND_MAX);
            let round = Round {
                cell: &cell,
                seed: state.next_seed,
                time,
                folder: self
                    .state_file
                    .parent()
                    .context("a file is in a folder")?
                    .into(),
            };
            let figures;
            (testbed, figures) = round.run(testbed, &mut store_entries, &mut state)?;
            state.add(&figures, (cell.backend.count_entries)(&testbed)?)?;
            state.save(&self.state_file)?;
            println!("{state}");
        }
        Ok(state)
    }
}

/// A part of a soak, with new workers.
struct Round<'a> {
    cell: &'a Cell,
    seed: u64,
    time: Duration,
    folder: PathBuf,
}

impl Round<'_> {
    fn run(
        &self,
        testbed: Testbed,
        store_entries: &mut Series,
        state: &mut SoakState,
    ) -> Result<(Testbed, Figures)> {
        self.run_and_check(testbed, store_entries, state)
            .with_context(|| {
                let seed = self.seed;
                let minutes = self.time.as_secs_f64() / 60.0;
                let store = self.cell.backend.name;
                format!(
                    "the round with seed {seed} failed; repeat with:\n  \
                     cargo xtask soak --store {store} --minutes {minutes:.1} --resume\n "
                )
            })
    }

    fn run_and_check(
        &self,
        testbed: Testbed,
        store_entries: &mut Series,
        state: &mut SoakState,
    ) -> Result<(Testbed, Figures)> {
        let begun = Instant::now();
        let mut run = FaultRun::begin(self.cell, testbed, self.seed)?;
        run.start_steady_workers()?;
        let mut workers: Vec<WorkerSeries> =
            run.steady_workers().iter().map(WorkerSeries::of).collect();

        while begun.elapsed() < self.time {
            run.run(INTERVAL)?;
            for worker in &mut workers {
                worker.measure()?;
            }
            store_entries.push((self.cell.backend.count_entries)(&run.testbed)?);
        }
        let mut outcome = run.finish()?;
        let figures = self.cell.check_and_keep(&outcome, &self.folder)?;

        for worker in &workers {
            worker.check()?;
        }
        store_entries.check()?;
        state.measured(&workers, store_entries);
        outcome.testbed.remove_scratch_files()?;
        Ok((
            outcome.testbed,
            Figures {
                seed: self.seed,
                took: begun.elapsed(),
                ..figures
            },
        ))
    }
}
