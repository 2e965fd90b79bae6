//! What the worker processes use.

use std::fmt;
use std::fs;

use anyhow::{Context, Result};

use super::growth::Series;
use crate::Process;
use crate::worker::number;

/// Two connections to a server that was unreachable at the start.
const DESCRIPTOR_SLACK: u64 = 4;
const THREAD_SLACK: u64 = 2;

/// What one worker process uses over time.
#[derive(Debug)]
pub(super) struct WorkerSeries {
    pid: u32,
    descriptors: Series,
    threads: Series,
}

impl WorkerSeries {
    pub(super) fn of(worker: &Process) -> Self {
        let thread = worker.first_thread();
        let series = |what: &str, slack| Series::new(&format!("{what} of worker {thread}"), slack);
        Self {
            pid: worker.pid(),
            descriptors: series("descriptors", DESCRIPTOR_SLACK),
            threads: series("threads", THREAD_SLACK),
        }
    }

    /// Measures the process.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn measure(&mut self) -> Result<()> {
        let process = format!("/proc/{}", self.pid);
        let status = fs::read_to_string(format!("{process}/status"))
            .context("a worker that no fault kills has ended")?;

        self.threads.push(number(&status, "Threads:")? as u64);
        let descriptors = fs::read_dir(format!("{process}/fd"))?;
        self.descriptors.push(descriptors.count() as u64);
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        self.descriptors.check()?;
        self.threads.check()
    }
}

impl fmt::Display for WorkerSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.descriptors, self.threads)
    }
}
