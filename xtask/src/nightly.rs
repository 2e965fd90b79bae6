//! The checks that take too long for each change: all cells of the matrix, all seeded bugs, long
//! histories, soaks, licences.
//!
//! Cells wait for leases and hardly compute, so two run at a time. The other parts run one after
//! the other. A part that fails ends no other one, and each outcome is kept in
//! `target/nightly/parts.json`. A run that was interrupted goes on with `--resume`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::mutants::Mutant;
use crate::parallel::run_each;
use crate::prerequisites;
use crate::repository;
use crate::step::Step;
use crate::usage::UsageError;

/// Parts of one cargo command each.
const OTHERS: [(&str, &str); 5] = [
    (
        "installation of cargo-deny and cargo-semver-checks",
        "install --quiet --locked cargo-deny cargo-semver-checks",
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
    ("a million cycles", "run --quiet -p xtask -- soak"),
];

/// The histories of the engine, and those with the scripts of Redis.
const HISTORIES: [&str; 2] = ["--seeds 100000 --jobs 2", "--seeds 1000 --jobs 2 --scripts"];

/// Each store's minutes under mixed faults.
const SOAKS: [(&str, &str); 5] = [
    ("file", "10"),
    ("redis", "10"),
    ("plain", "5"),
    ("redlock", "5"),
    ("ensemble", "5"),
];

/// How many cells run at a time. More would slow each other down on two cores.
const CELLS_AT_A_TIME: usize = 2;
/// How the names of cells begin.
const CELLS: &str = "cells ";

/// How a run begins.
#[derive(Args)]
pub(crate) struct Nightly {
    /// Go on with an interrupted run: skip the parts that have passed
    #[arg(long)]
    resume: bool,
    /// Run only the parts whose names begin so
    parts: Vec<String>,
}

/// A part of the run.
struct Part {
    name: String,
    step: Step,
}

/// How a part ended.
#[derive(Deserialize, Serialize)]
struct Ended {
    passed: bool,
    seconds: u64,
    commit: String,
}

/// The outcomes by the name of the part, and the file that keeps them.
struct Kept {
    file: PathBuf,
    outcomes: BTreeMap<String, Ended>,
}

pub(crate) fn run(options: &Nightly) -> Result<()> {
    prerequisites::install_for_tests()?;
    let parts = parts()?;
    let chosen = chosen(&parts, &options.parts)?;
    let kept = Kept::open(&repository::root().join("target/nightly"), options.resume)?;
    let missing = chosen
        .into_iter()
        .filter(|part| !kept.has_passed(&part.name));

    let (cells, others): (Vec<_>, Vec<_>) = missing.partition(|part| part.name.starts_with(CELLS));
    let kept = Mutex::new(kept);
    run_each(&cells, CELLS_AT_A_TIME, |part| part.run_and_keep(&kept))?;
    run_each(&others, 1, |part| part.run_and_keep(&kept))?;

    let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\nxtask: nightly, by part\n{}", kept.table(&parts));
    ensure!(!kept.any_failed(&parts), "a part of the nightly run failed");
    Ok(())
}

/// The parts whose names begin with one of the prefixes; all parts if there is no prefix.
fn chosen<'a>(parts: &'a [Part], prefixes: &[String]) -> Result<Vec<&'a Part>> {
    for prefix in prefixes {
        if !parts.iter().any(|part| part.name.starts_with(prefix)) {
            let valid: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            return Err(UsageError::unknown("part", prefix, &valid).into());
        }
    }

    let is_chosen = |part: &&Part| {
        let begins = |prefix: &String| part.name.starts_with(prefix);
        prefixes.is_empty() || prefixes.iter().any(begins)
    };
    Ok(parts.iter().filter(is_chosen).collect())
}

fn parts() -> Result<Vec<Part>> {
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
    parts.push(Part::script("library for macOS", "packaging/macos.sh"));
    for (store, rest) in cells {
        let fault = rest.split(' ').next().unwrap_or_default();
        let cell = format!("{lab} --store {store} --fault {fault}");
        parts.push(Part::cargo(&format!("{CELLS}{store}/{fault}"), &cell));
    }
    for arguments in HISTORIES {
        let simulate = "run --quiet --release -p lab-simulation --bin simulate --";
        let histories = format!("{simulate} {arguments}");
        parts.push(Part::cargo(&format!("histories {arguments}"), &histories));
    }
    for (store, minutes) in SOAKS {
        let xtask = "run --quiet -p xtask --";
        let soak = format!("{xtask} soak --resume --minutes {minutes} --store {store}");
        parts.push(Part::cargo(&format!("soak {store} {minutes} min"), &soak));
    }
    let checks = "run --quiet -p xtask -- mutants --without-bugs";
    parts.push(Part::cargo("checks of the seeded bugs", checks));
    for Mutant { name, .. } in Mutant::all(&repository::root())? {
        let bug = format!("run --quiet -p xtask -- mutants {name}");
        parts.push(Part::cargo(&format!("seeded bugs {name}"), &bug));
    }
    Ok(parts)
}

impl Part {
    /// A part of one cargo command; `args` is split at spaces.
    fn cargo(name: &str, args: &str) -> Self {
        Self {
            name: name.to_owned(),
            step: Step::cargo(name, args),
        }
    }

    /// A part of a script of the shell.
    fn script(name: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            step: Step::program("sh").arg(path),
        }
    }

    fn run_and_keep(&self, kept: &Mutex<Kept>) -> Result<()> {
        let outcome = self.run()?;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.add(&self.name, outcome)
    }

    fn run(&self) -> Result<Ended> {
        println!("xtask: {} …", self.name);
        let start = Instant::now();
        let outcome = self.step.run();
        if let Err(error) = &outcome {
            println!("xtask: {error:#}");
        }

        Ok(Ended {
            passed: outcome.is_ok(),
            seconds: start.elapsed().as_secs(),
            commit: repository::commit()?,
        })
    }
}

impl Kept {
    /// Reads the outcomes of an interrupted run, or begins a new one.
    fn open(folder: &Path, resume: bool) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let file = folder.join("parts.json");
        let outcomes = match fs::read(&file) {
            Ok(text) if resume => serde_json::from_slice(&text)
                .with_context(|| format!("{} has no outcomes", file.display()))?,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            Ok(_) | Err(_) => BTreeMap::new(),
        };

        Ok(Self { file, outcomes })
    }

    fn has_passed(&self, part: &str) -> bool {
        let outcome = self.outcomes.get(part);

        outcome.is_some_and(|outcome| outcome.passed)
    }

    /// Keeps an outcome. The file is replaced in one step, so an interrupted run keeps it whole.
    fn add(&mut self, part: &str, outcome: Ended) -> Result<()> {
        self.outcomes.insert(part.to_owned(), outcome);
        let text = serde_json::to_string_pretty(&self.outcomes)? + "\n";
        let unfinished = self.file.with_extension("unfinished");

        fs::write(&unfinished, text)
            .and_then(|()| fs::rename(&unfinished, &self.file))
            .with_context(|| format!("cannot write {}", self.file.display()))
    }

    fn any_failed(&self, parts: &[Part]) -> bool {
        let mut outcomes = parts
            .iter()
            .filter_map(|part| self.outcomes.get(&part.name));

        outcomes.any(|outcome| !outcome.passed)
    }

    fn table(&self, parts: &[Part]) -> String {
        let rows = parts
            .iter()
            .map(|part| match self.outcomes.get(&part.name) {
                Some(outcome) => {
                    let word = if outcome.passed { "passed" } else { "FAILED" };
                    let commit = outcome.commit.get(..9).unwrap_or_default();
                    format!(
                        "{word}  {:>6} s  {commit}  {}\n",
                        outcome.seconds, part.name
                    )
                }
                None => format!("not run                      {}\n", part.name),
            });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: bool) -> Ended {
        Ended {
            passed,
            seconds: 7,
            commit: "0123456789abcdef".to_owned(),
        }
    }

    #[test]
    fn interrupted_run_goes_on_behind_the_parts_that_passed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut kept = Kept::open(folder.path(), true)?;
        kept.add("a", outcome(true))?;
        kept.add("b", outcome(false))?;

        let again = Kept::open(folder.path(), true)?;
        assert!(again.has_passed("a"));
        assert!(!again.has_passed("b") && !again.has_passed("c"));
        assert!(!Kept::open(folder.path(), false)?.has_passed("a"));

        let parts = ["a", "b", "c"].map(|name| Part::cargo(name, ""));
        assert!(again.any_failed(&parts) && !again.any_failed(&parts[..1]));
        assert_eq!(
            again.table(&parts),
            "passed       7 s  012345678  a\nFAILED       7 s  012345678  b\n\
             not run                      c\n"
        );
        Ok(())
    }

    #[test]
    fn prefix_chooses_its_parts_and_unknown_one_is_rejected() -> Result<()> {
        let parts = ["cells a", "cells b", "soak a"].map(|name| Part::cargo(name, ""));
        let names = |prefixes: &[&str]| {
            let prefixes: Vec<String> = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
            let names = chosen(&parts, &prefixes)?
                .into_iter()
                .map(|part| &*part.name);
            anyhow::Ok(names.collect::<Vec<_>>().join(", "))
        };

        assert_eq!(names(&[])?, "cells a, cells b, soak a");
        assert_eq!(names(&["soak", "cells b"])?, "cells b, soak a");
        let error = names(&["cells", "sock"]).expect_err("none begins so");
        assert!(error.is::<UsageError>(), "{error}");
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
        });

        run_each(&parts, 3, |part| part.run_and_keep(&kept))?;
        assert_eq!(fs::read_to_string(ran)?, "x\n".repeat(5));
        let kept = Kept::open(folder.path(), true)?;
        let failed = parts.iter().filter(|part| !kept.has_passed(&part.name));
        assert_eq!(failed.map(|part| &*part.name).collect::<Vec<_>>(), ["c"]);
        Ok(())
    }
}
