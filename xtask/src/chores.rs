//! What each chore does, step by step.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::needs;
use crate::peers;
use crate::step::Step;

/// Everything that must pass before a change goes in.
pub(crate) fn test() -> Result<()> {
    let begun = Instant::now();
    needs::meet()?;
    peers::fetch_for_tests()?;
    for step in test_steps()? {
        step.run()?;
    }
    licences()?;
    println!("xtask: all passed in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// The full soaks in peace, on files and on Redis. The test suite runs shorter ones, and `lab` those under each fault.
pub(crate) fn soak() -> Result<()> {
    needs::meet()?;
    let line = "test --release -p lab --test promises -- --nocapture --test-threads=1 soak_";
    Step::cargo("a million cycles", line).env("LAB_CYCLES", "1000000").run()
}

/// All locks that are compared, or those that are named, under all faults.
pub(crate) fn four_conditions(names: &[String]) -> Result<()> {
    needs::meet()?;
    Step::cargo("the specimens", "build -p lab --bins").run()?;
    Step::cargo("four conditions", "run --quiet -p lab --bin four_conditions --").args(&names.join(" ")).run()
}

/// Whether ZooKeeper servers agree on what they have written.
pub(crate) fn agreement(args: &[String]) -> Result<()> {
    needs::meet()?;
    Step::cargo("agreement", "run --quiet -p lab --bin agreement --").args(&args.join(" ")).run_quietly()
}

/// All benchmarks, or those that are named.
pub(crate) fn bench(names: &[String]) -> Result<()> {
    needs::meet()?;
    peers::fetch()?;
    Step::cargo("the command", "build --release -p leasehold-cli").run()?;
    let wanted = names.iter().map(|name| format!("--bench {name} "));
    let which = if names.is_empty() { "--benches".to_owned() } else { wanted.collect() };
    Step::cargo("benchmarks", "bench -p lab").args(&which).run()
}

fn test_steps() -> Result<Vec<Step>> {
    let mut steps = vec![
        Step::cargo("format", "fmt --all --check"),
        Step::cargo("lints", "clippy --workspace --all-targets --all-features -- -D warnings"),
        Step::cargo("tests and doc tests", "test --workspace --all-features --no-fail-fast"),
        Step::cargo("docs", "doc --workspace --all-features --no-deps --lib").env("RUSTDOCFLAGS", "-D warnings"),
        lone_features("no features", ""),
    ];
    for feature in features_of("leasehold")? {
        steps.push(lone_features(&format!("feature {feature} alone"), &feature));
    }
    Ok(steps)
}

fn lone_features(name: &str, features: &str) -> Step {
    let line = "clippy -p leasehold --all-targets --no-default-features --features";
    Step::cargo(name, line).arg(features).args("-- -D warnings")
}

/// The features that a package declares, without `default`.
fn features_of(package: &str) -> Result<Vec<String>> {
    let told = Command::new(crate::step::cargo()).args(["metadata", "--no-deps", "--format-version=1"]).output()?;
    ensure!(told.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).context("cargo metadata is not JSON")?;
    let packages = told["packages"].as_array().context("cargo metadata tells of no packages")?;
    let found = packages.iter().find(|found| found["name"] == package);
    let features = found.and_then(|found| found["features"].as_object()).context("the package is not there")?;
    Ok(features.keys().filter(|feature| *feature != "default").cloned().collect())
}

/// cargo-deny takes minutes to build, so it is used where it is installed, and its absence is said.
fn licences() -> Result<()> {
    if needs::has("cargo-deny", "--version") {
        return Step::cargo("licences, bans and sources", "deny --all-features check licenses bans sources").run();
    }
    println!("xtask: licences, bans and sources NOT checked: cargo-deny is not installed (cargo install cargo-deny)");
    Ok(())
}
