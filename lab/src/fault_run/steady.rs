//! Workers that live as long as the run, so that a leak adds up in them.

use anyhow::Result;

use super::long_hold::{with_intruder_name, with_long_name};
use super::{FaultRun, LongHold, PROCESSES};
use crate::{HoldWork, Start, WorkerConfig};

/// One for each API of the library.
const COUNT: usize = 2;
/// The lock that both take. They hand it over to each other more often than all others together.
const NAME: &str = "steady";
/// In microseconds: the pause between two cycles. Without it, the history would be too long.
const PAUSE: u64 = 1_000;

impl FaultRun {
    /// Starts two workers that no fault kills or pauses. Their connections still break.
    ///
    /// # Errors
    /// If a worker cannot be started.
    pub(crate) fn start_steady_workers(&mut self) -> Result<()> {
        let mut names = with_long_name(&self.config.names);
        names.push(NAME.to_owned());
        let first = PROCESSES + LongHold::WORKERS;

        for number in first..first + COUNT {
            let config = WorkerConfig {
                work: HoldWork::Nothing,
                start: Start::After(PAUSE),
                only_name: u16::try_from(names.len() - 1).ok(),
                names: names.clone(),
                ..self.short_config_of(number)
            };
            self.steady.push(self.testbed.start_recording(config)?);
        }
        Ok(())
    }

    /// The names of all locks that any client has taken.
    pub(super) fn all_names(&self) -> Vec<String> {
        let mut names = with_intruder_name(&self.config.names);
        if !self.steady.is_empty() {
            names.push(NAME.to_owned());
        }
        names
    }
}
