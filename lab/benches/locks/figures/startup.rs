//! `leasehold run` with a command that does nothing, beside `flock` with the same command.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{ROUNDS, p50};
use crate::client::file_url;
use crate::peers::nanos;
use crate::table::{Goal, Rounds, Table};

/// The number of runs of each program in a round.
const RUNS: usize = 60;

/// The target: a run takes at most three times as long as flock(1).
const FLOCK_FACTOR_MAX: f64 = 3.0;

pub(super) fn show() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut run = Command::new(leasehold());
    run.args(["run", "--store", &file_url(folder.path())])
        .args(["x", "--", "true"]);
    let mut flock = Command::new("flock");
    flock.arg(folder.path().join("flock")).arg("true");
    let mut bare = Command::new("true");

    let mut rounds: [Rounds; 3] = Default::default();
    for _ in 0..ROUNDS {
        let mut took: [Vec<u64>; 3] = Default::default();
        for _ in 0..RUNS {
            for (took, command) in took.iter_mut().zip([&mut run, &mut flock, &mut bare]) {
                took.push(pass(command)?);
            }
        }
        for (rounds, took) in rounds.iter_mut().zip(took) {
            rounds.add(p50(took));
        }
    }

    let [run, flock, bare] = &rounds;
    let mut table = Table::new("startup");
    let what = ("leasehold run x -- true", "leasehold", "µs");
    let goal = Some(Goal::AtMost(FLOCK_FACTOR_MAX));
    table.add_beside(what, run, ("flock f true", flock), goal);
    table.add_beside(what, run, ("true", bare), None);
    table.finish()
}

/// Returns the path of the command of the same build, which `cargo xtask bench` builds first.
fn leasehold() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_worker")).with_file_name("leasehold")
}

fn pass(command: &mut Command) -> Result<u64> {
    let begun = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}; `cargo xtask bench` builds it"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(nanos(begun.elapsed()))
}
