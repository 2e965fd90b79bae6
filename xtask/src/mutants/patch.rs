//! The patches and their headers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::repository::extension;

/// A seeded bug, and the command that must find it.
#[derive(Debug)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// One sentence.
    pub(super) breaks: String,
    /// The guarantees and invariants that it breaks.
    pub(crate) guarantees: Vec<String>,
    /// The arguments of cargo.
    pub(super) check: String,
    pub(super) path: PathBuf,
}

impl Mutant {
    /// All mutants, by name.
    pub(crate) fn all(root: &Path) -> Result<Vec<Self>> {
        let mut mutants = Vec::new();

        for entry in fs::read_dir(root.join("lab/mutants"))? {
            let path = entry?.path();
            if extension(&path.to_string_lossy()) == "patch" {
                let text = fs::read_to_string(&path)?;
                mutants.push(Self::parse(path, &text)?);
            }
        }
        mutants.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(mutants)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self> {
        let field = |name: &str| {
            let mut header = text.lines().take_while(|line| !line.starts_with("--- "));
            let value = header.find_map(|line| line.strip_prefix(name));
            value.with_context(|| format!("{} has no line `{name}`", path.display()))
        };

        let breaks = field("breaks: ")?.to_owned();
        let guarantees = field("guarantees: ")?.split(", ").map(str::to_owned);
        let check = field("check: cargo ")?.to_owned();
        ensure!(
            check.starts_with("test "),
            "{}: a check is a cargo test",
            path.display()
        );

        let name = path.file_stem().context("a patch has a name")?;
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            breaks,
            guarantees: guarantees.collect(),
            check,
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::{files, root};
    use crate::step::Step;

    #[test]
    fn every_mutant_applies() -> Result<()> {
        let mutants = Mutant::all(&root())?;
        ensure!(mutants.len() >= 30, "there are only {}", mutants.len());

        for mutant in mutants {
            Step::program("git")
                .args(["apply", "--check", &mutant.path.to_string_lossy()])
                .run()?;
        }
        Ok(())
    }

    /// A filter that selects no test would let every bug survive, and only the night would show it.
    #[test]
    fn every_check_names_an_existing_test() -> Result<()> {
        let root = root();
        let cells = fs::read_to_string(root.join("lab/tests/matrix/cells.txt"))?;
        let mut names = cells.replace('-', "_");
        for file in files(&root)? {
            if extension(&file.to_string_lossy()) == "rs" {
                for line in fs::read_to_string(root.join(file))?.lines() {
                    let function = line.split_once("fn ").map_or("", |(_, rest)| rest);
                    names += function.split('(').next().unwrap_or_default();
                    names += "\n";
                }
            }
        }

        for mutant in Mutant::all(&root)? {
            let filter = mutant.check.split_whitespace().last().unwrap_or_default();
            // Some suites run once for each kind of lock.
            let test = filter.trim_end_matches("::mutex");
            let function = test.rsplit("::").next().unwrap_or_default();
            // A filter of `cargo test` names every test that contains it.
            ensure!(
                !function.is_empty() && names.contains(function),
                "{}: {filter} does not exist",
                mutant.name
            );
        }
        Ok(())
    }
}
