//! Runs all test programs of the workspace.
//!
//! A test that fails while the machine is disturbed has measured the machine, so it runs again
//! alone. A test that fails on a quiet machine has failed, and so has one that saw two holds.

mod report;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::gauge::{Disturbance, Gauge};
use crate::scratch::Scratch;
use crate::step::Step;

use report::Report;

/// The suites of all stores. Most of them wait for leases, so more run at a time than the machine
/// has cores.
const CONFORMANCE: &str = "conformance";
const CONFORMANCE_THREADS: &str = "4";
/// How often a test may run alone.
const ATTEMPTS: usize = 3;
/// More failures are not the work of a disturbance.
const MOST_REPEATED: usize = 40;

/// A program of tests that cargo has built.
struct Program {
    /// The options of `cargo test` that select it.
    selection: String,
    target: String,
    path: String,
    folder: PathBuf,
}

/// A test that failed beside others.
struct Failure<'a> {
    program: &'a Program,
    test: String,
    disturbance: Disturbance,
}

/// Builds and runs all test programs, also after one that fails.
pub(crate) fn run(scratch: &Scratch) -> Result<()> {
    let programs = programs()?;
    let mut failures = Vec::new();
    let mut final_failures = Vec::new();

    for program in &programs {
        let (report, disturbance) = program.run(scratch)?;
        if !report.is_success && report.failed.is_empty() {
            final_failures.push(format!("{}: it ended without a report", program.selection));
        }

        for (test, text) in report.failed {
            if is_final(&disturbance, &text) {
                final_failures.push(program.line_that_repeats(&test));
            } else {
                failures.push(Failure {
                    program,
                    test,
                    disturbance,
                });
            }
        }
    }

    let may_repeat = failures.len() <= MOST_REPEATED;
    for failure in failures {
        if !may_repeat || !failure.passes_alone(scratch)? {
            final_failures.push(failure.program.line_that_repeats(&failure.test));
        }
    }

    ensure!(
        final_failures.is_empty(),
        "tests failed; to repeat them:\n  {}",
        final_failures.join("\n  ")
    );
    Ok(())
}

impl Program {
    /// Runs all its tests, and prints everything except the names of tests that pass.
    fn run(&self, scratch: &Scratch) -> Result<(Report, Disturbance)> {
        println!("xtask: tests of {} …", self.selection);
        let threads = (self.target == CONFORMANCE).then_some(CONFORMANCE_THREADS);
        let step = self.step(scratch);
        let step = match threads {
            Some(threads) => step.env("RUST_TEST_THREADS", threads),
            None => step,
        };

        self.measured(&step)
    }

    fn measured(&self, step: &Step) -> Result<(Report, Disturbance)> {
        let gauge = Gauge::start();
        let mut report = Report::default();
        let status = step.run_and_read(|line| {
            if report.read(line) {
                println!("{line}");
            }
        })?;

        report.is_success = status.success();
        let disturbance = gauge.stop();
        println!("xtask: machine during {}: {disturbance}", self.selection);
        Ok((report, disturbance))
    }

    fn step(&self, scratch: &Scratch) -> Step {
        Step::program(&self.path)
            .folder(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder.to_string_lossy())
            .env("RUST_BACKTRACE", "0")
            .env("TMPDIR", &scratch.path())
    }

    fn line_that_repeats(&self, test: &str) -> String {
        format!(
            "cargo test --all-features {} -- --exact {test}",
            self.selection
        )
    }

    /// Reads what cargo prints of a program that it has built. None if it has no tests.
    fn parse(message: &Value) -> Option<Self> {
        let is_test = message["profile"]["test"] == true;
        let path = message["executable"].as_str().filter(|_| is_test)?;
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        let folder = manifest.parent()?.to_owned();

        let target = message["target"]["name"].as_str()?.to_owned();
        let option = match message["target"]["kind"][0].as_str()? {
            "test" => format!("--test {target}"),
            "bin" => format!("--bin {target}"),
            "example" => format!("--example {target}"),
            _ => "--lib".to_owned(),
        };
        let package = message["package_id"].as_str()?;
        let package = package.rsplit_once('#').map_or(package, |(_, id)| id);
        let package = match package.split_once('@') {
            Some((name, _)) => name.to_owned(),
            None => folder.file_name()?.to_string_lossy().into_owned(),
        };

        Some(Self {
            selection: format!("-p {package} {option}"),
            target,
            path: path.to_owned(),
            folder,
        })
    }
}

impl Failure<'_> {
    fn passes_alone(&self, scratch: &Scratch) -> Result<bool> {
        println!(
            "xtask: {} failed on a disturbed machine ({}); again, alone …",
            self.test, self.disturbance
        );
        let step = self.program.step(scratch).args(["--exact", &self.test]);

        for _ in 0..ATTEMPTS {
            wait_for_a_quiet_second();
            let (report, _) = self.program.measured(&step)?;
            if report.is_success && report.passed == 1 {
                println!("xtask: {} passed alone", self.test);
                return Ok(true);
            }
            if report
                .failed
                .values()
                .any(|text| report::has_two_holds(text))
            {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// Whether a failure counts even if the test passes alone.
fn is_final(disturbance: &Disturbance, text: &str) -> bool {
    !disturbance.is_noticeable() || report::has_two_holds(text)
}

/// Waits until a second passes without a disturbance, a minute at most.
fn wait_for_a_quiet_second() {
    const MOST: usize = 40;

    for _ in 0..MOST {
        let gauge = Gauge::start();
        thread::sleep(Duration::from_millis(1_500));
        if !gauge.stop().is_noticeable() {
            return;
        }
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
    programs.sort_by(|one, other| one.selection.cmp(&other.selection));
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn message(package: &str, kind: &str) -> Value {
        json!({
            "package_id": package,
            "manifest_path": "/w/crates/leasehold/Cargo.toml",
            "target": { "name": "redis", "kind": [kind] },
            "profile": { "test": true },
            "executable": "/w/target/debug/deps/redis-1",
        })
    }

    #[test]
    fn programs_are_selected_as_a_user_selects_them() {
        let id = "path+file:///w/crates/leasehold#0.1.0";
        let named = "path+file:///w/crates/leasehold#other@0.1.0";
        for (id, kind, selection) in [
            (id, "test", "-p leasehold --test redis"),
            (named, "lib", "-p other --lib"),
            (id, "bin", "-p leasehold --bin redis"),
        ] {
            let program = Program::parse(&message(id, kind)).expect("it has tests");
            assert_eq!(program.selection, selection);
            assert_eq!(program.folder, PathBuf::from("/w/crates/leasehold"));
        }
    }

    /// Runs a failed test again, with a program that is this shell script.
    fn passes_alone(script: &str) -> Result<bool> {
        let scratch = Scratch::create()?;
        let path = PathBuf::from(scratch.path()).join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        let program = Program {
            selection: "-p a --test a".to_owned(),
            target: "a".to_owned(),
            path: path.to_string_lossy().into_owned(),
            folder: PathBuf::from(scratch.path()),
        };

        let failure = Failure {
            program: &program,
            test: "one".to_owned(),
            disturbance: Disturbance::default(),
        };
        failure.passes_alone(&scratch)
    }

    #[test]
    fn failed_test_passes_if_it_passes_alone() -> Result<()> {
        let once = r#"test "$*" = "--exact one" && echo "test one ... ok""#;
        assert!(passes_alone(once)?);

        let second_time = format!("test -e tried && {once} || {{ touch tried; exit 1; }}");
        assert!(passes_alone(&second_time)?);
        Ok(())
    }

    #[test]
    fn failed_test_fails_if_it_never_passes_or_does_not_run() -> Result<()> {
        assert!(!passes_alone("echo 'test one ... FAILED'; exit 101")?);
        assert!(!passes_alone("echo 'test result: ok. 0 passed'")?);
        Ok(())
    }

    #[test]
    fn failure_with_two_holds_is_final() -> Result<()> {
        let heading = "---- one stdout ----";
        let second_time = format!(
            "test -e tried && echo 'test one ... ok' && exit; touch tried; \
             echo 'test one ... FAILED'; echo '{heading}'; echo 'two hold at once'; exit 101"
        );
        assert!(!passes_alone(&second_time)?);

        let disturbed = Disturbance {
            latest: Duration::from_secs(1),
            ..Disturbance::default()
        };
        assert!(is_final(&disturbed, "two hold at once"));
        assert!(is_final(&Disturbance::default(), "too late"));
        assert!(!is_final(&disturbed, "too late"));
        Ok(())
    }

    #[test]
    fn programs_without_tests_are_not_run() {
        let mut library = message("path+file:///w/a#0.1.0", "lib");
        library["profile"]["test"] = false.into();
        assert!(Program::parse(&library).is_none());

        let mut library = message("path+file:///w/a#0.1.0", "lib");
        library["executable"] = Value::Null;
        assert!(Program::parse(&library).is_none());
        assert!(Program::parse(&json!({ "reason": "build-finished" })).is_none());
    }
}
