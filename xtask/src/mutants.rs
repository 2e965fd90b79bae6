//! Bugs that somebody might make, and the checks that find them: `cargo xtask mutants [NAME…]`.
//!
//! Each `lab/mutants/NAME.patch` is a small bug, with the command that must notice it in its head. They are tried out in a copy
//! of the working tree, one after the other, so that nobody's work is touched. First every check must pass without any bug: a
//! check that always fails finds nothing.

mod check;
mod patch;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use check::Verdict;
use patch::Mutant;
use tree::Tree;

/// Tries out all mutants, or those whose names begin so.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let mutants = chosen(Mutant::all(&root())?, names)?;
    let tree = Tree::copy(&root())?;
    let checks: BTreeSet<&str> = mutants.iter().map(|mutant| &*mutant.check).collect();
    for check in checks {
        must_pass(&tree, check)?;
    }
    let mut rows = Vec::new();
    for mutant in &mutants {
        let row = try_out(&tree, mutant);
        println!("{row}");
        rows.push(row);
    }
    let survivors: Vec<&str> = rows.iter().filter(|row| row.killed_by.is_err()).map(|row| &*row.name).collect();
    let table: String = [HEAD.to_owned()].into_iter().chain(rows.iter().map(|row| format!("{row}\n"))).collect();
    let page = tree.notes().join("matrix.md");
    fs::write(&page, table).with_context(|| format!("cannot write {}", page.display()))?;
    println!("xtask: {} mutants, {} killed; the table is {}", rows.len(), rows.len() - survivors.len(), page.display());
    ensure!(survivors.is_empty(), "not killed: {}", survivors.join(", "));
    Ok(())
}

const HEAD: &str = "| mutant | what it breaks | killed by | s |\n|---|---|---|---|\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn chosen(all: Vec<Mutant>, names: &[String]) -> Result<Vec<Mutant>> {
    for name in names {
        ensure!(all.iter().any(|mutant| mutant.name.starts_with(name)), "no mutant's name begins with {name}");
    }
    let is_meant = |mutant: &Mutant| names.is_empty() || names.iter().any(|name| mutant.name.starts_with(name));
    Ok(all.into_iter().filter(is_meant).collect())
}

fn must_pass(tree: &Tree, line: &str) -> Result<()> {
    let begun = Instant::now();
    match check::run(tree, line, "sound")? {
        Verdict::Passed(0) => bail!("this runs no test: cargo {line}"),
        Verdict::Passed(count) => {
            println!("xtask: {count} passed in {} s: cargo {line}", begun.elapsed().as_secs());
            Ok(())
        }
        Verdict::DoesNotCompile => bail!("this does not compile: cargo {line}"),
        Verdict::Failed(tests) => bail!("this fails without any bug ({tests}): cargo {line}"),
    }
}

/// What became of a mutant.
struct Row {
    name: String,
    breaks: String,
    /// The tests that failed, or why none did.
    killed_by: Result<String>,
    took: Duration,
}

fn try_out(tree: &Tree, mutant: &Mutant) -> Row {
    let begun = Instant::now();
    let killed_by = killed_by(tree, mutant);
    let (name, breaks) = (mutant.name.clone(), mutant.breaks.clone());
    Row { name, breaks, killed_by, took: begun.elapsed() }
}

fn killed_by(tree: &Tree, mutant: &Mutant) -> Result<String> {
    let _applied = tree.apply(mutant)?;
    match check::run(tree, &mutant.check, &mutant.name)? {
        Verdict::Failed(tests) => Ok(tests),
        Verdict::Passed(_) => bail!("it survives"),
        Verdict::DoesNotCompile => bail!("it does not compile"),
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let killed_by = match &self.killed_by {
            Ok(tests) => tests.clone(),
            Err(why) => format!("**nothing: {why:#}**"),
        };
        write!(f, "| `{}` | {} | {killed_by} | {} |", self.name, self.breaks, self.took.as_secs())
    }
}
