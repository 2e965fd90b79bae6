//! The seeded bugs with what found them, as lab/mutants/README.md lists them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::patch::Mutant;

/// A seeded bug and the outcome of its last run.
#[derive(Debug)]
pub(crate) struct SeededBug {
    pub(crate) name: String,
    /// The guarantees and invariants that it breaks.
    pub(crate) guarantees: Vec<String>,
    /// The tests that found it, or that must find it, as Markdown.
    pub(crate) found_by: String,
    pub(crate) was_run: bool,
}

/// All seeded bugs, by name.
pub(crate) fn seeded_bugs(root: &Path) -> Result<Vec<SeededBug>> {
    let page = fs::read_to_string(root.join("lab/mutants/README.md"))?;

    Mutant::all(root)?
        .into_iter()
        .map(|mutant| from_row(mutant, &page))
        .collect()
}

fn from_row(mutant: Mutant, page: &str) -> Result<SeededBug> {
    let start = format!("| `{}` |", mutant.name);
    let row = page.lines().find(|line| line.starts_with(&start));
    let cells: Vec<&str> = row
        .with_context(|| format!("lab/mutants/README.md has no row for {}", mutant.name))?
        .split('|')
        .map(str::trim)
        .collect();

    let cell = |number: usize| cells.get(number).copied().unwrap_or_default();
    Ok(SeededBug {
        found_by: cell(3).to_owned(),
        was_run: cell(4).parse::<u64>().is_ok(),
        name: mutant.name,
        guarantees: mutant.guarantees,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_says_what_found_a_bug_and_whether_it_was_run() -> Result<()> {
        let page = "| mutant | |\n| `a` | It breaks | `x::y` and 1 more | 12 |\n\
                    | `b` | It breaks too | `z` | – |\n";

        let first = from_row(Mutant::sample("a"), page)?;
        assert_eq!(first.found_by, "`x::y` and 1 more");
        assert!(first.was_run);
        assert!(!from_row(Mutant::sample("b"), page)?.was_run);
        from_row(Mutant::sample("c"), page).expect_err("it has no row");
        Ok(())
    }
}
