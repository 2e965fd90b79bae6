//! Running a check, and reading what came of it.

use std::fs;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};

use super::tree::Tree;
use crate::step::cargo;

/// What a check has come to.
pub(super) enum Verdict {
    /// So many tests were run.
    Passed(usize),
    /// Which tests failed, or how it ended otherwise.
    Failed(String),
    DoesNotCompile,
}

/// For so many seconds a check may run, or it counts as one that never ends: no promise, only the end of patience.
const PATIENCE: &str = "240";
/// By which timeout(1) says so.
const OUT_OF_TIME: i32 = 124;

/// Runs a cargo test in the tree; what it says goes to a log of this name.
pub(super) fn run(tree: &Tree, line: &str, log: &str) -> Result<Verdict> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (of_cargo, of_tests) = words.split_at(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
    let mut building = Command::new(cargo());
    building.args(of_cargo).arg("--no-run");
    let built = told(tree, building, log)?;
    if !built.status.success() {
        return Ok(Verdict::DoesNotCompile);
    }
    let mut running = Command::new("timeout");
    running.args(["--kill-after=5", PATIENCE]).arg(cargo()).args(of_cargo).arg("--no-fail-fast").args(of_tests);
    let answer = told(tree, running, log)?;
    let text = String::from_utf8_lossy(&answer.stdout);
    if answer.status.success() {
        return Ok(Verdict::Passed(count(&text)));
    }
    let failed = failed(&text);
    Ok(Verdict::Failed(match answer.status.code() {
        _ if !failed.is_empty() => failed,
        Some(OUT_OF_TIME) => "it never ends".to_owned(),
        _ => "it does not come to its end".to_owned(),
    }))
}

fn told(tree: &Tree, mut command: Command, log: &str) -> Result<Output> {
    command.current_dir(tree.path()).env("CARGO_TARGET_DIR", tree.build()).stdin(Stdio::null());
    let answer = command.output().with_context(|| format!("cannot run {command:?}"))?;
    fs::write(tree.notes().join(format!("{log}.log")), [&*answer.stderr, &*answer.stdout].concat())?;
    Ok(answer)
}

/// How many tests were run in all.
fn count(text: &str) -> usize {
    let counts =
        text.lines().filter_map(|line| line.strip_prefix("running ")?.split(' ').next()?.parse::<usize>().ok());
    counts.sum()
}

/// The first test that failed, and how many others did.
fn failed(text: &str) -> String {
    let is_failure = |line: &str| line.ends_with(" ... FAILED").then(|| line.strip_prefix("test "))?.map(str::to_owned);
    let mut names = text.lines().filter_map(is_failure).map(|line| line.replace(" ... FAILED", ""));
    let Some(first) = names.next() else { return String::new() };
    // Whether something should panic stands behind its name.
    let first = first.split(' ').next().unwrap_or_default().to_owned();
    match names.count() {
        0 => format!("`{first}`"),
        others => format!("`{first}` and {others} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_named_and_counted() {
        let text = "running 3 tests\ntest a::b ... FAILED\ntest a::c ... ok\ntest a::d ... FAILED\nrunning 2 tests\n";
        assert_eq!((&*failed(text), count(text)), ("`a::b` and 1 more", 5));
        assert_eq!(failed("test a ... ok\n"), "");
    }
}
