//! Mutants of the Rust code, which [cargo-mutants](https://mutants.rs) makes: an operator or a
//! condition is exchanged, or a whole function returns a constant.
//!
//! A mutant is built and tested like a seeded bug, which takes a minute. The thousands of mutants
//! are therefore parts of the nightly run, a shard each. The tests in virtual time run first,
//! because they take seconds, and unit tests run for what these have missed. For the lines of a
//! change:
//!
//! ```text
//! git diff main > target/change.diff
//! cargo xtask rust-mutants engine --in-diff target/change.diff
//! ```
//!
//! `.cargo/mutants.toml` lists the mutants that no test can find, with the reasons.

use std::fs;

use anyhow::{Result, bail};
use clap::Args;

use crate::repository;
use crate::step::Step;
use crate::usage::check_names;

/// Files whose mutants the same tests must find.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    package: &'static str,
    /// Globs, below the package.
    files: &'static str,
    /// How many parts of a night they are.
    pub(crate) shards: u32,
    /// Packages of tests, the fastest first.
    tests: &'static [&'static str],
}

const ENGINE: &str = "src/engine/** src/guard.rs src/multi.rs src/reentrant.rs";
const FILE: &str = "src/stores/file/** src/stores/file.rs";
const CORE: &[&str] = &["leasehold-core", "leasehold"];
const REDIS: &[&str] = &["lab-simulation", "leasehold-redis", "leasehold"];
const VIRTUAL: &[&str] = &["lab-simulation", "leasehold-core", "leasehold"];
const ZOOKEEPER: &[&str] = &["leasehold-zookeeper", "leasehold"];

/// The most important ones first: one night may be too short.
pub(crate) const GROUPS: [Group; 7] = [
    group("engine", "leasehold-core", ENGINE, 32, VIRTUAL),
    group("fence", "leasehold-core", "src/fence/**", 8, CORE),
    group(
        "votes",
        "leasehold-redis",
        "src/votes/** src/votes.rs",
        24,
        REDIS,
    ),
    group(
        "queue",
        "leasehold-redis",
        "src/queue/** src/queue.rs",
        24,
        REDIS,
    ),
    group("file", "leasehold-core", FILE, 48, CORE),
    group(
        "redisson",
        "leasehold-redis",
        "src/redisson/** src/redisson.rs",
        12,
        REDIS,
    ),
    group("zookeeper", "leasehold-zookeeper", "src/**", 24, ZOOKEEPER),
];

const fn group(
    name: &'static str,
    package: &'static str,
    files: &'static str,
    shards: u32,
    tests: &'static [&'static str],
) -> Group {
    Group {
        name,
        package,
        files,
        shards,
        tests,
    }
}

/// Which mutants run.
#[derive(Args)]
pub(crate) struct RustMutants {
    /// The files: engine, fence, votes, queue, file, redisson or zookeeper
    group: String,
    /// Run one part of the mutants only, such as 0/32
    #[arg(long)]
    shard: Option<String>,
    /// Run the mutants of the lines that this diff changes
    #[arg(long)]
    in_diff: Option<String>,
}

/// Runs the mutants with one package of tests after the other, each for those that the packages
/// before it have missed.
pub(crate) fn run(options: &RustMutants) -> Result<()> {
    let names = GROUPS.map(|group| group.name);
    check_names("group", std::slice::from_ref(&options.group), &names)?;
    let Group {
        name,
        package,
        files,
        tests,
        ..
    } = GROUPS
        .into_iter()
        .find(|group| group.name == options.group)
        .expect("its name was found");

    let shard = options.shard.as_deref().unwrap_or("0/1");
    let output = format!("target/rust-mutants/{name}-{}", shard.replace('/', "-of-"));
    let output = repository::root().join(output);
    fs::create_dir_all(&output)?;

    let build = repository::root().join("target/rust-mutants/build");
    let mut chosen = vec!["--shard".to_owned(), shard.to_owned()];
    chosen.extend(
        options
            .in_diff
            .iter()
            .map(|diff| format!("--in-diff={diff}")),
    );
    for package_of_tests in tests {
        let globs = files.split(' ');
        let files = globs.map(|glob| format!("--file=crates/{package}/{glob}"));
        let selection: Vec<String> = files.chain(chosen).collect();
        let outcome = Step::cargo(
            "mutants of the Rust code",
            "mutants --all-features --baseline=skip --timeout=240",
        )
        .env("CARGO_TARGET_DIR", &build.to_string_lossy())
        .args(["--package", package, "--test-package", package_of_tests])
        .args(["--output", &output.to_string_lossy()])
        .args(selection.iter().map(String::as_str))
        .run();

        let missed = fs::read_to_string(output.join("mutants.out/missed.txt"))?;
        if missed.is_empty() {
            return outcome;
        }
        let names = missed.lines().map(escaped);
        chosen = names.map(|name| format!("--re=^{name}$")).collect();
    }
    bail!(
        "mutants survived: see {}/mutants.out/missed.txt",
        output.display()
    )
}

/// The name of a mutant as a regular expression.
fn escaped(name: &str) -> String {
    let characters = name.chars().flat_map(|c| {
        let is_plain = c.is_alphanumeric() || " _:/".contains(c);
        (!is_plain).then_some('\\').into_iter().chain([c])
    });
    characters.collect()
}
