//! Acquires locks as its argument says, and records its events on standard output.
//!
//! The argument is a [`lab::WorkerConfig`] as JSON. A test may kill or pause the process at any
//! time.

use std::alloc::System;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// A worker records how much memory it uses.
#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> Result<()> {
    // A killed test must not leave this process behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let config = std::env::args().nth(1).context("usage: worker CONFIG")?;
    lab::worker::run(&serde_json::from_str(&config)?)
}
