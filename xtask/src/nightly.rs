//! The checks that take too long for each change: all cells of the matrix, all seeded bugs, long
//! histories, soaks, licences.
//!
//! The parts run one after the other, also after one that fails, and each outcome is kept in
//! `target/nightly/parts.json`. A run that was interrupted goes on with `--resume`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::mutants;
use crate::prerequisites;
use crate::repository;
use crate::step::Step;

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
    steps: Vec<Step>,
}

/// How a part ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Ended {
    passed: bool,
    seconds: u64,
    commit: String,
}

/// The outcomes that are kept, by the name of the part.
struct Kept {
    file: PathBuf,
    outcomes: BTreeMap<String, Ended>,
}

pub(crate) fn run(options: &Nightly) -> Result<()> {
    prerequisites::install_for_tests()?;
    let parts = parts()?;
    let mut kept = Kept::open(options.resume)?;

    for part in parts.iter().filter(|part| options.chooses(part)) {
        if kept.has_passed(&part.name) {
            continue;
        }
        let outcome = part.run()?;
        kept.add(&part.name, outcome)?;
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
    Step::cargo("build of the lab", "build --quiet -p lab --bins").run_quietly()?;
    let lab = || Step::cargo("cells", "run --quiet -p lab --bin lab --");
    let list = lab().arg("--list").output()?;
    let mut stores: Vec<&str> = list
        .lines()
        .filter_map(|line| Some(line.split_once('/')?.0))
        .collect();
    stores.dedup();

    let cells = stores.iter().map(|store| {
        let step = lab().args(["--store", store]);
        Part::new(&format!("cells {store}"), vec![step])
    });
    let histories = HISTORIES.iter().map(|arguments| {
        let simulate = "run --quiet --release -p lab-simulation --bin simulate --";
        let step = Step::cargo("histories", simulate).args(arguments.split(' '));
        Part::new(&format!("histories {arguments}"), vec![step])
    });
    let soaks = SOAKS.iter().map(|(store, minutes)| {
        let soak = "run --quiet -p xtask -- soak --resume --minutes";
        let step = Step::cargo("soak", soak).args([minutes, "--store", store]);
        Part::new(&format!("soak {store} {minutes} min"), vec![step])
    });

    let million = Step::cargo("a million cycles", "run --quiet -p xtask -- soak");
    let deny = vec![
        Step::cargo("cargo-deny", "install --quiet --locked cargo-deny"),
        Step::cargo(
            "licences",
            "deny --all-features check licenses bans sources",
        ),
    ];
    let bare = Step::cargo(
        "docs without features",
        "doc -p leasehold --no-default-features --no-deps --lib",
    );
    let others = [
        Part::new("licences, bans and sources", deny),
        Part::new(
            "docs without features",
            vec![bare.env("RUSTDOCFLAGS", "-D warnings")],
        ),
        Part::new("a million cycles", vec![million]),
    ];

    Ok(others
        .into_iter()
        .chain(cells)
        .chain(histories)
        .chain(soaks)
        .chain([Part::new("seeded bugs", vec![seeded_bugs()])])
        .collect())
}

/// All seeded bugs. Their outcomes are kept one by one.
fn seeded_bugs() -> Step {
    let results = folder().join("seeded-bugs.json");

    Step::cargo("seeded bugs", "run --quiet -p xtask -- mutants --results")
        .arg(&results.to_string_lossy())
}

fn folder() -> PathBuf {
    repository::root().join("target/nightly")
}

impl Nightly {
    fn chooses(&self, part: &Part) -> bool {
        self.parts.is_empty()
            || self
                .parts
                .iter()
                .any(|prefix| part.name.starts_with(prefix))
    }
}

impl Part {
    fn new(name: &str, steps: Vec<Step>) -> Self {
        Self {
            name: name.to_owned(),
            steps,
        }
    }

    fn run(&self) -> Result<Ended> {
        println!("xtask: {} …", self.name);
        let start = Instant::now();
        let failure = self.steps.iter().find_map(|step| step.run_quietly().err());
        if let Some(error) = &failure {
            println!("xtask: {error:#}");
        }

        Ok(Ended {
            passed: failure.is_none(),
            seconds: start.elapsed().as_secs(),
            commit: mutants::commit(&repository::root())?,
        })
    }
}

impl Kept {
    /// Reads the outcomes of an interrupted run, or begins a new one.
    fn open(resume: bool) -> Result<Self> {
        fs::create_dir_all(folder()).context("cannot create target/nightly")?;
        let file = folder().join("parts.json");
        if !resume {
            return Ok(Self::new(file));
        }

        match fs::read(&file) {
            Ok(text) => Ok(Self {
                outcomes: serde_json::from_slice(&text)
                    .with_context(|| format!("{} has no outcomes", file.display()))?,
                file,
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::new(file)),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    fn new(file: PathBuf) -> Self {
        Self {
            file,
            outcomes: BTreeMap::new(),
        }
    }

    fn has_passed(&self, part: &str) -> bool {
        self.outcomes
            .get(part)
            .is_some_and(|outcome| outcome.passed)
    }

    /// Keeps an outcome. The file is replaced in one step, so an interrupted run keeps it whole.
    fn add(&mut self, part: &str, outcome: Ended) -> Result<()> {
        self.outcomes.insert(part.to_owned(), outcome);
        let unfinished = self.file.with_extension("unfinished");

        fs::write(
            &unfinished,
            serde_json::to_string_pretty(&self.outcomes)? + "\n",
        )
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
        let mut kept = Kept::new(folder.path().join("parts.json"));
        kept.add("a", outcome(true))?;
        kept.add("b", outcome(false))?;

        let text = fs::read(&kept.file)?;
        let again = Kept {
            outcomes: serde_json::from_slice(&text)?,
            file: kept.file,
        };
        assert!(again.has_passed("a"));
        assert!(!again.has_passed("b") && !again.has_passed("c"));

        let parts = ["a", "b", "c"].map(|name| Part::new(name, Vec::new()));
        assert_eq!(
            again.table(&parts),
            "passed       7 s  012345678  a\nFAILED       7 s  012345678  b\n\
             not run                      c\n"
        );
        Ok(())
    }
}
