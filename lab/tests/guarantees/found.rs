//! FOUND.md names a test for each bug, and the tests exist.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::guarantees::{ROOT, sources};

/// What an entry consists of, in this order.
const PARTS: [&str; 5] = ["Symptom", "Cause", "Fix", "Found by", "Command"];
/// The class of the mistake, which the newer entries name as their last part.
const CLASS: &str = "Class";

#[test]
fn every_bug_has_all_parts_and_its_number() -> Result<()> {
    let page = fs::read_to_string(Path::new(ROOT).join("FOUND.md"))?;
    let bugs: Vec<&str> = page.split("\n## ").skip(1).collect();
    ensure!(bugs.len() > 100, "only {} bugs are found", bugs.len());

    for (index, bug) in bugs.iter().enumerate() {
        let id = format!("F-{:03} ", index + 1);
        ensure!(bug.starts_with(&id), "{id}is missing");

        let parts: Vec<&str> = bug
            .lines()
            .filter_map(|line| line.strip_prefix("- **")?.split(".**").next())
            .collect();
        let without_class = parts.strip_suffix(&[CLASS]).unwrap_or(&parts);
        ensure!(without_class == PARTS, "{id}has the parts {parts:?}");
    }
    Ok(())
}

#[test]
fn every_bug_names_existing_tests() -> Result<()> {
    let mut sources_of = sources(&Path::new(ROOT).join("crates"))?;
    sources_of.extend(sources(&Path::new(ROOT).join("lab"))?);
    let page = fs::read_to_string(Path::new(ROOT).join("FOUND.md"))?;
    let commands = page
        .lines()
        .filter_map(|line| line.strip_prefix("- **Command.** "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|command| command.contains("cargo test"));

    for command in commands {
        let filter = command.split(' ').next_back().context("it has words")?;
        let parts = filter.split("::").filter(|part| !part.is_empty());
        for part in parts {
            let exists =
                is_test_file(part) || defines(&sources_of, part) || is_conformance_store(part)?;
            ensure!(exists, "{part} does not exist: {command}");
        }
    }
    Ok(())
}

/// Whether a function or a module has this in its name, as a filter of `cargo test` matches.
fn defines(sources: &[String], part: &str) -> bool {
    let names = |source: &String| {
        let words = source.split("fn ").chain(source.split("mod ")).skip(1);
        words.map(name_of).any(|name| name.contains(part))
    };

    sources.iter().any(names)
}

/// Whether the list of stores in the conformance tests has this name. A macro makes a module of it.
fn is_conformance_store(name: &str) -> Result<bool> {
    let source = fs::read_to_string(Path::new(ROOT).join("crates/leasehold/tests/conformance.rs"))?;
    let (_, list) = source
        .split_once("\nstores! {")
        .context("it lists the stores")?;
    let (list, _) = list.split_once("\n}").context("the list ends")?;

    let mut names = list.lines().filter_map(|line| line.trim().split_once(": "));
    Ok(names.any(|(store, _)| store == name))
}

fn name_of(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');

    &text[..end.unwrap_or(text.len())]
}

/// The whole file is the test: `--test NAME` without a filter.
fn is_test_file(name: &str) -> bool {
    let tests = Path::new(ROOT).join("crates/leasehold/tests");

    tests.join(format!("{name}.rs")).exists() || tests.join(name).join("main.rs").exists()
}
