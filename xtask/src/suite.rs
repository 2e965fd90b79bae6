//! Runs the test programs of the workspace.
//!
//! Most tests wait for leases, servers and processes and hardly compute, so many of them run at a
//! time. The tests that need the machine for themselves run afterwards, one at a time. A test that
//! fails has failed: no test runs a second time.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::step::Step;

/// How many tests of a program run at a time.
const THREADS: &str = "4";
/// Suites and tests of silent servers wait for nearly all of their time, so more of them run at a
/// time.
const THREADS_OF_SUITES: &str = "16";

/// Tests that need both cores: a target, and how the names of the tests begin.
const ALONE: [(&str, &str); 3] = [
    // Fifty commands at once.
    ("command", "outage::"),
    // Sessions of one second, and a server in Java.
    ("command", "zookeeper::"),
    // It counts what a process allocates, and all threads of the program count.
    ("allocations", ""),
];

/// A file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

/// What a whole run of the tests writes at most at one time, in KiB.
const SCRATCH_MAX: u64 = 4 << 20;

/// A program of tests that cargo has built.
struct Program {
    target: String,
    path: String,
    folder: PathBuf,
}

/// Builds the test programs, and does not run them.
pub(crate) fn build() -> Result<()> {
    programs().map(drop)
}

/// Runs all test programs, also after one that fails, and prints how long each one took.
pub(crate) fn run() -> Result<()> {
    let scratch = scratch()?;
    let mut failed = Vec::new();

    for program in &programs()? {
        println!("xtask: tests of {} …", program.path);
        let start = Instant::now();
        for step in program.steps(scratch.path()) {
            if let Err(error) = step.run() {
                println!("xtask: {error:#}");
                failed.push(program.line_that_repeats());
            }
        }
        println!("xtask: they took {} s", start.elapsed().as_secs());
    }

    ensure!(
        failed.is_empty(),
        "tests failed; to repeat them, add their names:\n  {}",
        failed.join("\n  ")
    );
    Ok(())
}

/// Creates the folder in which the tests write. It is deleted at the end of the run.
///
/// The lab kills processes and never the machine, so no test needs a disk. A disk that other
/// machines share can need seconds for an `fsync`, and the tests would measure that. So the folder
/// is in memory where there is enough of it.
fn scratch() -> Result<TempDir> {
    let listing = Step::program("df")
        .args(["--output=avail", MEMORY])
        .output();
    let free = listing
        .ok()
        .and_then(|text| text.lines().nth(1)?.trim().parse().ok());

    let mut builder = tempfile::Builder::new();
    builder.prefix("leasehold-test-");
    let folder = if free.is_some_and(|free: u64| free >= SCRATCH_MAX) {
        builder.tempdir_in(MEMORY)
    } else {
        builder.tempdir()
    };
    folder.context("cannot create a folder for the tests")
}

impl Program {
    /// The tests that run beside each other, and then those that run alone.
    fn steps(&self, scratch: &Path) -> Vec<Step> {
        let rows = ALONE.iter().filter(|(target, _)| *target == self.target);
        let alone: Vec<&str> = rows.map(|(_, prefix)| *prefix).collect();

        let mut steps = Vec::new();
        if !alone.contains(&"") {
            let others = alone.iter().flat_map(|prefix| ["--skip", *prefix]);
            steps.push(self.step(scratch, self.threads()).args(others));
        }
        for prefix in alone {
            steps.push(self.step(scratch, "1").arg(prefix));
        }
        steps
    }

    fn threads(&self) -> &'static str {
        match self.target.as_str() {
            "conformance" | "unreachable" => THREADS_OF_SUITES,
            _ => THREADS,
        }
    }

    fn step(&self, scratch: &Path, threads: &str) -> Step {
        Step::program(&self.path)
            .folder(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder.to_string_lossy())
            .env("RUST_BACKTRACE", "0")
            .env("RUST_TEST_THREADS", threads)
            .env("TMPDIR", &scratch.to_string_lossy())
            .arg("--quiet")
    }

    fn line_that_repeats(&self) -> String {
        let Self { target, folder, .. } = self;

        format!(
            "{target}: cd {} && cargo test --all-features",
            folder.display()
        )
    }

    /// Reads what cargo prints of a program that it has built. None if it has no tests.
    fn parse(message: &Value) -> Option<Self> {
        let is_test = message["profile"]["test"] == true;
        let path = message["executable"].as_str().filter(|_| is_test)?;
        let manifest = Path::new(message["manifest_path"].as_str()?);

        Some(Self {
            target: message["target"]["name"].as_str()?.to_owned(),
            path: path.to_owned(),
            folder: manifest.parent()?.to_owned(),
        })
    }
}

/// Builds the test programs of the workspace.
fn programs() -> Result<Vec<Program>> {
    let build = "test --workspace --all-features --no-run --message-format=json-render-diagnostics";
    let messages = Step::cargo("build of the tests", build).output()?;

    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo does not print JSON")?;
        programs.extend(Program::parse(&message));
    }
    programs.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(target: &str) -> Value {
        json!({
            "manifest_path": "/w/crates/leasehold/Cargo.toml",
            "target": { "name": target },
            "profile": { "test": true },
            "executable": "/w/target/debug/deps/program",
        })
    }

    #[test]
    fn programs_without_tests_are_not_run() {
        let mut library = message("leasehold");
        assert!(Program::parse(&library).is_some());

        library["profile"]["test"] = false.into();
        assert!(Program::parse(&library).is_none());
        assert!(Program::parse(&json!({ "reason": "build-finished" })).is_none());
    }

    #[test]
    fn every_test_runs_beside_others_or_alone() -> Result<()> {
        let scratch = scratch()?;
        assert!(scratch.path().is_dir());

        for (target, arguments) in [
            ("redis", ["--quiet"].as_slice()),
            (
                "command",
                &[
                    "--quiet --skip outage:: --skip zookeeper::",
                    "--quiet outage::",
                    "--quiet zookeeper::",
                ],
            ),
            ("allocations", &["--quiet ''"]),
        ] {
            let program = Program::parse(&message(target)).context("it has tests")?;
            let steps = program.steps(scratch.path()).into_iter();
            let lines: Vec<String> = steps.map(|step| step.command_line()).collect();
            assert_eq!(lines.len(), arguments.len(), "{lines:?}");
            for (line, arguments) in lines.iter().zip(arguments) {
                assert!(line.ends_with(&format!("/program {arguments}")), "{line}");
            }
        }
        Ok(())
    }
}
