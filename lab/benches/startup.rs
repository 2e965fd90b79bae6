//! `leasehold run` with a command that does nothing, beside `flock` with the same command.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lab::Testbed;
use lab::report::{Report, Samples};

const ROUNDS: usize = 300;

/// The target: a run takes at most three times as long as flock(1).
const FLOCK_FACTOR_MAX: u64 = 3;

fn main() -> Result<()> {
    let testbed = Testbed::new(env!("CARGO_BIN_EXE_worker"))?;
    let file = testbed.scratch_file();
    let mut samples = Samples::default();
    let mut flock = Samples::default();
    let mut bare = Samples::default();
    for _ in 0..ROUNDS {
        let mut run = Command::new(leasehold());
        run.args(["run", "--store", &testbed.url(), "x", "--", "true"]);
        samples.time(|| pass(&mut run))?;
        flock.time(|| pass(Command::new("flock").arg(&file).arg("true")))?;
        bare.time(|| pass(&mut Command::new("true")))?;
    }

    let mut report = Report::new("startup");
    report.add("leasehold run x -- true", &samples, "flock f true", &flock);
    report.add("leasehold run x -- true", &samples, "true", &bare);
    report.finish()?;

    let run = samples.spread().p50_ns;
    let flock = flock.spread().p50_ns;
    ensure!(
        run <= FLOCK_FACTOR_MAX * flock,
        "a run takes {run} ns, more than {FLOCK_FACTOR_MAX} times the {flock} ns of flock"
    );
    Ok(())
}

/// Returns the path of the command of the same build, which `cargo xtask bench` builds first.
fn leasehold() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_worker")).with_file_name("leasehold")
}

fn pass(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}; `cargo xtask bench` builds it"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
