//! Seeded bugs, and the tests that find them.
//!
//! Each `lab/mutants/NAME.patch` is a small bug. Its header names the broken rule and the command
//! that must fail. A run applies the bugs one after the other to a copy of the working tree, so the
//! tree itself stays as it is. Each command must pass without any bug first, because a test that
//! always fails finds nothing.
//!
//! With `--results FILE` a run continues at the point where the last one stopped. An outcome is
//! recorded with a digest of the patch and of the files that it changes. It counts as long as both
//! stay the same.

mod check;
mod draw;
mod listed;
mod patch;
mod results;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::repository;
use crate::usage::UsageError;
use check::Verdict;
pub(crate) use draw::{commit, run_drawn};
pub(crate) use listed::{SeededBug, seeded_bugs};
use patch::Mutant;
use results::{Outcome, Record, Results};
use tree::Tree;

/// Mutants whose commands run without a bug before the mutants themselves do. Each switch between
/// the tree with and without a bug costs a build.
const BATCH: usize = 10;

/// Which mutants run.
#[derive(Args)]
pub(crate) struct MutantsArgs {
    /// Run the mutants whose names begin so; all without it
    names: Vec<String>,
    /// Skip what this file records, and record each outcome in it
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Begin no mutant after this time
    #[arg(long, value_name = "MINUTES")]
    budget: Option<u64>,
    /// Try those that were found before, in an order that the commit decides, and two at least
    #[arg(long)]
    drawn: bool,
    /// Check that each patch applies and compiles, and run no test
    #[arg(long, conflicts_with = "results")]
    compile_only: bool,
}

pub(crate) fn run(options: &MutantsArgs) -> Result<()> {
    let root = repository::root();
    let mut mutants = chosen(Mutant::all(&root)?, &options.names)?;
    if options.drawn {
        let found = found_before(&root)?;
        mutants.retain(|mutant| found.contains(&mutant.name));
        draw::sort(&mut mutants, &commit(&root)?);
    }
    let tree = Tree::copy(&root)?;

    if options.compile_only {
        return compile(&tree, &mutants, options.budget);
    }

    let mut session = Session {
        tree: &tree,
        results: Results::load(options.results.as_deref())?,
        unsound: Vec::new(),
        sound: BTreeSet::new(),
        deadline: deadline(options.budget),
        batch: if options.drawn { 1 } else { BATCH },
        tries_left: if options.drawn { draw::DRAWN_MIN } else { 0 },
    };
    session.run(&mutants)?;
    session.conclude(&mutants)
}

/// The mutants that lab/mutants/README.md records as found. Others are for a person to look at.
fn found_before(root: &Path) -> Result<BTreeSet<String>> {
    let bugs = seeded_bugs(root)?.into_iter();
    Ok(bugs.filter(|bug| bug.was_run).map(|bug| bug.name).collect())
}

/// One run over mutants that have no valid record.
struct Session<'a> {
    tree: &'a Tree,
    results: Results,
    /// Commands that pass without any bug.
    sound: BTreeSet<String>,
    /// Commands that fail without any bug.
    unsound: Vec<String>,
    deadline: Option<Instant>,
    /// How many mutants are checked for soundness before the first of them is tried.
    batch: usize,
    /// How many mutants are tried even after the deadline.
    tries_left: usize,
}

impl Session<'_> {
    fn run(&mut self, mutants: &[Mutant]) -> Result<()> {
        let pending = self.results.pending(mutants, &self.tree.path())?;
        println!(
            "xtask: {} of {} mutants are due",
            pending.len(),
            mutants.len()
        );

        for batch in pending.chunks(self.batch) {
            for mutant in batch {
                self.check_soundness(mutant)?;
            }
            for mutant in batch {
                self.try_out(mutant)?;
            }
        }
        Ok(())
    }

    fn check_soundness(&mut self, mutant: &Mutant) -> Result<()> {
        let check = &mutant.check;
        if self.sound.contains(check) || self.unsound.contains(check) || self.is_over() {
            return Ok(());
        }

        let start = Instant::now();
        let problem = match check::run(self.tree, check, "sound")? {
            Verdict::Passed(0) => "runs no test".to_owned(),
            Verdict::Passed(count) => {
                let seconds = start.elapsed().as_secs();
                println!("xtask: {count} passed in {seconds} s: cargo {check}");
                self.sound.insert(check.clone());
                return Ok(());
            }
            Verdict::DoesNotCompile => "does not compile without any bug".to_owned(),
            Verdict::Failed(tests) => format!("fails without any bug ({tests})"),
        };
        println!("xtask: this {problem}: cargo {check}");
        self.unsound.push(check.clone());
        Ok(())
    }

    fn try_out(&mut self, mutant: &Mutant) -> Result<()> {
        if !self.sound.contains(&mutant.check) || self.is_over() {
            return Ok(());
        }

        let start = Instant::now();
        let digest = mutant.digest(&self.tree.path())?;
        let outcome = outcome_of(self.tree, mutant)?;
        let record = Record::new(digest, outcome, start.elapsed());

        println!("{}", record.row(mutant));
        self.tries_left = self.tries_left.saturating_sub(1);
        self.results.add(&mutant.name, record)
    }

    fn is_over(&self) -> bool {
        let deadline = self.deadline.filter(|_| self.tries_left == 0);
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Prints the summary and writes the table.
    fn conclude(self, mutants: &[Mutant]) -> Result<()> {
        let page = self.tree.logs().join("matrix.md");
        fs::write(&page, self.results.table(mutants))
            .with_context(|| format!("cannot write {}", page.display()))?;

        let summary = self.results.summary(mutants, &self.tree.path())?;
        println!("xtask: {summary}; the table is {}", page.display());

        let problems = self.results.problems(mutants);
        ensure!(problems.is_empty(), "not killed: {}", problems.join(", "));
        ensure!(
            self.unsound.is_empty(),
            "fails without a bug: {}",
            self.unsound.join("; ")
        );
        Ok(())
    }
}

/// Applies the bug and runs its command.
fn outcome_of(tree: &Tree, mutant: &Mutant) -> Result<Outcome> {
    let applied = match tree.apply(mutant) {
        Ok(applied) => applied,
        Err(error) => {
            return Ok(Outcome::DoesNotApply {
                reason: format!("{error:#}"),
            });
        }
    };
    let verdict = check::run(tree, &mutant.check, &mutant.name);
    applied.revert()?;

    Ok(match verdict? {
        Verdict::Failed(by) => Outcome::Killed { by },
        Verdict::Passed(_) => Outcome::Survived,
        Verdict::DoesNotCompile => Outcome::DoesNotCompile,
    })
}

/// Checks that each patch applies and compiles.
fn compile(tree: &Tree, mutants: &[Mutant], budget: Option<u64>) -> Result<()> {
    let deadline = deadline(budget);
    let mut problems = Vec::new();
    let mut count = 0;

    for mutant in mutants {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        count += 1;

        let problem = match tree.apply(mutant) {
            Err(error) => Some(format!("{error:#}")),
            Ok(applied) => {
                let compiles = check::compile(tree, mutant);
                applied.revert()?;
                let log = tree.logs().join(format!("{}.log", mutant.name));
                (!compiles?).then(|| format!("it does not compile, see {}", log.display()))
            }
        };
        println!(
            "{}: {}",
            mutant.name,
            problem.as_deref().unwrap_or("compiles")
        );
        problems.extend(problem.map(|_| mutant.name.as_str()));
    }

    println!(
        "xtask: {count} of {} mutants tried, {} fail",
        mutants.len(),
        problems.len()
    );
    ensure!(
        problems.is_empty(),
        "these do not apply or compile: {}",
        problems.join(", ")
    );
    Ok(())
}

fn chosen(all: Vec<Mutant>, names: &[String]) -> Result<Vec<Mutant>> {
    for name in names {
        if !all.iter().any(|mutant| mutant.name.starts_with(name)) {
            let valid: Vec<&str> = all.iter().map(|mutant| mutant.name.as_str()).collect();
            return Err(UsageError::unknown("mutant", name, &valid).into());
        }
    }

    let is_chosen = |mutant: &Mutant| {
        names.is_empty() || names.iter().any(|name| mutant.name.starts_with(name))
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn deadline(minutes: Option<u64>) -> Option<Instant> {
    minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_chooses_its_mutants_and_unknown_one_is_rejected() {
        let all = || vec![Mutant::sample("file_a"), Mutant::sample("redis_a")];

        assert_eq!(chosen(all(), &[]).expect("all are chosen").len(), 2);
        assert_eq!(
            chosen(all(), &["redis_".to_owned()]).expect("one is")[0].name,
            "redis_a"
        );
        let error = chosen(all(), &["rdis".to_owned()]).expect_err("none begins so");
        assert!(
            error.to_string().ends_with("\n  file_a\n  redis_a"),
            "{error}"
        );
    }
}
