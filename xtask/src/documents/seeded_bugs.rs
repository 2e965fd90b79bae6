//! The table of guarantees, the seeded bugs that break them, and the tests that find these.

use std::path::Path;

use anyhow::{Result, ensure};

use super::{Source, line};
use crate::mutants::{self, SeededBug};

const HEAD: &str = "
## Seeded bugs

Each patch in [lab/mutants](../lab/mutants/README.md) breaks the guarantees that its head names. The
table has the test that found it in its last run, or the one that must find it, if it was *not run*
yet. **None** marks a guarantee that no seeded bug tests: for it, nothing shows that its tests can
fail.

| guarantee | seeded bug | found by |
|---|---|---|
";

/// Writes the table below a heading.
///
/// # Errors
/// If a patch names a guarantee that does not exist.
pub(super) fn write(page: &mut String, source: &Source, root: &Path) -> Result<()> {
    let bugs = mutants::seeded_bugs(root)?;
    let guarantees = source.guarantee.iter().map(|it| (&it.id, &it.title));
    let invariants = source.invariant.iter().map(|it| (&it.id, &it.title));
    let statements: Vec<_> = guarantees.chain(invariants).collect();
    for bug in &bugs {
        check_guarantees(bug, |id| statements.iter().any(|(known, _)| *known == id))?;
    }

    page.push_str(HEAD);
    for (id, title) in statements {
        rows(page, &format!("{id} {title}"), id, &bugs);
    }
    Ok(())
}

fn check_guarantees(bug: &SeededBug, exists: impl Fn(&str) -> bool) -> Result<()> {
    let unknown = bug.guarantees.iter().find(|id| !exists(id));

    ensure!(
        unknown.is_none(),
        "lab/mutants/{}.patch names {unknown:?}, which docs/guarantees.toml does not have",
        bug.name
    );
    Ok(())
}

fn rows(page: &mut String, statement: &str, id: &str, bugs: &[SeededBug]) {
    let breaks = |bug: &&SeededBug| bug.guarantees.iter().any(|own| own == id);
    let mut found = bugs.iter().filter(breaks).peekable();
    if found.peek().is_none() {
        return line(page, &format!("| {statement} | **none** | |"));
    }

    for bug in found {
        let note = if bug.was_run { "" } else { ", not run" };
        line(
            page,
            &format!("| {statement} | `{}` | {}{note} |", bug.name, bug.found_by),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug(id: &str, was_run: bool) -> SeededBug {
        SeededBug {
            name: "a".to_owned(),
            guarantees: vec![id.to_owned()],
            found_by: "`b::c`".to_owned(),
            was_run,
        }
    }

    #[test]
    fn guarantee_without_seeded_bug_is_marked() {
        let mut page = String::new();
        rows(
            &mut page,
            "G-01 Exclusion",
            "G-01",
            &[bug("G-01", true), bug("G-01", false)],
        );
        rows(&mut page, "G-02 No deadlock", "G-02", &[bug("G-01", true)]);

        assert_eq!(
            page,
            "| G-01 Exclusion | `a` | `b::c` |\n\
             | G-01 Exclusion | `a` | `b::c`, not run |\n\
             | G-02 No deadlock | **none** | |\n"
        );
    }

    #[test]
    fn unknown_guarantee_is_rejected() {
        check_guarantees(&bug("G-01", true), |id| id == "G-01").expect("it exists");
        check_guarantees(&bug("G-99", true), |id| id == "G-01").expect_err("it does not exist");
    }
}
