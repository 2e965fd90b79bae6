//! Runs the test programs of the workspace.
//!
//! Most tests wait for leases, servers and processes and hardly compute. So many tests of a program
//! run at a time, and two programs: one of those that need about a core, and one of the others.
//! The tests that need the machine for themselves run last, one program at a time. A test that
//! fails has failed: no test runs a second time.
//!
//! A program says in its root file what it needs, where that differs:
//!
//! ```text
//! // xtask: busy             It needs about a core: two of these would slow each other down.
//! // xtask: threads 24       So many of its tests run at a time.
//! // xtask: alone 3 outage:: Tests whose names begin so need both cores; so many run at a time.
//! // xtask: alone 1          The same for all of its tests.
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::parallel::run_each;
use crate::step::Step;

/// What begins a line in which a program says what it needs.
const NEED: &str = "// xtask: ";

/// How many tests of a program run at a time, unless it says otherwise.
const THREADS: u32 = 4;

/// A file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

/// What a whole run of the tests writes at most at one time, in KiB.
const SCRATCH_MAX: u64 = 4 << 20;

/// A program of tests that cargo has built.
pub(crate) struct Program {
    target: String,
    path: String,
    folder: PathBuf,
    needs: Needs,
}

/// What a program says of itself.
#[derive(Debug, PartialEq, Eq)]
struct Needs {
    is_busy: bool,
    threads: u32,
    alone: Vec<Alone>,
}

/// Tests that need the machine for themselves.
#[derive(Debug, PartialEq, Eq)]
struct Alone {
    threads: u32,
    /// How their names begin. Empty for all tests of the program.
    prefix: String,
}

/// Tests of a program that run in one process.
struct Run<'a> {
    program: &'a Program,
    /// How the names of the tests begin. Empty for all that do not run alone.
    prefix: &'a str,
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
    let scratch = scratch.path();
    let beside = programs
        .iter()
        .filter_map(|program| program.beside_others(scratch));
    let (busy, others): (Vec<_>, Vec<_>) = beside.partition(|run| run.program.needs.is_busy);
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
        let Needs { threads, alone, .. } = &self.needs;
        let prefixes = || alone.iter().map(|tests| tests.prefix.as_str());
        if prefixes().any(str::is_empty) {
            return None;
        }

        let others = prefixes().flat_map(|prefix| ["--skip", prefix]);
        Some(Run {
            program: self,
            prefix: "",
            step: self.step(scratch, *threads).args(others),
        })
    }

    /// The tests that need the machine for themselves.
    fn alone<'a>(&'a self, scratch: &'a Path) -> impl Iterator<Item = Run<'a>> {
        let alone = self.needs.alone.iter();
        alone.map(move |Alone { threads, prefix }| Run {
            program: self,
            prefix,
            step: self.step(scratch, *threads).arg(prefix),
        })
    }

    fn step(&self, scratch: &Path, threads: u32) -> Step {
        Step::program(&self.path)
            .folder(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder.to_string_lossy())
            .env("RUST_BACKTRACE", "0")
            .env("RUST_TEST_THREADS", &threads.to_string())
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

    /// A program for tests of these tasks.
    #[cfg(test)]
    pub(crate) fn at(path: &str, needs: &str) -> Result<Self> {
        Ok(Self {
            target: "name".to_owned(),
            path: path.to_owned(),
            folder: PathBuf::from("."),
            needs: Needs::parse(needs)?,
        })
    }

    /// Reads what cargo prints of a program that it has built. None if it has no tests.
    fn parse(message: &Value) -> Result<Option<Self>> {
        let is_test = message["profile"]["test"] == true;
        let Some(path) = message["executable"].as_str().filter(|_| is_test) else {
            return Ok(None);
        };
        let text = |value: &Value| {
            let text = value.as_str().context("cargo describes the program")?;
            Ok::<String, anyhow::Error>(text.to_owned())
        };
        let source = text(&message["target"]["src_path"])?;
        let source = fs::read_to_string(&source).with_context(|| source.clone())?;

        Ok(Some(Self {
            target: text(&message["target"]["name"])?,
            path: path.to_owned(),
            folder: Path::new(&text(&message["manifest_path"])?)
                .parent()
                .context("a manifest lies in a folder")?
                .to_owned(),
            needs: Needs::parse(&source)?,
        }))
    }
}

impl Needs {
    /// Reads what the root file of a program says.
    fn parse(source: &str) -> Result<Self> {
        let mut needs = Self {
            is_busy: false,
            threads: THREADS,
            alone: Vec::new(),
        };
        for line in source.lines().filter_map(|line| line.strip_prefix(NEED)) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["busy"] => needs.is_busy = true,
                ["threads", threads] => needs.threads = threads.parse()?,
                ["alone", threads, ref prefix @ ..] => needs.alone.push(Alone {
                    threads: threads.parse()?,
                    prefix: prefix.concat(),
                }),
                _ => bail!("xtask does not know what `{line}` means"),
            }
        }
        Ok(needs)
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
        programs.extend(Program::parse(&message)?);
    }
    programs.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_without_tests_are_not_run() -> Result<()> {
        let mut message = json!({
            "manifest_path": "/w/crates/leasehold/Cargo.toml",
            "target": { "name": "leasehold", "src_path": concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs") },
            "profile": { "test": true },
            "executable": "/w/target/debug/deps/program",
        });
        assert!(Program::parse(&message)?.is_some());

        message["profile"]["test"] = false.into();
        assert!(Program::parse(&message)?.is_none());
        assert!(Program::parse(&json!({ "reason": "build-finished" }))?.is_none());
        Ok(())
    }

    #[test]
    fn every_test_runs_beside_others_or_alone() -> Result<()> {
        let scratch = scratch()?;
        assert!(scratch.path().is_dir());

        for (needs, commands) in [
            ("", ["TEST_THREADS=4 program --quiet"].as_slice()),
            (
                "// xtask: threads 24\n",
                &["TEST_THREADS=24 program --quiet"],
            ),
            (
                "// xtask: alone 3 a::\n// xtask: alone 4 b::\n",
                &[
                    "TEST_THREADS=4 program --quiet --skip a:: --skip b::",
                    "TEST_THREADS=3 program --quiet a::",
                    "TEST_THREADS=4 program --quiet b::",
                ],
            ),
            (
                "// xtask: alone 1\n",
                &["TEST_THREADS=1 program --quiet ''"],
            ),
        ] {
            let program = Program::at("program", needs)?;
            let beside = program.beside_others(Path::new("/s")).into_iter();
            let runs = beside.chain(program.alone(Path::new("/s")));
            let lines = runs.map(|run| run.step.command_line().replace("TMPDIR=/s ", ""));
            let lines: Vec<String> = lines.collect();
            assert_eq!(lines.len(), commands.len(), "{lines:?}");
            for (line, command) in lines.iter().zip(commands) {
                assert!(line.ends_with(command), "{line}");
            }
        }
        Ok(())
    }

    #[test]
    fn unknown_need_is_an_error() {
        assert!(Needs::parse("// xtask: busy\n").is_ok_and(|needs| needs.is_busy));
        assert!(Needs::parse("// xtask: lazy\n").is_err());
    }
}
