//! The tasks of this repository: `cargo xtask TASK`. `cargo xtask --help` lists them.

mod evidence;
mod fetch;
mod found;
mod lab;
mod mutants;
mod nightly;
mod parallel;
mod prerequisites;
mod publishable;
mod repository;
mod rust_mutants;
mod scripts;
mod step;
mod suite;
mod tasks;
mod tidy;
mod timings;
mod usage;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Checks, tests and measures this repository.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check format, lints, unit tests, the memory and file stores, doc tests and tidy rules,
    /// without a server or a network
    Check,
    /// Install what is missing and run everything that a change must pass; what CI runs
    Test,
    /// Run what takes hours: all cells, all seeded bugs, long histories and soaks
    Nightly(nightly::Nightly),
    /// Check circles of files, links, ids and the tests of found bugs
    Tidy,
    /// Print the tests that show a guarantee, and the seeded bugs that break it, or the command that
    /// shows a bug that was found
    Evidence {
        /// A guarantee or an invariant of GUARANTEES.md, such as G-01 or S3, or a bug, such as F-123
        id: String,
    },
    /// Install what the tests need; they do so by themselves
    Install {
        /// List what is missing and install nothing
        #[arg(long)]
        list: bool,
    },
    /// Run every store under every fault for a few seconds
    #[command(disable_help_flag = true)]
    Lab(lab::Options),
    /// Run baselines from articles and leasehold under the same faults
    #[command(disable_help_flag = true)]
    FourConditions(lab::Options),
    /// Run the engine in virtual time, with faults that are drawn from a seed
    #[command(disable_help_flag = true)]
    Simulate(lab::Options),
    /// Run a store under mixed faults for a long time, or a million cycles without faults
    #[command(disable_help_flag = true)]
    Soak(lab::Options),
    /// Run the benchmarks; their figures go to target/bench
    Bench {
        /// Run these only
        benchmarks: Vec<String>,
    },
    /// Build the files of a release in target/dist: a static binary, man pages, completions, a
    /// Debian package, a Dockerfile and checksums
    Dist,
    /// Try to publish the crates without uploading them, and compare the API with a release
    Publishable {
        /// The tag or commit of the earlier release; without it the last tag, or the first commit
        /// whose API is promised
        baseline: Option<String>,
    },
    /// Change each statement, condition and constant of the Lua scripts, and run their tests and the
    /// suites in virtual time, of which one must fail
    Scripts {
        /// Run the mutants with these ids, or whose lines have these texts; all without it
        texts: Vec<String>,
    },
    /// Change the operators and functions of the Rust code with cargo-mutants, and run the tests that
    /// must fail
    RustMutants(rust_mutants::RustMutants),
    /// Apply each seeded bug of lab/mutants to a copy of the tree and run the test that finds it
    Mutants {
        /// Run the seeded bugs whose names begin so; all without it
        names: Vec<String>,
        /// Apply no bug: every check must pass
        #[arg(long)]
        without_bugs: bool,
    },
}

fn main() -> ExitCode {
    let Err(error) = run(&Cli::parse().task) else {
        return ExitCode::SUCCESS;
    };

    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}

fn run(task: &Task) -> Result<()> {
    match task {
        Task::Check => tasks::check(),
        Task::Test => tasks::test(),
        Task::Nightly(options) => nightly::run(options),
        Task::Tidy => tidy::check(),
        Task::Evidence { id } if id.starts_with("F-") => found::print(id),
        Task::Evidence { id } => evidence::print(id),
        Task::Install { list: true } => prerequisites::list(),
        Task::Install { list: false } => prerequisites::install_for_tests(),
        Task::Lab(options) => lab::run("lab", options),
        Task::FourConditions(options) => lab::run("four_conditions", options),
        Task::Simulate(options) => lab::simulate(options),
        Task::Soak(options) => lab::soak(options),
        Task::Bench { benchmarks } => tasks::bench(benchmarks),
        Task::Dist => tasks::dist(),
        Task::Publishable { baseline } => publishable::check(baseline.as_deref()),
        Task::RustMutants(options) => rust_mutants::run(options),
        Task::Scripts { texts } => scripts::run(texts),
        Task::Mutants {
            names,
            without_bugs,
        } => mutants::run(names, *without_bugs),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
