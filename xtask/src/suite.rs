//! Runs the test programs of the workspace.
//!
//! Most tests wait for leases, servers and processes and hardly compute. So many tests of a program
//! run at a time, and two programs: one of those that need about a core, and one of the others.
//! The tests that need the machine for themselves run last, one program at a time. A test that
//! fails has failed: no test runs a second time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::parallel::run_each;
use crate::step::Step;

/// Programs that need about a core. Two of them would slow each other down.
const BUSY: [&str; 5] = [
    "command",
    "conformance",
    "interop",
    "leasehold_redis",
    "matrix",
];

/// How many tests of a program run at a time.
const THREADS: &str = "4";
/// Suites and tests of silent servers wait for nearly all of their time, so more of them run at a
/// time.
const THREADS_OF_SUITES: &str = "24";
/// The models of these unit tests, and the suites in virtual time, compute all the time. More of
/// them would only wait for a core.
const THREADS_OF_MODELS: &str = "2";

/// Tests that need both cores: a target, how the names of the tests begin, and how many of them run
/// at a time.
const ALONE: [(&str, &str, &str); 5] = [
    // Each starts fifty commands within three seconds.
    ("command", "outage::", "3"),
    // Sessions of one second, and a server in Java.
    ("command", "zookeeper::", "4"),
    // They start a hundred processes at once.
    ("guarantees", "", "4"),
    // The bounds leave little of a validity, for fifty holders in each.
    ("faults", "outage::", "6"),
    // It counts what a process allocates, and all threads of the program count.
    ("allocations", "", "1"),
];

/// A file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

/// What a whole run of the tests writes at most at one time, in KiB.
const SCRATCH_MAX: u64 = 4 << 20;

/// A program of tests that cargo has built.
pub(crate) struct Program {
    target: String,
    path: String,
    folder: PathBuf,
}

/// Tests of a program that run in one process.
struct Run<'a> {
    program: &'a Program,
    /// How the names of the tests begin. Empty for all that do not run alone.
    prefix: &'static str,
    step: Step,
}

/// Builds the test programs, and does not run them.
pub(crate) fn build() -> Result<()> {
    programs().map(drop)
}

/// Runs all test programs, also after one that fails, and prints how long each one took.
pub(crate) fn run() -> Result<()> {
    let scratch = scratch()?;
    let programs = programs()?;
    for target in BUSY.into_iter().chain(ALONE.map(|(target, ..)| target)) {
        let exists = programs.iter().any(|program| program.target == target);
        ensure!(exists, "no test program has the name {target}");
    }

    let scratch = scratch.path();
    let beside = programs
        .iter()
        .filter_map(|program| program.beside_others(scratch));
    let (busy, others): (Vec<_>, Vec<_>) =
        beside.partition(|run| BUSY.contains(&run.program.target.as_str()));
    let alone: Vec<_> = programs
        .iter()
        .flat_map(|program| program.alone(scratch))
        .collect();

    let failed = Mutex::new(Vec::new());
    let run_in_turn = |runs: &Vec<Run<'_>>| {
        for run in runs {
            if !run.succeeds()? {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.push(run.program.line_that_repeats());
            }
        }
        Ok(())
    };
    run_each(&[busy, others], 2, run_in_turn)?;
    run_in_turn(&alone)?;

    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
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

impl Run<'_> {
    /// Runs the tests, and prints how long they took. Their output is printed when they have ended,
    /// so that it does not mix with that of another program.
    fn succeeds(&self) -> Result<bool> {
        let tests = format!("tests of {} {}", self.program.path, self.prefix);
        println!("xtask: {} …", tests.trim_end());
        let start = Instant::now();
        let output = NamedTempFile::new()?;
        let outcome = self.step.run_into(output.as_file());

        let seconds = start.elapsed().as_secs();
        let error = outcome.err().map(|error| format!("xtask: {error:#}\n"));
        println!(
            "{}{}xtask: {} took {seconds} s",
            String::from_utf8_lossy(&fs::read(output.path())?),
            error.as_deref().unwrap_or_default(),
            tests.trim_end(),
        );
        Ok(error.is_none())
    }
}

impl Program {
    /// The tests that run beside those of another program.
    fn beside_others(&self, scratch: &Path) -> Option<Run<'_>> {
        let prefixes = || self.rows_alone().map(|(_, prefix, _)| *prefix);
        if prefixes().any(str::is_empty) {
            return None;
        }

        let others = prefixes().flat_map(|prefix| ["--skip", prefix]);
        Some(Run {
            program: self,
            prefix: "",
            step: self.step(scratch, self.threads()).args(others),
        })
    }

    /// The tests that need the machine for themselves.
    fn alone<'a>(&'a self, scratch: &'a Path) -> impl Iterator<Item = Run<'a>> {
        self.rows_alone().map(move |(_, prefix, threads)| Run {
            program: self,
            prefix,
            step: self.step(scratch, threads).arg(prefix),
        })
    }

    fn rows_alone(
        &self,
    ) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
        ALONE.iter().filter(|(target, ..)| *target == self.target)
    }

    fn threads(&self) -> &'static str {
        match self.target.as_str() {
            "conformance" | "unreachable" => THREADS_OF_SUITES,
            "leasehold_redis" | "suites" => THREADS_OF_MODELS,
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

    /// The program, in the environment that `cargo test` gives it.
    pub(crate) fn command(&self, wrapper: &[&str]) -> Command {
        let words: Vec<&str> = wrapper.iter().copied().chain([&*self.path]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("RUST_BACKTRACE", "0")
            .env("RUST_TEST_THREADS", "1");
        command
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
    built("--workspace --all-features")
}

/// Builds one test program.
pub(crate) fn program(selection: &str) -> Result<Program> {
    let mut programs = built(selection)?;
    programs
        .pop()
        .with_context(|| format!("no test program is selected by {selection}"))
}

fn built(selection: &str) -> Result<Vec<Program>> {
    let build = format!("test {selection} --no-run --message-format=json-render-diagnostics");
    let messages = Step::cargo("build of the tests", &build).output()?;

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
            ("faults", &["--quiet --skip outage::", "--quiet outage::"]),
        ] {
            let program = Program::parse(&message(target)).context("it has tests")?;
            let beside = program.beside_others(scratch.path()).into_iter();
            let runs = beside.chain(program.alone(scratch.path()));
            let lines: Vec<String> = runs.map(|run| run.step.command_line()).collect();
            assert_eq!(lines.len(), arguments.len(), "{lines:?}");
            for (line, arguments) in lines.iter().zip(arguments) {
                assert!(line.ends_with(&format!("/program {arguments}")), "{line}");
            }
        }
        Ok(())
    }
}
