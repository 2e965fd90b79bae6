//! docs/guarantees.toml names what shows each guarantee, and these tests exist.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lab::matrix::cells;
use leasehold::conformance::{SUITES_BY_KIND, SUITES_RUN_ONCE};
use toml::{Table, Value};

pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The kinds of names in a table `evidence`.
const KINDS: [&str; 5] = ["suites", "tests", "lab", "cells", "checkers"];

/// A statement and the names of what shows it, each with its kind.
struct Statement {
    id: String,
    names: Vec<(String, String)>,
}

#[test]
fn every_guarantee_names_existing_tests() -> Result<()> {
    let product = read_sources("crates")?;
    let lab = read_sources("lab/src")?;
    let statements = read_statements()?;
    ensure!(statements.len() > 50, "only {} are found", statements.len());

    for Statement { id, names } in statements {
        ensure!(!names.is_empty(), "{id} names no test");

        for (kind, name) in names {
            let exists = match kind.as_str() {
                "suites" => is_suite(&name),
                "tests" => defines(&product, &name) || defines(&lab, &name),
                "lab" => is_lab_file(&name),
                "cells" => cells().any(|cell| is_named_by(&cell.name(), &name)),
                "checkers" => defines(&lab, &name),
                _ => bail!("{id}: {kind} is not a kind of evidence"),
            };
            ensure!(exists, "{id}: {name} is not among the {kind}");
        }
    }
    Ok(())
}

#[test]
fn every_suite_shows_a_guarantee() -> Result<()> {
    let statements = read_statements()?;

    for suite in SUITES_BY_KIND.iter().chain(SUITES_RUN_ONCE) {
        let is_named = names_of(&statements, "suites").any(|name| name == *suite);
        ensure!(is_named, "docs/guarantees.toml does not name {suite}");
    }
    Ok(())
}

/// Each cell is named, alone or among others as `*/FAULT` or `STORE/*`.
#[test]
fn every_cell_shows_a_guarantee() -> Result<()> {
    let statements = read_statements()?;

    for cell in cells() {
        let cell = cell.name();
        let is_named = names_of(&statements, "cells").any(|name| is_named_by(&cell, name));
        ensure!(is_named, "docs/guarantees.toml does not name {cell}");
    }
    Ok(())
}

#[test]
fn every_invariant_has_a_statement() -> Result<()> {
    let statements = read_statements()?;
    let safety = (1..=13).map(|number| format!("S{number}"));
    let liveness = (1..=9).map(|number| format!("L{number}"));

    for invariant in safety.chain(liveness) {
        let is_stated = statements.iter().any(|it| it.id == invariant);
        ensure!(is_stated, "docs/guarantees.toml does not state {invariant}");
    }
    Ok(())
}

fn names_of<'a>(statements: &'a [Statement], kind: &str) -> impl Iterator<Item = &'a str> {
    let names = statements.iter().flat_map(|statement| &statement.names);

    names.filter_map(move |(own, name)| (own == kind).then_some(name.as_str()))
}

/// All guarantees, invariants, and limits that name tests.
fn read_statements() -> Result<Vec<Statement>> {
    let text = fs::read_to_string(Path::new(ROOT).join("docs/guarantees.toml"))?;
    let source: Table = text.parse()?;
    let mut statements = Vec::new();

    for entry in [entries(&source, "guarantee"), entries(&source, "invariant")].concat() {
        let id = entry.get("id").and_then(Value::as_str);
        let id = id.context("a statement has no id")?;
        statements.push(read_statement(id, entry)?);

        for limit in entries(entry, "limits") {
            if limit.contains_key("evidence") {
                statements.push(read_statement(&format!("a limit of {id}"), limit)?);
            }
        }
    }
    Ok(statements)
}

fn entries<'a>(table: &'a Table, key: &str) -> Vec<&'a Table> {
    let list = table.get(key).and_then(Value::as_array);

    list.into_iter()
        .flatten()
        .filter_map(Value::as_table)
        .collect()
}

fn read_statement(id: &str, entry: &Table) -> Result<Statement> {
    let evidence = entry.get("evidence").and_then(Value::as_table);
    let evidence = evidence.with_context(|| format!("{id} has no evidence"))?;
    let mut names = Vec::new();

    for (kind, list) in evidence {
        ensure!(
            KINDS.contains(&kind.as_str()),
            "{id}: {kind} is not a kind of evidence"
        );
        let list = list.as_array().context("evidence is a list")?;
        for name in list {
            let name = name.as_str().context("a name is a text")?;
            names.push((kind.clone(), name.to_owned()));
        }
    }

    let id = id.to_owned();
    Ok(Statement { id, names })
}

fn is_suite(name: &str) -> bool {
    SUITES_BY_KIND
        .iter()
        .chain(SUITES_RUN_ONCE)
        .any(|suite| *suite == name)
}

fn defines(sources: &[String], name: &str) -> bool {
    let definitions = [format!("fn {name}("), format!("struct {name} ")];

    definitions
        .iter()
        .any(|definition| sources.iter().any(|source| source.contains(definition)))
}

fn is_named_by(cell: &str, name: &str) -> bool {
    let fits = |own: &str, other: &str| other == "*" || own == other;
    let (Some((store, fault)), Some((named_store, named_fault))) =
        (cell.split_once('/'), name.split_once('/'))
    else {
        return false;
    };

    fits(store, named_store) && fits(fault, named_fault)
}

fn is_lab_file(test: &str) -> bool {
    ["guarantees", "faults", "interop"].iter().any(|folder| {
        Path::new(ROOT)
            .join(format!("lab/tests/{folder}/{test}.rs"))
            .exists()
    })
}

fn read_sources(folder: &str) -> Result<Vec<String>> {
    sources(&Path::new(ROOT).join(folder))
}

/// The text of all Rust files below a folder.
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
