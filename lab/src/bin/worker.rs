//! A process that takes locks as its one argument orders (JSON of [`lab::WorkerConfig`]), tells of it on stdout, and may be
//! killed or stopped at any time.

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> Result<()> {
    // A test that is killed must not leave takers behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let config = std::env::args().nth(1).context("usage: taker ORDERS")?;
    lab::worker::run(&serde_json::from_str(&config)?)
}
