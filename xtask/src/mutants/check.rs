//! Runs the command of a mutant and reads its outcome.

use std::fs;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};

use super::patch::Mutant;
use super::tree::Tree;
use crate::step::cargo;

/// The outcome of a command.
pub(super) enum Verdict {
    /// The number of tests that ran.
    Passed(usize),
    /// The tests that failed, or how the command ended otherwise.
    Failed(String),
    DoesNotCompile,
}

/// A command that takes more seconds counts as one that never ends. The longest one takes 150.
const TIME_LIMIT: &str = "240";
/// The exit code of timeout(1) at the limit.
const TIMED_OUT: i32 = 124;

/// Runs a cargo test in the tree and writes its output to a log of this name.
pub(super) fn run(tree: &Tree, check: &str, log: &str) -> Result<Verdict> {
    let words: Vec<&str> = check.split_whitespace().collect();
    let separator = words
        .iter()
        .position(|word| *word == "--")
        .unwrap_or(words.len());
    let (of_cargo, of_tests) = words.split_at(separator);

    let mut build = Command::new(cargo());
    build.args(of_cargo).arg("--no-run");
    if !output(tree, build, log)?.status.success() {
        return Ok(Verdict::DoesNotCompile);
    }

    let mut tests = Command::new("timeout");
    tests.args(["--kill-after=5", TIME_LIMIT]).arg(cargo());
    tests.args(of_cargo).arg("--no-fail-fast").args(of_tests);
    let output = output(tree, tests, log)?;

    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(Verdict::Passed(count(&text)));
    }
    let failed = failed(&text);
    Ok(Verdict::Failed(match output.status.code() {
        _ if !failed.is_empty() => failed,
        Some(TIMED_OUT) => "it never ends".to_owned(),
        _ => "it aborts".to_owned(),
    }))
}

/// Whether the packages that a mutant changes compile.
pub(super) fn compile(tree: &Tree, mutant: &Mutant) -> Result<bool> {
    let mut check = Command::new(cargo());
    check.args(["check", "--quiet", "--all-features"]);
    for package in mutant.packages() {
        check.args(["--package", package]);
    }
    if mutant.files.iter().any(|file| file.contains("/tests/")) {
        check.arg("--tests");
    }

    Ok(output(tree, check, &mutant.name)?.status.success())
}

fn output(tree: &Tree, mut command: Command, log: &str) -> Result<Output> {
    command
        .current_dir(tree.path())
        .env("CARGO_TARGET_DIR", tree.build())
        .stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;

    let text = [&*output.stderr, &*output.stdout].concat();
    fs::write(tree.logs().join(format!("{log}.log")), text)?;
    Ok(output)
}

/// The number of tests that ran.
fn count(text: &str) -> usize {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("running "));

    lines
        .filter_map(|line| line.split(' ').next()?.parse::<usize>().ok())
        .sum()
}

/// The first test that failed, and the number of others.
fn failed(text: &str) -> String {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_suffix(" ... FAILED"));
    let mut names = lines.filter_map(|line| line.strip_prefix("test "));

    let Some(first) = names.next() else {
        return String::new();
    };
    // A note that the test should panic follows its name.
    let first = first.split(' ').next().unwrap_or_default();
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
        let text = "running 3 tests\ntest a::b ... FAILED\ntest a::c ... ok\n\
                    test a::d ... FAILED\nrunning 2 tests\n";

        assert_eq!(failed(text), "`a::b` and 1 more");
        assert_eq!(count(text), 5);
        assert_eq!(failed("test a - should panic ... FAILED\n"), "`a`");
        assert_eq!(failed("test a ... ok\n"), "");
    }
}
