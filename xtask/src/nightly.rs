//! The checks that take too long for each change: all cells of the matrix, all seeded bugs, long
//! histories, soaks, licences.
//!
//! Cells wait for leases and hardly compute, so two run at a time. The other parts run one after
//! the other. A part that fails ends no other one, and each outcome is kept in
//! `target/nightly/parts.json`. A run that was interrupted goes on with `--resume`. Histories,
//! soaks and cycles have goals for which one night may be short: each run adds a portion, and the
//! next `--resume` goes on behind it.

mod kept;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;

use crate::fetch;
use crate::mutants::Mutant;
use crate::parallel::run_each;
use crate::prerequisites;
use crate::repository;
use crate::rust_mutants::{GROUPS, Group};
use crate::step::Step;
use crate::usage::with_prefixes;

use kept::{Ended, Kept};

/// Parts of one cargo command each.
const OTHERS: [(&str, &str); 4] = [
    (
        "installation of cargo-deny, cargo-mutants and cargo-semver-checks",
        "install --quiet --locked cargo-deny cargo-mutants@27.1.0 cargo-semver-checks",
    ),
    (
        "licences, bans and sources",
        "deny --all-features check licenses bans sources",
    ),
    (
        "docs without features",
        "doc -p leasehold --no-default-features --no-deps --lib --config build.rustdocflags=['-Dwarnings']",
    ),
    (
        "packages, built against each other, and their API",
        "run --quiet -p xtask -- publishable",
    ),
];

/// The histories of the engine, and those with the scripts of Redis: an option, the portion and the
/// goal.
const HISTORIES: [(&str, &str, u64, u64); 3] = [
    ("histories of the engine", "", 100_000, 1_000_000),
    // A history has six periods.
    ("histories of jobs", "--once", 17_000, 17_000),
    ("histories with scripts", "--scripts", 10_000, 100_000),
];

/// Each store's minutes under mixed faults: the portion and the goal.
const SOAKS: [(&str, u64, u64); 9] = [
    ("file", 15, 60),
    ("redis", 15, 60),
    ("sentinel-replicas", 15, 60),
    ("cluster", 15, 60),
    ("redlock", 15, 60),
    ("zookeeper", 5, 20),
    // A million acquisitions.
    ("postgres", 15, 120),
    ("plain", 5, 5),
    ("ensemble", 5, 5),
];

/// The cycles without faults. A portion is a million on each store.
const CYCLES: Goal = Goal {
    portion: 1,
    amount: 10,
    unit: "million",
};

/// Kills of `leasehold run` at random moments.
const KILLS_OF_RUNS: &str =
    "test --workspace --all-features --test command runs_that_are_killed_at_any_moment";

/// How many cells run at a time. More would slow each other down on two cores.
const CELLS_AT_A_TIME: usize = 2;
/// A thousand transactions that are stopped for longer than the lease of their lock, and a table of
/// other protections.
const STOPPED_TRANSACTIONS: &str = "test --quiet --workspace --all-features --test guarantees \
     exactly_one_writer -- --nocapture --test-threads 1";
/// One lock of PostgreSQL, taken by programs in four languages.
const FOUR_LANGUAGES: &str = "test --quiet --workspace --all-features --test interop \
     clients_in_four_languages -- --nocapture";
/// Many acquisitions of one name leave one page, or a few.
const PAGES: &str = "test --quiet --workspace --all-features --test guarantees \
     acquisitions_of_one_name -- --nocapture";
/// The suites that each release of PostgreSQL runs.
const BEHAVIOUR: &str = "test --workspace --all-features --test postgres --";
const CONFORMANCE: &str = "test --workspace --all-features --test conformance postgres";
/// The command of soaks.
const SOAK: &str = "run --quiet -p xtask -- soak";
/// How the names of cells begin.
const CELLS: &str = "cells ";

/// How a run begins.
#[derive(Args)]
pub(crate) struct Nightly {
    /// Go on with an earlier run: skip the parts that have passed and reached their goals
    #[arg(long)]
    resume: bool,
    /// Run only the parts whose names begin so
    parts: Vec<String>,
}

/// A part of the run.
struct Part {
    name: String,
    step: Step,
    goal: Option<Goal>,
}

/// What a part reaches over several runs.
struct Goal {
    /// What one run adds.
    portion: u64,
    /// What all runs must add up to.
    amount: u64,
    unit: &'static str,
}

pub(crate) fn run(options: &Nightly) -> Result<()> {
    prerequisites::install_for_tests()?;
    prerequisites::install(&fetch::postgres_releases())?;
    let kept = Kept::open(&repository::root().join("target/nightly"), options.resume)?;
    let parts = parts(&kept)?;
    let chosen = parts.iter().collect();
    let chosen = with_prefixes("part", chosen, &options.parts, |part| &part.name)?;
    let missing = chosen.into_iter().filter(|part| !kept.is_done(part));

    let (cells, others): (Vec<_>, Vec<_>) = missing.partition(|part| part.name.starts_with(CELLS));
    let kept = Mutex::new(kept);
    run_each(&cells, CELLS_AT_A_TIME, |part| part.run_and_keep(&kept))?;
    run_each(&others, 1, |part| part.run_and_keep(&kept))?;

    let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\nxtask: nightly, by part\n{}", kept.table(&parts));
    ensure!(!kept.any_failed(&parts), "a part of the nightly run failed");
    Ok(())
}

fn parts(kept: &Kept) -> Result<Vec<Part>> {
    Step::cargo("build of the lab", "build --quiet -p lab --bins").run()?;
    let lab = "run --quiet -p lab --bin lab --";
    let list = Step::cargo("list of cells", lab).arg("--list").output()?;
    let cells = list.lines().filter_map(|line| line.split_once('/'));

    let mut parts: Vec<Part> = OTHERS
        .iter()
        .map(|(name, command)| Part::cargo(name, command))
        .collect();
    parts.push(Part::script(
        "old and new command in one folder",
        "lab/old_and_new.sh",
    ));
    parts.push(Part {
        step: Step::cargo("kills of runs", KILLS_OF_RUNS).env("LEASEHOLD_RUN_KILLS", "10000"),
        ..Part::cargo("kills of runs", "")
    });
    parts.push(Part::script("library for macOS", "packaging/macos.sh"));
    for (store, rest) in cells {
        let fault = rest.split(' ').next().unwrap_or_default();
        let cell = format!("{lab} --store {store} --fault {fault}");
        parts.push(Part::cargo(&format!("{CELLS}{store}/{fault}"), &cell));
    }
    parts.extend(histories(kept));
    for (store, portion, amount) in SOAKS {
        let soak = format!("{SOAK} --resume --minutes {portion} --store {store}");
        let goal = Goal {
            portion,
            amount,
            unit: "minutes",
        };
        parts.push(Part::cargo(&format!("soak {store}"), &soak).towards(goal));
    }
    parts.push(Part::cargo("cycles without faults", SOAK).towards(CYCLES));
    parts.extend(postgres_releases());
    parts.push(Part {
        name: "transactions that stand still on PostgreSQL".to_owned(),
        step: Step::cargo("stopped transactions", STOPPED_TRANSACTIONS).env("LAB_STOPS", "1000"),
        goal: None,
    });
    parts.push(Part {
        name: "pages of a row on PostgreSQL".to_owned(),
        step: Step::cargo("pages of a row", PAGES).env("LAB_CYCLES", "100000"),
        goal: None,
    });
    parts.push(Part {
        name: "four languages on PostgreSQL".to_owned(),
        step: Step::cargo("four languages", FOUR_LANGUAGES).env("LAB_CYCLES", "3000"),
        goal: None,
    });
    let checks = "run --quiet -p xtask -- mutants --without-bugs";
    parts.push(Part::cargo("checks of the seeded bugs", checks));
    parts.push(Part::cargo(
        "mutants of the scripts",
        "run --quiet -p xtask -- scripts",
    ));
    for Group { name, shards, .. } in GROUPS {
        for shard in 0..shards {
            let shard = format!("{shard}/{shards}");
            let mutants = format!("run --quiet -p xtask -- rust-mutants {name} --shard {shard}");
            parts.push(Part::cargo(&format!("mutants of {name} {shard}"), &mutants));
        }
    }
    for Mutant { name, .. } in Mutant::all(&repository::root())? {
        let bug = format!("run --quiet -p xtask -- mutants {name}");
        parts.push(Part::cargo(&format!("seeded bugs {name}"), &bug));
    }
    Ok(parts)
}

/// The suites of the PostgreSQL store on each release. What npm's packages lack is in the newest one.
fn postgres_releases() -> Vec<Part> {
    let target = repository::root().join("target");
    let folder = |programs| target.join(programs).display().to_string();
    let newest = folder(fetch::POSTGRES[2].programs);
    let suites = |release: fetch::PostgresRelease| {
        let programs = format!("{}:{newest}", folder(release.programs));
        let on = |suite: &str, command: &str| {
            let name = format!("{suite} on PostgreSQL {}", release.number);
            let step = Step::cargo(&name, command).env("LEASEHOLD_POSTGRES_BIN", &programs);
            Part {
                name,
                step,
                goal: None,
            }
        };
        let mut behaviour = on("behaviour", BEHAVIOUR);
        for test in release.skipped {
            behaviour.step = behaviour.step.args(["--skip", *test]);
        }
        [behaviour, on("conformance", CONFORMANCE)]
    };
    fetch::POSTGRES.into_iter().flat_map(suites).collect()
}

/// The histories, each behind those of the earlier runs.
fn histories(kept: &Kept) -> impl Iterator<Item = Part> {
    HISTORIES
        .into_iter()
        .map(|(name, option, portion, amount)| {
            let from = kept.total(name);
            let simulate = "run --quiet --release -p lab-simulation --bin simulate -- --jobs 2";
            let command = format!("{simulate} --seeds {portion} --from {from} {option}");

            Part::cargo(name, &command).towards(Goal {
                portion,
                amount,
                unit: "seeds",
            })
        })
}

impl Part {
    /// A part of one cargo command; `args` is split at spaces.
    fn cargo(name: &str, args: &str) -> Self {
        Self {
            name: name.to_owned(),
            step: Step::cargo(name, args),
            goal: None,
        }
    }

    fn towards(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// A part of a script of the shell.
    fn script(name: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            step: Step::program("sh").arg(path),
            goal: None,
        }
    }

    fn run_and_keep(&self, kept: &Mutex<Kept>) -> Result<()> {
        let locked = || kept.lock().unwrap_or_else(PoisonError::into_inner);
        let before = locked().total(&self.name);
        let outcome = self.run(before)?;
        locked().add(&self.name, outcome)
    }

    /// Runs the part. `before` is what earlier runs have added to its goal.
    fn run(&self, before: u64) -> Result<Ended> {
        println!("xtask: {} …", self.name);
        let start = Instant::now();
        let outcome = self.step.run();
        if let Err(error) = &outcome {
            println!("xtask: {error:#}");
        }

        let passed = outcome.is_ok();
        let added = self.goal.as_ref().filter(|_| passed);
        Ok(Ended {
            passed,
            seconds: start.elapsed().as_secs(),
            commit: repository::commit()?,
            total: before + added.map_or(0, |goal| goal.portion),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn part_goes_on_until_its_goal_and_a_failure_adds_nothing() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let run = |program: &str| {
            let parts = [Part {
                step: Step::program(program),
                ..Part::cargo("a", "").towards(Goal {
                    portion: 15,
                    amount: 30,
                    unit: "minutes",
                })
            }];
            let kept = Mutex::new(Kept::open(folder.path(), true)?);
            run_each(&parts, 1, |part| part.run_and_keep(&kept))?;

            let kept = Kept::open(folder.path(), true)?;
            let table = kept.table(&parts);
            let (word, total) = (&table[..6], table.rsplit("a: ").next());
            anyhow::Ok(format!("{word} {}", total.unwrap_or_default().trim_end()))
        };

        assert_eq!(run("true")?, "so far 15 of 30 minutes");
        assert_eq!(run("false")?, "FAILED 15 of 30 minutes");
        assert_eq!(run("true")?, "passed 30 of 30 minutes");
        Ok(())
    }

    #[test]
    fn histories_begin_behind_those_of_earlier_runs() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut kept = Kept::open(folder.path(), true)?;
        let earlier = Part::cargo("a version", "--version").run(20_000)?;
        kept.add("histories with scripts", earlier)?;

        let commands: Vec<_> = histories(&kept)
            .map(|part| part.step.command_line())
            .collect();
        assert!(
            commands[0].contains("--seeds 100000 --from 0"),
            "{commands:?}"
        );
        assert!(
            commands[2].contains("--seeds 10000 --from 20000 --scripts"),
            "{commands:?}"
        );
        Ok(())
    }

    #[test]
    fn parts_run_at_a_time_and_none_twice() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let kept = Mutex::new(Kept::open(folder.path(), false)?);
        let ran = folder.path().join("ran");
        let parts = ["a", "b", "c", "d", "e"].map(|name| Part {
            name: name.to_owned(),
            step: Step::program("sh")
                .args(["-c", "echo x >> $0; test $1 != c"])
                .args([&*ran.to_string_lossy(), name]),
            goal: None,
        });

        run_each(&parts, 3, |part| part.run_and_keep(&kept))?;
        assert_eq!(fs::read_to_string(ran)?, "x\n".repeat(5));
        let kept = Kept::open(folder.path(), true)?;
        let failed = parts.iter().filter(|part| !kept.is_done(part));
        assert_eq!(failed.map(|part| &*part.name).collect::<Vec<_>>(), ["c"]);
        Ok(())
    }
}
