//! GUARANTEES.md names a test for each promise, and the tests are there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use lab::matrix::cells;
use leasehold::conformance::{FACED, PLAIN};

pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn every_guarantee_names_existing_tests() -> Result<()> {
    let folders = ["crates", "lab/tests/models", "lab/src"]
        .map(|folder| sources(&Path::new(ROOT).join(folder)));
    let sources = folders.into_iter().collect::<Result<Vec<_>>>()?.concat();
    let shown_by = shown_by()?;
    ensure!(
        shown_by.len() > 15,
        "only {} promises were found",
        shown_by.len()
    );
    for (promise, tests) in shown_by {
        ensure!(!tests.is_empty(), "nothing shows this: {promise}");
        for test in tests {
            let is_function = [format!("fn {test}("), format!("struct {test} ")]
                .iter()
                .any(|push| sources.iter().any(|source| source.contains(push)));
            let is_there = is_function
                || is_lab_file(&test)
                || cells().any(|cell| is_named_by(&cell.name(), &test));
            ensure!(
                is_there,
                "{test} is no test, but shall show this: {promise}"
            );
        }
    }
    Ok(())
}

#[test]
fn every_suite_shows_a_guarantee() -> Result<()> {
    let named: Vec<String> = shown_by()?
        .into_iter()
        .flat_map(|(_, tests)| tests)
        .collect();
    for suite in FACED.iter().chain(PLAIN) {
        ensure!(
            named.iter().any(|name| name == suite),
            "GUARANTEES.md does not name {suite}"
        );
    }
    Ok(())
}

/// The matrix shows nothing that nobody promises: each cell is named, alone or among others as `*/FAULT` or `STORE/*`.
#[test]
fn every_cell_shows_a_guarantee() -> Result<()> {
    let named: Vec<String> = shown_by()?
        .into_iter()
        .flat_map(|(_, tests)| tests)
        .collect();
    for cell in cells() {
        let is_named = named.iter().any(|name| is_named_by(&cell.name(), name));
        ensure!(is_named, "GUARANTEES.md does not name {}", cell.name());
    }
    Ok(())
}

fn is_named_by(cell: &str, name: &str) -> bool {
    let fits = |(own, other): (&str, &str)| other == "*" || own == other;
    let (own, other) = (cell.split_once('/'), name.split_once('/'));
    own.zip(other)
        .is_some_and(|(own, other)| fits((own.0, other.0)) && fits((own.1, other.1)))
}

#[test]
fn every_invariant_has_a_row() -> Result<()> {
    let rows: Vec<String> = shown_by()?
        .into_iter()
        .map(|(promise, _)| promise)
        .collect();
    for invariant in (1..=13)
        .map(|number| format!("S{number}"))
        .chain((1..=9).map(|number| format!("L{number}")))
    {
        let begins = format!("| **{invariant}** ");
        ensure!(
            rows.iter().any(|row| row.starts_with(&begins)),
            "GUARANTEES.md has no row of {invariant}"
        );
    }
    Ok(())
}

/// Each row's promise, and what stands between backticks in its last column.
fn shown_by() -> Result<Vec<(String, Vec<String>)>> {
    let page = fs::read_to_string(Path::new(ROOT).join("GUARANTEES.md"))?;
    let rows = page.lines().filter(|line| line.starts_with("| **"));
    Ok(rows
        .map(|row| {
            let columns: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
            let tests = columns
                .last()
                .into_iter()
                .flat_map(|last| last.split('`').skip(1).step_by(2));
            (columns[0].to_owned(), tests.map(str::to_owned).collect())
        })
        .collect())
}

fn is_lab_file(test: &str) -> bool {
    ["guarantees", "faults", "interop"].iter().any(|folder| {
        Path::new(ROOT)
            .join(format!("lab/tests/{folder}/{test}.rs"))
            .exists()
    })
}

pub(super) fn sources(folder: &Path) -> Result<Vec<String>> {
    let mut sources = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                sources.push(fs::read_to_string(path)?);
            }
        }
    }
    Ok(sources)
}
