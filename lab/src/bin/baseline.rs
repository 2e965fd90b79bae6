//! Runs one lock of the four-conditions comparison, and executes the requests on standard input.
//!
//! Its argument is a [`lab::baselines::BaselineConfig`] as JSON.

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> Result<()> {
    // A killed run of the comparison must not leave this process behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let config = std::env::args().nth(1).context("usage: baseline CONFIG")?;
    lab::baselines::run(&serde_json::from_str(&config)?)
}
