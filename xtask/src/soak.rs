//! Long runs: without faults, and under mixed faults.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::fetch;
use crate::prerequisites;
use crate::repository;
use crate::step::Step;

/// Which soak runs, and for how long.
#[derive(Args)]
pub(crate) struct Soaks {
    /// Run a store under mixed faults for this time
    #[arg(long, value_name = "MINUTES", requires = "store")]
    minutes: Option<f64>,
    /// The store, as the lab names it
    #[arg(long, requires = "minutes")]
    store: Option<String>,
    /// Go on from the kept state: its next seed and its totals
    #[arg(long, requires = "minutes")]
    resume: bool,
    /// Keep the state in this file in place of target/soak/STORE.json
    #[arg(long, value_name = "FILE", requires = "minutes")]
    state: Option<PathBuf>,
}

/// Runs a store under mixed faults, or a million cycles without faults.
pub(crate) fn run(soaks: &Soaks) -> Result<()> {
    prerequisites::install(&fetch::servers())?;

    match (&soaks.store, soaks.minutes) {
        (Some(store), Some(minutes)) => run_mixed(soaks, store, minutes),
        _ => run_without_faults(),
    }
}

/// The long soaks on files and on Redis. The test suite runs shorter ones.
fn run_without_faults() -> Result<()> {
    Step::cargo(
        "a million cycles",
        "test --release -p lab --test guarantees --",
    )
    .args(["--nocapture", "--test-threads=1", "soak_"])
    .env("LAB_CYCLES", "1000000")
    .run_printed()
}

fn run_mixed(soaks: &Soaks, store: &str, minutes: f64) -> Result<()> {
    Step::cargo("build of the lab", "build --quiet -p lab --bins").run()?;

    let folder = repository::root().join("target/soak");
    let default = || folder.join(store).with_extension("json");
    let state = soaks.state.clone().unwrap_or_else(default);
    Step::cargo("soak", "run --quiet -p lab --bin soak --")
        .args(["--store", store, "--minutes", &minutes.to_string()])
        .args(["--state", &state.to_string_lossy()])
        .args(soaks.resume.then_some("--resume"))
        .run()
}
