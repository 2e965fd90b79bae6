//! The bugs that were found in leasehold: `xtask/found.tsv` has a row for each.
//!
//! A row has the id, what was wrong, and the command that fails on the code before the fix, with a
//! tab between them. Commands are joined by `&&`, and `#` begins a remark. A bug that no test shows
//! has `none` in place of a command. FOUND.md explains those that teach most.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use crate::repository::{self, extension};

/// Where the rows are.
pub(crate) const ROWS: &str = "xtask/found.tsv";

/// Options of cargo whose value names no test.
const WITH_VALUE: [&str; 4] = ["-p", "--bin", "--features", "--bench"];

/// Prints what was wrong, and the command that shows it.
pub(crate) fn print(id: &str) -> Result<()> {
    let root = repository::root();
    let rows = fs::read_to_string(root.join(ROWS)).context(ROWS)?;
    let mut found = rows.lines().filter_map(parse);
    let [_, title, command] = found
        .find(|row| row[0] == id)
        .with_context(|| format!("{ROWS} has no {id}"))?;

    println!("{id}: {title}\n{command}");
    if fs::read_to_string(root.join("FOUND.md"))?.contains(&format!("# {id} ")) {
        println!("FOUND.md explains it.");
    }
    Ok(())
}

/// The ids of all bugs.
pub(crate) fn ids(rows: &str) -> impl Iterator<Item = &str> {
    rows.lines().filter_map(parse).map(|[id, ..]| id)
}

/// What is wrong with the rows; `texts` are the files by their paths.
pub(crate) fn violations(texts: &BTreeMap<String, String>, rows: &str) -> Vec<String> {
    let names = names(texts);
    let mut violations = Vec::new();
    let mut before = 0;

    for (at, row) in (1..).zip(rows.lines()) {
        let Some([id, _, command]) = parse(row) else {
            violations.push(format!("{ROWS}:{at}: a row is `F-123`, title, command"));
            continue;
        };
        if number(id) <= before {
            violations.push(format!("{ROWS}:{at}: {id} is not in order"));
        }
        before = number(id);

        let commands = command.split('#').next().unwrap_or_default().split("&&");
        let commands = commands.map(str::trim).filter(|one| *one != "none");
        let missing = commands.filter_map(|one| missing_test(one, &names));
        violations.extend(missing.map(|test| format!("{ROWS}:{at}: {id}: no test `{test}`")));
    }
    violations
}

/// The id, the title and the command of a row.
fn parse(row: &str) -> Option<[&str; 3]> {
    let fields: Vec<&str> = row.split('\t').collect();
    let row: [&str; 3] = fields.try_into().ok()?;

    (number(row[0]) > 0 && !row[1].is_empty()).then_some(row)
}

/// The number of an id, 0 if it is none.
fn number(id: &str) -> u32 {
    let digits = id.strip_prefix("F-").filter(|digits| digits.len() >= 3);

    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Test programs, modules and functions.
fn names(texts: &BTreeMap<String, String>) -> BTreeSet<&str> {
    let sources = texts.iter().filter(|(path, _)| extension(path) == "rs");

    let names = sources.flat_map(|(path, text)| {
        let items = ["fn ", "mod "].map(|start| text.split(start).skip(1));
        path.split(['/', '.'])
            .chain(items.into_iter().flatten().map(first_name))
    });
    names.collect()
}

/// The name with which a text begins.
fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');

    &text[..end.unwrap_or(text.len())]
}

/// What a command names that is no test.
fn missing_test<'a>(command: &'a str, names: &BTreeSet<&str>) -> Option<&'a str> {
    let mut words = command.split(' ').skip_while(|word| word.contains('='));
    match (words.next(), words.next()) {
        (Some("cargo"), Some("xtask")) => return None,
        (Some("cargo"), Some("test")) => {}
        _ => return Some(command),
    }

    let mut filters = Vec::new();
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            filters.push(word);
        }
    }
    let is_missing = |filter: &&str| {
        let path = filter.trim_end_matches("::");
        path.rsplit("::")
            .next()
            .is_none_or(|last| !names.contains(last))
    };
    let missing = filters.iter().copied().find(is_missing);
    missing.or(filters.is_empty().then_some(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &str) -> Vec<String> {
        let sources = [
            ("a/tests/server/outage.rs", "mod inner {}\nfn it_works() {}"),
            ("a/tests/server/main.rs", "mod outage;"),
        ]
        .map(|(path, text)| (path.to_owned(), text.to_owned()));

        violations(&sources.into(), rows)
    }

    #[test]
    fn row_whose_test_exists_is_accepted() {
        let rows = "F-001\tA\tcargo test -p a --test server\n\
                    F-002\tB\tLC_ALL=C cargo test --lib outage::it_works # at times\n\
                    F-010\tC\tcargo test -p a --test server -- it_works it_works\n\
                    F-011\tD\tcargo test --lib inner:: && cargo xtask lab --fault half-open\n\
                    F-012\tE\tnone # the process would end\n\
                    F-1000\tF\tcargo xtask simulate --from 1 --seeds 1\n";

        assert_eq!(check(rows), Vec::<String>::new());
    }

    #[test]
    fn row_whose_test_is_missing_is_rejected() {
        for command in [
            "cargo test --lib it_worked",
            "cargo test --lib it_works && cargo test --lib it_worked",
            "cargo test -p a --test server -- it_works it_worked",
            "cargo test -p a --test servers",
            "cargo test --lib outages::",
            "cargo test -p a",
            "true",
            "",
        ] {
            let found = check(&format!("F-001\tA\t{command}\n"));
            assert_eq!(found.len(), 1, "{command}: {found:?}");
        }
    }

    #[test]
    fn row_out_of_order_or_without_three_fields_is_rejected() {
        let row = "\tA\tcargo test --lib it_works";

        for rows in [
            format!("F-002{row}\nF-001{row}\n"),
            format!("F-001{row}\nF-001{row}\n"),
            format!("F-1{row}\n"),
            format!("G-001{row}\n"),
            format!("F-001{row}\tmore\n"),
            "F-001\tA\n".to_owned(),
            "F-001\t\tcargo test --lib it_works\n".to_owned(),
        ] {
            assert_eq!(check(&rows).len(), 1, "{rows}");
        }
    }
}
