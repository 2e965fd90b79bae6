//! The programs of the lab, which read their options themselves.

use anyhow::Result;
use clap::Args;

use crate::fetch;
use crate::prerequisites;
use crate::step::Step;

/// The options of a program; `--help` prints them.
#[derive(Args)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Runs a program that starts servers.
pub(crate) fn run(program: &str, Options { options }: &Options) -> Result<()> {
    Step::cargo("build of the lab", "build --quiet -p lab --bins").run()?;
    if !["--list", "--help"]
        .iter()
        .any(|only| options.iter().any(|option| option == only))
    {
        prerequisites::install(&fetch::servers())?;
    }

    Step::cargo(program, "run --quiet -p lab --bin")
        .args([program, "--"])
        .args(options.iter().map(String::as_str))
        .run()
}

/// Runs a store under mixed faults, or a million cycles without faults.
pub(crate) fn soak(options: &Options) -> Result<()> {
    if !options.options.is_empty() {
        return run("soak", options);
    }

    prerequisites::install(&fetch::servers())?;
    // The test suite runs shorter ones.
    Step::cargo(
        "a million cycles",
        "test --release -p lab --test guarantees -- --nocapture --test-threads=1 soak_",
    )
    .env("LAB_CYCLES", "1000000")
    .run_printed()
}

/// Runs histories, and prints the timeline of the first violation.
pub(crate) fn simulate(Options { options }: &Options) -> Result<()> {
    Step::cargo(
        "simulation",
        "run --quiet --release -p lab-simulation --bin simulate --",
    )
    .args(options.iter().map(String::as_str))
    .run()
}
