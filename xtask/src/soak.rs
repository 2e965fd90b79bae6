//! Long runs: without faults, and under mixed faults.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

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

/// The totals of a store, which the lab keeps.
#[derive(Deserialize)]
struct Totals {
    store: String,
    next_seed: u64,
    rounds: u64,
    seconds: f64,
    acquisitions: u64,
    faults: u64,
    losses: u64,
    overlaps: u64,
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

    let default = || folder().join(store).with_extension("json");
    let state = soaks.state.clone().unwrap_or_else(default);
    Step::cargo("soak", "run --quiet -p lab --bin soak --")
        .args(["--store", store, "--minutes", &minutes.to_string()])
        .args(["--state", &state.to_string_lossy()])
        .args(soaks.resume.then_some("--resume"))
        .run()
}

/// The folder of the kept states.
pub(crate) fn folder() -> PathBuf {
    repository::root().join("target/soak")
}

/// The totals of all kept states, as the page of the lab has them.
pub(crate) fn table(folder: &Path) -> Result<String> {
    let mut rows = Vec::new();
    for entry in folder.read_dir().into_iter().flatten() {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let totals = serde_json::from_slice(&fs::read(&path)?);
            rows.push(row(
                &totals.with_context(|| format!("{} has no totals", path.display()))?
            ));
        }
    }

    rows.sort_unstable();
    let header = "| store | rounds | seeds below | time | acquisitions | injections | losses \
                  | overlaps |\n|---|---|---|---|---|---|---|---|\n";
    Ok(header.to_owned() + &rows.concat())
}

fn row(totals: &Totals) -> String {
    let Totals {
        store,
        next_seed,
        rounds,
        seconds,
        acquisitions,
        faults,
        losses,
        overlaps,
    } = totals;

    format!(
        "| `{store}` | {rounds} | {next_seed} | {seconds:.0} s | {acquisitions} | {faults} \
         | {losses} | {overlaps} |\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_the_totals_of_every_kept_state() -> Result<()> {
        let folder = tempfile::tempdir()?;
        for (store, losses) in [("redis", 137), ("file", 0)] {
            let state = format!(
                r#"{{"store": "{store}", "next_seed": 5, "rounds": 4, "seconds": 915.4,
                "acquisitions": 189210, "faults": 138, "losses": {losses}, "overlaps": 1}}"#
            );
            fs::write(folder.path().join(format!("{store}.json")), state)?;
        }
        fs::write(folder.path().join("redis-mixed.svg"), "<svg/>")?;

        let rows = table(folder.path())?
            .lines()
            .skip(2)
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(
            rows,
            "| `file` | 4 | 5 | 915 s | 189210 | 138 | 0 | 1 |\n\
             | `redis` | 4 | 5 | 915 s | 189210 | 138 | 137 | 1 |"
        );
        Ok(())
    }
}
