//! Runs the test programs of the workspace.
//!
//! Most tests wait for leases, servers and processes and hardly compute, so many of them run at a
//! time. The tests that need the machine for themselves run afterwards, one at a time. A test that
//! fails has failed: no test runs a second time.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::scratch::Scratch;
use crate::step::Step;

/// How many tests of a program run at a time.
const THREADS: &str = "4";
/// Programs whose tests wait for nearly all of their time, so that more of them run at a time.
const MOSTLY_WAIT: [&str; 1] = ["conformance"];
const THREADS_THAT_WAIT: &str = "16";

/// Tests that need both cores: a target, and how the names of the tests begin.
const ALONE: [(&str, &str); 3] = [
    // Fifty commands at once.
    ("command", "outage::"),
    // Sessions of one second, and a server in Java.
    ("command", "zookeeper::"),
    // It counts what a process allocates, and all threads of the program count.
    ("allocations", ""),
];

/// A program of tests that cargo has built.
struct Program {
    /// The options of `cargo test` that select it.
    selection: String,
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
    let scratch = Scratch::create()?;
    let mut failed = Vec::new();

    for program in &programs()? {
        println!("xtask: tests of {} …", program.selection);
        let start = Instant::now();
        for step in program.steps(&scratch) {
            if let Err(error) = step.run_quietly() {
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

impl Program {
    /// The tests that run beside each other, and then those that run alone.
    fn steps(&self, scratch: &Scratch) -> Vec<Step> {
        let rows = ALONE.iter().filter(|(target, _)| *target == self.target);
        let alone: Vec<&str> = rows.map(|(_, prefix)| *prefix).collect();

        let mut steps = Vec::new();
        if !alone.contains(&"") {
            let step = self.step(scratch, self.threads());
            let others = alone.iter().flat_map(|prefix| ["--skip", *prefix]);
            steps.push(step.args(others));
        }
        steps.extend(
            alone
                .iter()
                .map(|prefix| self.step(scratch, "1").arg(prefix)),
        );
        steps
    }

    fn threads(&self) -> &'static str {
        if MOSTLY_WAIT.contains(&self.target.as_str()) {
            THREADS_THAT_WAIT
        } else {
            THREADS
        }
    }

    fn step(&self, scratch: &Scratch, threads: &str) -> Step {
        Step::program(&self.path)
            .folder(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder.to_string_lossy())
            .env("RUST_BACKTRACE", "0")
            .env("RUST_TEST_THREADS", threads)
            .env("TMPDIR", &scratch.path())
            .arg("--quiet")
    }

    fn line_that_repeats(&self) -> String {
        format!("cargo test --all-features {} --", self.selection)
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

    #[test]
    fn every_test_runs_beside_others_or_alone() -> Result<()> {
        let scratch = Scratch::create()?;
        let mut program = Program::parse(&message("path+file:///w/leasehold#0.1.0", "test"))
            .context("it has tests")?;
        let commands = |program: &Program| {
            let steps = program.steps(&scratch).into_iter();
            let lines = steps.map(|step| step.command_line());
            lines
                .map(|line| {
                    line.rsplit_once("redis-1 ")
                        .map(|(_, args)| args.to_owned())
                })
                .collect::<Option<Vec<_>>>()
        };

        let all = commands(&program).context("all name the program")?;
        assert_eq!(all, ["--quiet"]);
        program.target = "command".to_owned();
        let split = commands(&program).context("all name the program")?;
        assert_eq!(split[0], "--quiet --skip outage:: --skip zookeeper::");
        assert_eq!(split[1..], ["--quiet outage::", "--quiet zookeeper::"]);
        program.target = "allocations".to_owned();
        let alone = commands(&program).context("all name the program")?;
        assert_eq!(alone, ["--quiet ''"]);
        Ok(())
    }
}
