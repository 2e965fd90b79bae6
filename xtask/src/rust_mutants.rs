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

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::mutants::copy_of_tree;
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
    /// Packages, each with what `cargo test` runs of it, the fastest first.
    tests: &'static [&'static str],
}

const ENGINE: &str = "src/engine/** src/guard.rs src/multi.rs src/reentrant.rs";
const FILE: &str = "src/stores/file/** src/stores/file.rs";
const VOTES: &str = "src/votes/** src/votes.rs";
const QUEUE: &str = "src/queue/** src/queue.rs";
const REDISSON: &str = "src/redisson/** src/redisson.rs";

const VIRTUAL: &str = "lab-simulation";
const CORE: &str = "leasehold-core --lib";
const REDIS: &str = "leasehold-redis --lib";
const BESIDE_STORES: &str = "leasehold --test multi --test futures --test panics --test exit";
const ON_FILES: &str = "leasehold --test conformance -- --test-threads 24 file::";
const ON_REDIS: &str = "leasehold --test conformance -- --test-threads 24 redis::";
const ON_REDLOCK: &str = "leasehold --test conformance -- --test-threads 24 redlock::";
const ON_REDISSON: &str = "leasehold --test conformance -- --test-threads 24 redisson::";
const ON_ZOOKEEPER: &str = "leasehold --test conformance -- --test-threads 24 zookeeper::";
const ON_POSTGRES: &str = "leasehold --test conformance -- --test-threads 24 postgres::";

/// The most important ones first: one night may be too short.
pub(crate) const GROUPS: [Group; 8] = [
    group(
        "engine",
        "leasehold-core",
        ENGINE,
        32,
        &[VIRTUAL, CORE, ON_FILES, BESIDE_STORES],
    ),
    group(
        "fence",
        "leasehold-core",
        "src/fence/**",
        8,
        &[CORE, "leasehold --test fence"],
    ),
    group(
        "votes",
        "leasehold-redis",
        VOTES,
        24,
        &[VIRTUAL, REDIS, ON_REDLOCK],
    ),
    group(
        "queue",
        "leasehold-redis",
        QUEUE,
        24,
        &[VIRTUAL, REDIS, ON_REDIS],
    ),
    group("file", "leasehold-core", FILE, 48, &[CORE, ON_FILES]),
    group(
        "redisson",
        "leasehold-redis",
        REDISSON,
        12,
        &[VIRTUAL, REDIS, ON_REDISSON],
    ),
    group(
        "zookeeper",
        "leasehold-zookeeper",
        "src/**",
        24,
        &[
            "leasehold-zookeeper --lib",
            ON_ZOOKEEPER,
            "leasehold --test zookeeper",
        ],
    ),
    group(
        "postgres",
        "leasehold-postgres",
        "src/**",
        24,
        &[
            "leasehold-postgres --lib",
            ON_POSTGRES,
            "leasehold --test postgres",
        ],
    ),
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
    /// The files: engine, fence, votes, queue, file, redisson, zookeeper or postgres
    group: String,
    /// Run one part of the mutants only, such as 0/32
    #[arg(long)]
    shard: Option<String>,
    /// Run the mutants of the lines that this diff changes
    #[arg(long)]
    in_diff: Option<String>,
}

/// Runs the mutants with the tests of one package after the other, each for those that the packages
/// before it have missed. Tests that fail without a mutant would find every one, so they must pass
/// before.
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

    let tree = copy_of_tree()?;
    let build = repository::root().join("target/rust-mutants/build");
    let cargo = |name: &str, args: &str| {
        Step::cargo(name, args)
            .folder(&tree)
            .env("CARGO_TARGET_DIR", &build.to_string_lossy())
    };
    let mut chosen = vec!["--shard".to_owned(), shard.to_owned()];
    if let Some(diff) = &options.in_diff {
        let diff = fs::canonicalize(diff).with_context(|| format!("cannot find {diff}"))?;
        chosen.push(format!("--in-diff={}", diff.display()));
    }
    for tested in tests {
        let (of_package, of_tests) = tested.split_once(' ').unwrap_or((tested, ""));
        cargo("tests without a mutant", "test --quiet --all-features")
            .args(["--package", of_package])
            .args(of_tests.split_whitespace())
            .run()?;

        let globs = files.split(' ');
        let files = globs.map(|glob| format!("--file=crates/{package}/{glob}"));
        let selection: Vec<String> = files.chain(chosen).collect();
        let code = cargo(
            "mutants of the Rust code",
            "mutants --in-place --all-features --baseline=skip --timeout=240",
        )
        .args(["--package", package, "--test-package", of_package])
        .args(["--output", &output.to_string_lossy()])
        .args(selection.iter().map(String::as_str))
        .arg("--")
        .args(of_tests.split_whitespace())
        .code()?;
        ensure!(
            matches!(code, SUCCESS | MISSED | TIMED_OUT),
            "cargo mutants failed with exit code {code}"
        );

        let missed = fs::read_to_string(output.join("mutants.out/missed.txt"))?;
        if missed.is_empty() {
            return Ok(());
        }
        let names = missed.lines().map(escaped);
        chosen = names.map(|name| format!("--re=^{name}$")).collect();
    }
    bail!(
        "mutants survived: see {}/mutants.out/missed.txt",
        output.display()
    )
}

/// Exit codes of cargo-mutants. A mutant whose tests do not end counts as found.
const SUCCESS: i32 = 0;
const MISSED: i32 = 2;
const TIMED_OUT: i32 = 3;

/// The name of a mutant as a regular expression.
fn escaped(name: &str) -> String {
    let characters = name.chars().flat_map(|c| {
        let is_plain = c.is_alphanumeric() || " _:/".contains(c);
        (!is_plain).then_some('\\').into_iter().chain([c])
    });
    characters.collect()
}
