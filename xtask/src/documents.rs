//! The documents that are generated from data: GUARANTEES.md and docs/evidence.md from
//! docs/guarantees.toml and the seeded bugs.

mod seeded_bugs;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::repository;

const SOURCE: &str = "docs/guarantees.toml";
const COLUMNS: usize = 98;

/// The stores in the order of the tables: the key in the file, and the name in the documents.
const STORES: [(&str, &str); 7] = [
    ("memory", "`memory:`"),
    ("file", "`file:`"),
    ("redis", "`redis:`"),
    ("redlock", "`redlock:`"),
    ("plain", "`dialect=plain`, `dialect=classic`"),
    ("redisson", "`dialect=redisson`"),
    ("zookeeper", "`zookeeper:`"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    guarantee: Vec<Guarantee>,
    invariant: Vec<Invariant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Guarantee {
    id: String,
    title: String,
    statement: String,
    stores: BTreeMap<String, String>,
    evidence: Evidence,
    #[serde(default)]
    limits: Vec<Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    /// A store, or `all`.
    store: String,
    text: String,
    #[serde(default)]
    evidence: Evidence,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invariant {
    id: String,
    title: String,
    statement: String,
    /// What the names alone do not say about the evidence.
    #[serde(default)]
    note: String,
    evidence: Evidence,
}

/// Names of what shows a statement; `lab/tests/guarantees/guarantees.rs` checks that they exist.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Evidence {
    suites: Vec<String>,
    tests: Vec<String>,
    lab: Vec<String>,
    cells: Vec<String>,
    checkers: Vec<String>,
}

/// Writes the generated documents.
pub(crate) fn write() -> Result<()> {
    let root = repository::root();

    for (path, text) in generate(&root)? {
        fs::write(root.join(path), text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// Fails if a generated document is not what its data says.
pub(crate) fn check() -> Result<()> {
    let root = repository::root();

    for (path, text) in generate(&root)? {
        let present = fs::read_to_string(root.join(path)).unwrap_or_default();
        ensure!(
            present == text,
            "{path} is out of date: cargo xtask documents"
        );
    }
    Ok(())
}

fn generate(root: &Path) -> Result<[(&'static str, String); 2]> {
    let text =
        fs::read_to_string(root.join(SOURCE)).with_context(|| format!("cannot read {SOURCE}"))?;
    let source: Source = toml::from_str(&text).with_context(|| format!("{SOURCE} is not valid"))?;

    for guarantee in &source.guarantee {
        check_stores(guarantee)?;
        check_evidence(&guarantee.id, &guarantee.evidence)?;
    }
    for invariant in &source.invariant {
        check_evidence(&invariant.id, &invariant.evidence)?;
    }
    Ok([
        ("GUARANTEES.md", guarantees(&source)),
        ("docs/evidence.md", evidence(&source, root)?),
    ])
}

fn check_stores(guarantee: &Guarantee) -> Result<()> {
    let limited = guarantee.limits.iter().map(|limit| &limit.store);
    let unknown = guarantee
        .stores
        .keys()
        .chain(limited)
        .find(|name| *name != "all" && !STORES.iter().any(|(key, _)| key == name));

    ensure!(
        unknown.is_none(),
        "{SOURCE}: {} names an unknown store: {unknown:?}",
        guarantee.id
    );
    Ok(())
}

fn check_evidence(id: &str, evidence: &Evidence) -> Result<()> {
    ensure!(
        !evidence.is_empty(),
        "{SOURCE}: {id} has no evidence: name a suite, a test, a cell or a checker"
    );
    Ok(())
}

fn guarantees(source: &Source) -> String {
    let mut page = String::from(GUARANTEES_HEAD);

    page.push_str("| | guarantee |\n|---|---|\n");
    for Guarantee { id, title, .. } in &source.guarantee {
        line(
            &mut page,
            &format!("| [{id}](#{}) | {title} |", anchor(id, title)),
        );
    }
    for guarantee in &source.guarantee {
        section(&mut page, guarantee);
    }

    page.push_str(INVARIANTS_HEAD);
    for Invariant {
        id,
        title,
        statement,
        ..
    } in &source.invariant
    {
        line(
            &mut page,
            &format!("| **{id}** | {title} | {} |", one_line(statement)),
        );
    }
    page
}

fn section(page: &mut String, guarantee: &Guarantee) {
    let Guarantee {
        id,
        title,
        statement,
        stores,
        limits,
        ..
    } = guarantee;

    line(
        page,
        &format!("\n## {id} {title}\n\n{}\n", wrap(&one_line(statement), "")),
    );
    page.push_str("| store | |\n|---|---|\n");
    for (key, name) in STORES {
        if let Some(value) = stores.get(key) {
            line(page, &format!("| {name} | {} |", one_line(value)));
        }
    }

    if !limits.is_empty() {
        page.push_str("\nLimits:\n\n");
    }
    for limit in limits {
        let text = format!("**{}** {}", label(&limit.store), one_line(&limit.text));
        line(page, &format!("- {}", wrap(&text, "  ")));
    }
}

fn evidence(source: &Source, root: &Path) -> Result<String> {
    let mut page = String::from(EVIDENCE_HEAD);

    for guarantee in &source.guarantee {
        line(
            &mut page,
            &format!("\n## {} {}\n", guarantee.id, guarantee.title),
        );
        names(&mut page, "", &guarantee.evidence);
        for limit in guarantee
            .limits
            .iter()
            .filter(|limit| !limit.evidence.is_empty())
        {
            let first = one_line(&limit.text);
            let first = first
                .split_inclusive(". ")
                .next()
                .unwrap_or_default()
                .trim_end();
            let text = format!("Limit, {}: {first}", store_name(&limit.store));
            line(&mut page, &format!("- {}", wrap(&text, "  ")));
            names(&mut page, "  ", &limit.evidence);
        }
    }

    page.push_str("\n## Invariants\n");
    for invariant in &source.invariant {
        line(
            &mut page,
            &format!("\n### {} {}\n", invariant.id, invariant.title),
        );
        if !invariant.note.is_empty() {
            line(
                &mut page,
                &format!("{}\n", wrap(&one_line(&invariant.note), "")),
            );
        }
        names(&mut page, "", &invariant.evidence);
    }
    seeded_bugs::write(&mut page, source, root)?;
    Ok(page)
}

fn names(page: &mut String, indent: &str, evidence: &Evidence) {
    let kinds = [
        ("suites", &evidence.suites),
        ("tests", &evidence.tests),
        ("lab", &evidence.lab),
        ("cells", &evidence.cells),
        ("checkers", &evidence.checkers),
    ];

    for (kind, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
        let list: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let text = format!("{kind}: {}", list.join(", "));
        line(
            page,
            &format!("{indent}- {}", wrap(&text, &format!("{indent}  "))),
        );
    }
}

impl Evidence {
    fn is_empty(&self) -> bool {
        let all = [
            &self.suites,
            &self.tests,
            &self.lab,
            &self.cells,
            &self.checkers,
        ];

        all.iter().all(|names| names.is_empty())
    }
}

fn store_name(key: &str) -> &str {
    let store = STORES.iter().find(|(store, _)| *store == key);

    store.map_or("All stores", |(_, name)| name)
}

fn label(key: &str) -> &str {
    match key {
        "all" => "All stores:",
        store => store_name(store),
    }
}

/// The anchor that GitHub gives to a heading.
fn anchor(id: &str, title: &str) -> String {
    let heading = format!("{id} {title}").to_lowercase().replace(' ', "-");

    heading
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_')
        .collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Breaks a text into lines; all but the first begin with `indent`.
fn wrap(text: &str, indent: &str) -> String {
    let mut wrapped = String::new();
    let mut width = indent.chars().count();

    for word in text.split(' ') {
        let length = word.chars().count();
        if !wrapped.is_empty() && width + 1 + length > COLUMNS {
            wrapped.push('\n');
            wrapped.push_str(indent);
            width = indent.chars().count();
        } else if !wrapped.is_empty() {
            wrapped.push(' ');
            width += 1;
        }
        wrapped.push_str(word);
        width += length;
    }
    wrapped
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("writing to a string succeeds");
}

const GUARANTEES_HEAD: &str = "\
# Guarantees

<!-- Generated from docs/guarantees.toml by `cargo xtask documents`. Edit the data. -->

What leasehold guarantees, store by store, under which conditions, and with which limits.
[docs/evidence.md](docs/evidence.md) names the tests that show each of them. Anything else is not
guaranteed. A guarantee does not apply to stores that its table does not list. The terms are those
of [ARCHITECTURE.md](ARCHITECTURE.md#terms); a *broken* hold is one that an operator has ended with
`break`.

";

const INVARIANTS_HEAD: &str = "
## Invariants

Statements that are always true. [docs/evidence.md](docs/evidence.md) names the checkers and tests
that find a violation.

| | invariant | |
|---|---|---|
";

const EVIDENCE_HEAD: &str = "\
# Evidence

<!-- Generated from docs/guarantees.toml and lab/mutants by `cargo xtask documents`. Edit these. -->

The tests that show each guarantee of [GUARANTEES.md](../GUARANTEES.md). A test fails when a name
here does not exist. [lab/README.md](../lab/README.md#terms) explains the terms of the lab.

- *suites* are in `crates/leasehold/src/conformance`. Every suite runs on every store
  (`crates/leasehold/tests/conformance.rs`).
- *tests* are test functions of the library or the command.
- *lab* names files of tests with real processes, below `lab/tests`.
- *cells* are cells of [the matrix](matrix.md), a store and a fault: `*` means every store.
- *checkers* are in `lab/src/check.rs`. They check the recorded history of every cell that they
  apply to.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_documents_are_up_to_date() {
        check().expect("the documents are generated");
    }

    #[test]
    fn guarantee_without_evidence_is_rejected() {
        let mut evidence = Evidence::default();
        let error = check_evidence("G-99", &evidence).expect_err("it has no evidence");
        assert!(error.to_string().contains("G-99 has no evidence"));

        evidence.tests.push("a_test".to_owned());
        check_evidence("G-99", &evidence).expect("a test is evidence");
    }

    #[test]
    fn wrapped_lines_fit_and_keep_all_words() {
        let text = "word ".repeat(60).trim_end().to_owned();
        let wrapped = wrap(&text, "  ");

        assert!(wrapped.lines().all(|line| line.chars().count() <= COLUMNS));
        assert_eq!(one_line(&wrapped), text);
    }

    #[test]
    fn anchor_is_the_one_of_a_heading() {
        assert_eq!(
            anchor("G-20", "A killed `leasehold run`"),
            "g-20-a-killed-leasehold-run"
        );
    }
}
