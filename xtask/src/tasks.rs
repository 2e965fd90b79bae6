//! The tasks that consist of a few commands.

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::baselines;
use crate::documents;
use crate::mutants;
use crate::prerequisites;
use crate::repository;
use crate::scratch::Scratch;
use crate::simulate;
use crate::step::{Step, succeeds};
use crate::suite;
use crate::tidy;
use crate::usage::check_names;

/// When the last step begins at the latest. CI ends a run after 90 minutes.
const LAST_BEGIN: Duration = Duration::from_secs(65 * 60);
/// A doc test that starts a server.
const SERVER_DOC_TEST: &str = "fence/redis.rs";

/// What a change must pass while it is being written. It needs no server and no network.
pub(crate) fn check() -> Result<()> {
    let start = Instant::now();

    tidy::check()?;
    documents::check()?;
    for step in check_steps() {
        step.run()?;
    }

    println!("xtask: check passed in {} s", start.elapsed().as_secs());
    Ok(())
}

/// What a change must pass before it is merged.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();

    prerequisites::install_for_tests()?;
    tidy::check()?;
    documents::check()?;
    let scratch = Scratch::create()?;
    let steps = test_steps(&scratch)?;
    let first = [format_step().run(), lint_step().run(), suite::run(&scratch)];
    let rest = steps.iter().map(Step::run);
    let last = iter::once_with(|| drawn_in_time(start));
    failures_of(first.into_iter().chain(rest).chain(last))?;
    check_licences()?;

    println!("xtask: test passed in {} s", start.elapsed().as_secs());
    Ok(())
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

/// Measures whether ZooKeeper servers agree after their leader was killed.
pub(crate) fn agreement(release: &str, numbers: &[u64]) -> Result<()> {
    prerequisites::install_servers()?;

    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    Step::cargo("agreement", "run --quiet -p lab --bin agreement --")
        .arg(release)
        .args(numbers.iter().map(String::as_str))
        .run_quietly()
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

fn check_steps() -> Vec<Step> {
    let library = "test --quiet -p leasehold --all-features";

    vec![
        format_step(),
        lint_step(),
        Step::cargo("unit tests", library).arg("--lib"),
        Step::cargo("conformance of memory and file", library).args([
            "--test",
            "conformance",
            "--",
            "memory::",
            "file::",
        ]),
        Step::cargo("doc tests", library).args(["--doc", "--", "--skip", SERVER_DOC_TEST]),
        Step::cargo("tests of xtask", "test --quiet -p xtask"),
    ]
}

/// Runs seeded bugs, unless the run has taken so long that they could exceed the limit of CI.
fn drawn_in_time(start: Instant) -> Result<()> {
    if start.elapsed() < LAST_BEGIN {
        return mutants::run_drawn();
    }

    println!(
        "xtask: seeded bugs NOT run: the tests took {} minutes",
        start.elapsed().as_secs() / 60
    );
    Ok(())
}

/// Returns what failed. All parts run, also after one that fails.
fn failures_of(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let failures: Vec<String> = results
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();

    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn test_steps(scratch: &Scratch) -> Result<Vec<Step>> {
    let doc_tests = "test --workspace --all-features --no-fail-fast --doc";
    let mut steps = vec![
        Step::cargo("doc tests", doc_tests).env("TMPDIR", &scratch.path()),
        simulate::engine_step(),
        simulate::script_step(),
        Step::cargo("docs", "doc --workspace --all-features --no-deps --lib")
            .env("RUSTDOCFLAGS", "-D warnings"),
        Step::cargo(
            "docs without features",
            "doc -p leasehold --no-default-features --no-deps --lib",
        )
        .env("RUSTDOCFLAGS", "-D warnings"),
        feature_step("no features", ""),
    ];

    for feature in features_of(&metadata()?, "leasehold")? {
        steps.push(feature_step(&format!("feature {feature} alone"), &feature));
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

fn feature_step(name: &str, features: &str) -> Step {
    Step::cargo(
        name,
        "clippy -p leasehold --all-targets --no-default-features --features",
    )
    .arg(features)
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

/// Runs cargo-deny where it is installed. It takes minutes to build, so xtask does not install it.
fn check_licences() -> Result<()> {
    if succeeds("cargo-deny", &["--version"]) {
        return Step::cargo("licences, bans and sources", "deny --all-features check")
            .args(["licenses", "bans", "sources"])
            .run();
    }

    println!(
        "xtask: licences, bans and sources NOT checked: install cargo-deny \
         (cargo install cargo-deny)"
    );
    Ok(())
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
    fn all_parts_run_and_every_failure_is_reported() {
        let steps = [
            Step::program("false"),
            Step::program("true"),
            Step::program("ls").arg("/missing"),
        ];
        let error = failures_of(steps.iter().map(Step::run)).expect_err("two steps fail");

        let error = error.to_string();
        assert!(error.contains("step `false` failed"), "{error}");
        assert!(error.contains("step `ls` failed"), "{error}");
        failures_of(steps[1..2].iter().map(Step::run)).expect("true(1) succeeds");
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
