//! A process with one lock of those that are compared, its one argument being JSON of [`lab::specimens::BaselineConfig`]; it does what
//! stdin says.

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> Result<()> {
    // What is killed must not leave specimens behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let config = std::env::args().nth(1).context("usage: specimen TERMS")?;
    lab::baselines::run(&serde_json::from_str(&config)?)
}
