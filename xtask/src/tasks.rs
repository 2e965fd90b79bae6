//! The tasks that consist of a few commands.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::baselines;
use crate::documents;
use crate::mutants;
use crate::prerequisites;
use crate::repository;
use crate::step::Step;
use crate::suite;
use crate::tidy;
use crate::timings::Timings;
use crate::usage::check_names;

/// A doc test that starts a server.
const SERVER_DOC_TEST: &str = "fence/redis.rs";

/// The models that try all that can happen, which takes them up to a minute.
const MODELS: &str = "model_keeps";

/// What a change must pass while it is being written. It needs no server and no network.
pub(crate) fn check() -> Result<()> {
    let mut timings = Timings::begin();

    timings.run("rules", 5, rules);
    for (step, budget) in check_steps() {
        timings.run_step(&step, budget);
    }
    timings.conclude("check")
}

/// What a change must pass before it is merged.
///
/// The budgets are those of a cold run on two cores: 40 minutes in all.
pub(crate) fn test() -> Result<()> {
    let mut timings = Timings::begin();

    timings.run("installation", 180, prerequisites::install_for_tests);
    timings.stop_if_failed("test")?;
    timings.run("rules", 5, rules);
    timings.run_step(&format_step(), 5);
    timings.run_step(&lint_step(), 210);
    timings.run("build of the tests", 390, suite::build);
    timings.run("tests", 960, suite::run);
    for (step, budget) in last_steps()? {
        timings.run_step(&step, budget);
    }
    timings.run("two seeded bugs", 240, mutants::run_drawn);
    timings.conclude("test")
}

fn rules() -> Result<()> {
    tidy::check()?;
    documents::check()
}

/// Runs all baselines, or the named ones, under all faults.
pub(crate) fn four_conditions(names: &[String]) -> Result<()> {
    let kinds = baselines::kinds_of(names)?;
    prerequisites::install_servers()?;

    Step::cargo("the baselines", "build -p lab --bins").run()?;
    Step::cargo(
        "four conditions",
        "run --quiet -p lab --bin four_conditions --",
    )
    .args(kinds)
    .run()
}

/// Runs all benchmarks, or the named ones.
pub(crate) fn bench(names: &[String]) -> Result<()> {
    let benchmarks = benchmarks()?;
    let valid: Vec<&str> = benchmarks.iter().map(String::as_str).collect();
    check_names("benchmark", names, &valid)?;
    prerequisites::install_for_benchmarks()?;

    Step::cargo("the command", "build --release -p leasehold-cli").run()?;
    let step = Step::cargo("benchmarks", "bench -p lab");
    let step = match names {
        [] => step.arg("--benches"),
        names => names
            .iter()
            .fold(step, |step, name| step.args(["--bench", name])),
    };
    step.run()
}

fn check_steps() -> Vec<(Step, u64)> {
    let tests = "test --quiet --workspace --all-features";
    let conformance = Step::cargo("conformance of memory and file", tests);

    vec![
        (format_step(), 5),
        (lint_step(), 20),
        (
            Step::cargo("unit tests", tests).args(["--lib", "--bins", "--", "--skip", MODELS]),
            30,
        ),
        (
            conformance.args(["--test", "conformance", "--", "memory::", "file::"]),
            15,
        ),
        (
            Step::cargo("doc tests", tests).args(["--doc", "--", "--skip", SERVER_DOC_TEST]),
            30,
        ),
    ]
}

/// Documentation and features, each with its budget in seconds.
fn last_steps() -> Result<Vec<(Step, u64)>> {
    let doc_tests = "test --quiet --workspace --all-features --no-fail-fast --doc";
    let mut steps = vec![
        (Step::cargo("doc tests", doc_tests), 70),
        (
            Step::cargo("docs", "doc --workspace --all-features --no-deps --lib")
                .env("RUSTDOCFLAGS", "-D warnings"),
            30,
        ),
        (feature_step("no features", ""), 30),
    ];

    for feature in features_of(&metadata()?, "leasehold")? {
        let name = format!("feature {feature} alone");
        steps.push((feature_step(&name, &feature), 20));
    }
    Ok(steps)
}

fn format_step() -> Step {
    Step::cargo("format", "fmt --all --check")
}

fn lint_step() -> Step {
    Step::cargo(
        "lints",
        "clippy --quiet --workspace --all-targets --all-features",
    )
    .args(["--", "-D", "warnings"])
}

/// Whether the library compiles with these features alone, without a warning.
fn feature_step(name: &str, features: &str) -> Step {
    Step::cargo(name, "clippy --quiet -p leasehold --no-default-features")
        .args(["--features", features])
        .args(["--", "-D", "warnings"])
}

/// What cargo knows of the packages of the workspace.
fn metadata() -> Result<Value> {
    let metadata = Step::cargo("metadata", "metadata --no-deps --format-version=1").output()?;

    serde_json::from_str(&metadata).context("metadata is not JSON")
}

/// The features of a package except `default`.
fn features_of(metadata: &Value, package: &str) -> Result<Vec<String>> {
    let packages = metadata["packages"]
        .as_array()
        .context("metadata lists no packages")?;
    let found = packages.iter().find(|found| found["name"] == package);
    let features = found
        .and_then(|found| found["features"].as_object())
        .with_context(|| format!("metadata does not list {package}"))?;

    Ok(features
        .keys()
        .filter(|feature| *feature != "default")
        .cloned()
        .collect())
}

/// The benchmarks of the lab: `NAME.rs` or `NAME/main.rs`.
fn benchmarks() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();

    for entry in fs::read_dir(repository::root().join("lab/benches"))? {
        let path = entry?.path();
        let is_file = path.extension().is_some_and(|extension| extension == "rs");
        if is_file || path.join("main.rs").exists() {
            let stem = path.file_stem().unwrap_or_default();
            names.insert(stem.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_file_has_a_name() -> Result<()> {
        let names = benchmarks()?;

        assert!(
            names.contains("uncontended") && names.contains("redis"),
            "{names:?}"
        );
        Ok(())
    }

    #[test]
    fn features_are_listed_without_default() -> Result<()> {
        let features = features_of(&metadata()?, "leasehold")?;

        assert!(features.contains(&"redis".to_owned()), "{features:?}");
        assert!(!features.contains(&"default".to_owned()), "{features:?}");
        Ok(())
    }

    #[test]
    fn unit_tests_need_no_server() -> Result<()> {
        let root = repository::root();
        for file in repository::files(&root)? {
            let is_unit = file.starts_with("crates/leasehold/src");
            let text = if is_unit {
                fs::read_to_string(root.join(&file))?
            } else {
                String::new()
            };
            let uses = text
                .lines()
                .any(|line| line.contains("lab_servers") && !line.trim_start().starts_with("//"));
            assert!(!uses, "{} starts a server", file.display());
        }

        Ok(())
    }
}
