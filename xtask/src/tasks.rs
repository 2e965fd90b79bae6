//! The tasks that consist of a few commands.

use anyhow::{Context, Result};

use crate::evidence;
use crate::fetch;
use crate::mutants;
use crate::prerequisites;
use crate::repository;
use crate::step::Step;
use crate::suite;
use crate::tidy;
use crate::timings::{Timed, run_all};

/// A doc test that starts a server.
const SERVER_DOC_TEST: &str = "fence/redis.rs";

/// The models that try all that can happen, which takes them up to a minute.
const MODELS: &str = "model_keeps";

/// What a change must pass while it is being written. It needs no server and no network.
pub(crate) fn check() -> Result<()> {
    let tests = "test --quiet --workspace --all-features";
    let unit_tests =
        Step::cargo("unit tests", tests).args(["--lib", "--bins", "--", "--skip", MODELS]);
    let conformance = Step::cargo("conformance of memory and file", tests).args([
        "--test",
        "conformance",
        "--",
        "memory::",
        "file::",
    ]);
    let doc_tests =
        Step::cargo("doc tests", tests).args(["--doc", "--", "--skip", SERVER_DOC_TEST]);

    run_all(
        "check",
        vec![
            Timed::new("rules", 5, rules),
            Timed::step(format(), 5),
            Timed::step(lints(), 20),
            Timed::step(unit_tests, 30),
            Timed::step(conformance, 15),
            Timed::step(doc_tests, 30),
        ],
    )
}

/// What a change must pass before it is merged.
///
/// The budgets are those of a cold run on two cores: 25 minutes in all.
pub(crate) fn test() -> Result<()> {
    let install = Timed::new("installation", 80, prerequisites::install_for_tests);
    run_all("installation", vec![install])?;

    let doc_tests = "test --quiet --workspace --all-features --no-fail-fast --doc";
    let docs = "doc --workspace --all-features --no-deps --lib";

    let mut steps = vec![
        Timed::new("rules", 5, rules),
        Timed::step(format(), 5),
        Timed::step(lints(), 150),
        Timed::new("build of the tests", 210, suite::build),
        Timed::new("tests", 600, suite::run),
        Timed::step(Step::cargo("doc tests", doc_tests), 80),
        Timed::step(
            Step::cargo("docs", docs).env("RUSTDOCFLAGS", "-D warnings"),
            25,
        ),
        Timed::step(lints_with("no features", "leasehold", ""), 15),
        Timed::step(lints_with("no console", "leasehold-cli", ""), 20),
    ];
    for feature in features()? {
        let name = format!("feature {feature} alone");
        steps.push(Timed::step(lints_with(&name, "leasehold", &feature), 10));
    }
    steps.push(Timed::new("two seeded bugs", 150, mutants::run_drawn));
    run_all("test", steps)
}

fn rules() -> Result<()> {
    tidy::check()?;
    evidence::check()
}

/// Runs all benchmarks, or the named ones.
pub(crate) fn bench(names: &[String]) -> Result<()> {
    prerequisites::install(&fetch::for_benchmarks()?)?;

    Step::cargo("the command", "build --release -p leasehold-cli").run_printed()?;
    Step::cargo("benchmarks", "bench -p lab --bench locks --")
        .args(names.iter().map(String::as_str))
        .run_printed()
}

/// Builds the files of a release.
pub(crate) fn dist() -> Result<()> {
    Step::program("sh").arg("packaging/dist.sh").run()
}

fn format() -> Step {
    Step::cargo("format", "fmt --all --check")
}

fn lints() -> Step {
    let clippy = "clippy --quiet --workspace --all-targets --all-features -- -D warnings";

    Step::cargo("lints", clippy)
}

/// Whether the library or the command compiles with these features alone, without a warning.
fn lints_with(name: &str, package: &str, features: &str) -> Step {
    Step::cargo(name, "clippy --quiet --no-default-features")
        .args(["--package", package, "--features", features])
        .args(["--", "-D", "warnings"])
}

/// The features of the library except `default`.
fn features() -> Result<Vec<String>> {
    let library = repository::package("leasehold")?;
    let features = library["features"].as_object();

    let names = features.context("the library has features")?.keys();
    Ok(names
        .filter(|feature| *feature != "default")
        .cloned()
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_need_no_server() -> Result<()> {
        let root = repository::root();
        for file in repository::files(&root)? {
            let path = file.to_string_lossy();
            if !path.starts_with("crates/") || !path.contains("/src/") {
                continue;
            }
            let text = std::fs::read_to_string(root.join(&file))?;
            let uses = text
                .lines()
                .any(|line| line.contains("lab_servers") && !line.trim_start().starts_with("//"));
            assert!(!uses, "{} starts a server", file.display());
        }
        Ok(())
    }
}
