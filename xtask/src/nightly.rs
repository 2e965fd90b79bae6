//! The checks that take too long for each change: all cells of the matrix, all seeded bugs, long
//! histories, soaks, licences.
//!
//! The parts run one after the other, also after one that fails, and each outcome is kept in
//! `target/nightly/parts.json`. A run that was interrupted goes on with `--resume`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::mutants::Mutant;
use crate::prerequisites;
use crate::repository;
use crate::step::Step;

/// Parts of one cargo command each.
const OTHERS: [(&str, &str); 4] = [
    (
        "installation of cargo-deny",
        "install --quiet --locked cargo-deny",
    ),
    (
        "licences, bans and sources",
        "deny --all-features check licenses bans sources",
    ),
    (
        "docs without features",
        "doc -p leasehold --no-default-features --no-deps --lib --config build.rustdocflags=['-Dwarnings']",
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
    let mut kept = Kept::open(&repository::root().join("target/nightly"), options.resume)?;

    for part in &parts {
        let begins = |prefix: &String| part.name.starts_with(prefix);
        let is_chosen = options.parts.is_empty() || options.parts.iter().any(begins);
        if is_chosen && !kept.has_passed(&part.name) {
            kept.add(&part.name, part.run()?)?;
        }
    }

    let table = kept.table(&parts);
    println!("\nxtask: nightly, by part\n{table}");
    ensure!(
        !table.contains("FAILED"),
        "a part of the nightly run failed"
    );
    Ok(())
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
    for (store, rest) in cells {
        let fault = rest.split(' ').next().unwrap_or_default();
        let cell = format!("{lab} --store {store} --fault {fault}");
        parts.push(Part::cargo(&format!("cells {store}/{fault}"), &cell));
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
        assert_eq!(
            again.table(&parts),
            "passed       7 s  012345678  a\nFAILED       7 s  012345678  b\n\
             not run                      c\n"
        );
        Ok(())
    }
}
