//! Runs the command of a mutant and reads its outcome.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};

use crate::repository;
use crate::step::cargo;

/// The outcome of a command.
pub(super) enum Verdict {
    Passed,
    /// The tests that failed, or how the command ended otherwise.
    Failed(String),
    DoesNotCompile,
}

/// A command that takes more seconds counts as one that never ends. The longest one takes 150.
const TIME_LIMIT: &str = "240";
/// The exit code of timeout(1) at the limit.
const TIMED_OUT: i32 = 124;

/// Runs a cargo test in the tree and writes its output to a log.
pub(super) fn run(tree: &Path, check: &str, log: &Path) -> Result<Verdict> {
    let (of_cargo, of_tests) = check.split_once(" -- ").unwrap_or((check, ""));

    let mut build = Command::new(cargo());
    build.args(of_cargo.split_whitespace()).arg("--no-run");
    if !output(tree, build, log)?.status.success() {
        return Ok(Verdict::DoesNotCompile);
    }

    let mut tests = Command::new("timeout");
    tests
        .args(["--kill-after=5", TIME_LIMIT])
        .arg(cargo())
        .args(of_cargo.split_whitespace())
        .args(["--no-fail-fast", "--"])
        .args(of_tests.split_whitespace());
    let output = output(tree, tests, log)?;
    if output.status.success() {
        return Ok(Verdict::Passed);
    }

    let failed = failed(&String::from_utf8_lossy(&output.stdout));
    Ok(Verdict::Failed(match output.status.code() {
        _ if !failed.is_empty() => failed,
        Some(TIMED_OUT) => "a test that never ends".to_owned(),
        _ => "a test that aborts".to_owned(),
    }))
}

fn output(tree: &Path, mut command: Command, log: &Path) -> Result<Output> {
    // The build is that of the repository, so that dependencies are compiled once.
    command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", repository::root().join("target"))
        .stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;

    fs::write(log, [&*output.stderr, &*output.stdout].concat())?;
    Ok(output)
}

/// The names of the tests that failed.
fn failed(text: &str) -> String {
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));

    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_named() {
        let text = "running 3 tests\ntest a::b ... FAILED\ntest a::c ... ok\n\
                    test a::d ... FAILED\nrunning 2 tests\n";

        assert_eq!(failed(text), "a::b, a::d");
    }
}
