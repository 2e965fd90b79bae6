//! Runs one lock of the four-conditions comparison, and executes the requests on standard input.
//!
//! Its argument is a [`lab::baselines::BaselineConfig`] as JSON.

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let config = std::env::args().nth(1).context("usage: baseline CONFIG")?;
    lab::baselines::run(&serde_json::from_str(&config)?)
}
