//! Workers that live as long as the run, so that a leak adds up in them.

use anyhow::Result;

use super::{FaultRun, LongHold, PROCESSES};
use crate::HoldWork;
use crate::WorkerConfig;

/// One for each API of the library.
const COUNT: usize = 2;

impl FaultRun {
    /// Starts two workers that no fault kills or pauses. Their connections still break.
    ///
    /// # Errors
    /// If a worker cannot be started.
    pub(crate) fn start_steady_workers(&mut self) -> Result<()> {
        let first = PROCESSES + LongHold::WORKERS;
        for number in first..first + COUNT {
            let config = WorkerConfig {
                work: HoldWork::Nothing,
                ..self.short_config_of(number)
            };
            self.steady.push(self.testbed.start_recording(config)?);
        }
        Ok(())
    }
}
