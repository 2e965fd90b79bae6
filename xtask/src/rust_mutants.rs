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
use std::path::Path;

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
    pub(crate) shards: u32,
    /// Packages of tests, the fastest first.
    tests: &'static [&'static str],
}

/// The most important ones first: one night may be too short.
pub(crate) const GROUPS: [Group; 7] = [
    Group {
        name: "engine",
        package: "leasehold-core",
        files: "src/engine/** src/guard.rs src/multi.rs src/reentrant.rs",
        shards: 32,
        tests: &["lab-simulation", "leasehold-core", "leasehold"],
    },
    Group {
        name: "fence",
        package: "leasehold-core",
        files: "src/fence/**",
        shards: 8,
        tests: &["leasehold-core", "leasehold"],
    },
    Group {
        name: "votes",
        package: "leasehold-redis",
        files: "src/votes/** src/votes.rs",
        shards: 24,
        tests: &["lab-simulation", "leasehold-redis"],
    },
    Group {
        name: "queue",
        package: "leasehold-redis",
        files: "src/queue/** src/queue.rs",
        shards: 24,
        tests: &["lab-simulation", "leasehold-redis"],
    },
    Group {
        name: "file",
        package: "leasehold-core",
        files: "src/stores/file/** src/stores/file.rs",
        shards: 48,
        tests: &["leasehold-core", "leasehold"],
    },
    Group {
        name: "redisson",
        package: "leasehold-redis",
        files: "src/redisson/** src/redisson.rs",
        shards: 12,
        tests: &["lab-simulation", "leasehold-redis", "leasehold"],
    },
    Group {
        name: "zookeeper",
        package: "leasehold-zookeeper",
        files: "src/**",
        shards: 24,
        tests: &["leasehold-zookeeper", "leasehold"],
    },
];

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
    let mut groups = GROUPS.iter();
    let group = groups
        .find(|group| group.name == options.group)
        .expect("its name was found");

    let shard = options.shard.as_deref().unwrap_or("0/1");
    let output = format!(
        "target/rust-mutants/{}-{}",
        group.name,
        shard.replace('/', "-of-")
    );
    let output = repository::root().join(output);
    fs::create_dir_all(&output)?;

    let mut chosen = vec!["--shard".to_owned(), shard.to_owned()];
    chosen.extend(
        options
            .in_diff
            .iter()
            .map(|diff| format!("--in-diff={diff}")),
    );
    for tests in group.tests {
        let outcome = group.step(tests, &chosen, &output).run();
        let missed = fs::read_to_string(output.join("mutants.out/missed.txt"))?;
        if missed.is_empty() {
            return outcome;
        }
        chosen = missed
            .lines()
            .map(|name| format!("--re=^{}$", escaped(name)))
            .collect();
    }
    bail!(
        "mutants survived: see {}/mutants.out/missed.txt",
        output.display()
    )
}

impl Group {
    /// Runs some mutants with the tests of one package.
    fn step(&self, tests: &str, chosen: &[String], output: &Path) -> Step {
        let build = repository::root().join("target/rust-mutants/build");
        let globs = self.files.split(' ');
        let files: Vec<String> = globs
            .map(|glob| format!("--file=crates/{}/{glob}", self.package))
            .collect();

        Step::cargo(
            "mutants of the Rust code",
            "mutants --all-features --baseline=skip",
        )
        .env("CARGO_TARGET_DIR", &build.to_string_lossy())
        .args(["--package", self.package, "--test-package", tests])
        .args(["--timeout=240", "--output", &output.to_string_lossy()])
        .args(files.iter().chain(chosen).map(String::as_str))
    }
}

/// The name of a mutant as a regular expression.
fn escaped(name: &str) -> String {
    let characters = name.chars().flat_map(|c| {
        let is_plain = c.is_alphanumeric() || " _:/".contains(c);
        (!is_plain).then_some('\\').into_iter().chain([c])
    });
    characters.collect()
}
