//! The state of a soak, which a later run goes on from.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::SoakStart;
use super::growth::Series;
use super::measure::WorkerSeries;
use crate::matrix::Figures;

/// Entries that the stopped workers may leave for a while.
const REST_SLACK: u64 = 8;

/// The seed of the next round, and the totals of all rounds that passed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SoakState {
    /// The store.
    pub store: String,
    /// The seed of the next round.
    pub next_seed: u64,
    /// The number of rounds.
    pub rounds: u64,
    /// How long they took.
    pub seconds: f64,
    /// The number of grants.
    pub acquisitions: u64,
    /// The number of injections with an effect. Each injection is three faults.
    pub faults: u64,
    /// Holds that ended before their release.
    pub losses: u64,
    /// Pairs of holds that overlapped.
    pub overlaps: u64,
    /// The keys, nodes, rows or files after the first round, when all workers had ended.
    pub first_entries_at_rest: Option<u64>,
    /// The same after the last round.
    pub last_entries_at_rest: Option<u64>,
    /// What the workers and the store used in the last round: from the second quarter of the time
    /// to the last.
    pub measured: Vec<String>,
    /// The number of rounds of this run.
    #[serde(skip)]
    pub(super) rounds_of_run: u64,
}

impl SoakState {
    /// Reads the state of a store, or begins one if the file does not exist. A new state replaces
    /// none: totals of many hours would be lost.
    pub(super) fn of(file: &Path, store: &str, start: SoakStart) -> Result<Self> {
        if !file.exists() {
            return Ok(Self {
                store: store.to_owned(),
                ..Self::default()
            });
        }
        let shown = file.display();
        ensure!(
            start == SoakStart::Resumed,
            "{shown} has the state of an earlier soak: go on with --resume, or delete the file"
        );

        let text = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
        let state: Self =
            serde_json::from_str(&text).with_context(|| format!("{shown} is not a state"))?;
        ensure!(
            state.store == store,
            "{shown} is the state of the store {}",
            state.store
        );
        Ok(state)
    }

    /// Writes the state. A reader never finds half of it.
    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(self)?)?;
        Ok(fs::rename(new, file)?)
    }

    /// Adds a round that passed, and checks that the store has no more entries than after the
    /// first.
    pub(super) fn add(&mut self, round: &Figures, at_rest: u64) -> Result<()> {
        let first = *self.first_entries_at_rest.get_or_insert(at_rest);
        self.last_entries_at_rest = Some(at_rest);
        ensure!(
            at_rest <= first + REST_SLACK,
            "{at_rest} keys, nodes, rows or files remain, and {first} remained after the first round"
        );

        self.next_seed += 1;
        self.rounds += 1;
        self.rounds_of_run += 1;
        self.seconds += round.took.as_secs_f64();
        self.acquisitions += round.acquisitions as u64;
        self.faults += round.faults as u64;
        self.losses += round.lost as u64;
        self.overlaps += round.overlap_times.len() as u64;
        Ok(())
    }

    pub(super) fn measured(&mut self, workers: &[WorkerSeries], entries: &Series) {
        let workers = workers.iter().map(ToString::to_string);
        self.measured = workers.chain([entries.to_string()]).collect();
    }
}

impl fmt::Display for SoakState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} rounds in {:.0} s, {} acquisitions, {} injections, {} losses, {} overlaps",
            self.store,
            self.rounds,
            self.seconds,
            self.acquisitions,
            self.faults,
            self.losses,
            self.overlaps
        )?;
        if let Some(at_rest) = self.last_entries_at_rest {
            write!(f, ", {at_rest} keys, nodes, rows or files at rest")?;
        }
        for line in &self.measured {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_state_is_neither_replaced_nor_mixed_with_another_store() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("soak.json");
        SoakState::of(&file, "redis", SoakStart::New)?.save(&file)?;

        SoakState::of(&file, "redis", SoakStart::Resumed)?;
        SoakState::of(&file, "file", SoakStart::Resumed).expect_err("it is the state of redis");
        SoakState::of(&file, "redis", SoakStart::New).expect_err("it would be lost");
        Ok(())
    }

    #[test]
    fn entries_that_remain_are_detected() -> Result<()> {
        let mut state = SoakState::default();
        let round = Figures::default();
        state.add(&round, 5)?;

        state.add(&round, 5 + REST_SLACK)?;
        state.add(&round, 6 + REST_SLACK).expect_err("one more");
        Ok(())
    }
}
