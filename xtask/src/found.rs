//! The bugs that were found in leasehold: `xtask/found.tsv` has a row for each.
//!
//! A row has the id, what was wrong, and the command that fails on the code before the fix, with a
//! tab between them. Commands are joined by `&&`, and `#` begins a remark. A bug that no test shows
//! has `none` in place of a command. FOUND.md explains those that teach most.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::repository;
use crate::usage::UsageError;

/// Where the rows are.
pub(crate) const ROWS: &str = "xtask/found.tsv";

/// Options of cargo whose value is the next word.
const WITH_VALUE: [&str; 5] = ["-p", "--test", "--bin", "--features", "--bench"];

/// A row.
struct Bug<'a> {
    id: &'a str,
    title: &'a str,
    command: &'a str,
}

/// What a command can name.
#[derive(Default)]
struct Names {
    functions: BTreeSet<String>,
    modules: BTreeSet<String>,
    /// Test programs.
    programs: BTreeSet<String>,
    /// Faults of the matrix.
    faults: BTreeSet<String>,
}

/// Prints what was wrong, and the command that shows it.
pub(crate) fn print(id: &str) -> Result<()> {
    let root = repository::root();
    let rows = fs::read_to_string(root.join(ROWS)).context(ROWS)?;
    let Some(bug) = rows.lines().filter_map(Bug::parse).find(|bug| bug.id == id) else {
        return Err(
            UsageError::unknown("bug", id, &["the first column of xtask/found.tsv"]).into(),
        );
    };

    println!("{}: {}\n{}", bug.id, bug.title, bug.command);
    if headings(&fs::read_to_string(root.join("FOUND.md"))?).any(|(known, _)| known == id) {
        println!("FOUND.md explains it.");
    }
    Ok(())
}

/// The ids of all bugs.
pub(crate) fn ids(rows: &str) -> BTreeSet<&str> {
    rows.lines()
        .filter_map(Bug::parse)
        .map(|bug| bug.id)
        .collect()
}

/// What is wrong with the rows and with FOUND.md; `sources` are the Rust files.
pub(crate) fn violations<'a>(
    root: &Path,
    sources: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<Vec<String>> {
    let rows = fs::read_to_string(root.join(ROWS)).context(ROWS)?;
    let page = fs::read_to_string(root.join("FOUND.md"))?;

    let mut violations = check_rows(&rows, &Names::of(sources));
    violations.extend(check_page(&page, &rows));
    Ok(violations)
}

fn check_rows(rows: &str, names: &Names) -> Vec<String> {
    let mut violations = Vec::new();
    let mut before = 0;

    for (row, at) in rows.lines().zip(1..) {
        let Some(bug) = Bug::parse(row) else {
            violations.push(format!("{ROWS}:{at}: a row is `F-123`, title, command"));
            continue;
        };
        if bug.number() <= before {
            violations.push(format!("{ROWS}:{at}: {} is not in order", bug.id));
        }
        before = bug.number();

        let missing = bug.commands().filter_map(|one| names.missing(one));
        violations.extend(missing.map(|what| format!("{ROWS}:{at}: {}: {what}", bug.id)));
    }
    violations
}

/// A heading of FOUND.md with an id has the title of the row.
fn check_page(page: &str, rows: &str) -> Vec<String> {
    let bugs: Vec<Bug<'_>> = rows.lines().filter_map(Bug::parse).collect();

    headings(page)
        .filter(|(id, title)| !bugs.iter().any(|bug| bug.id == *id && bug.title == *title))
        .map(|(id, title)| format!("FOUND.md: {ROWS} has no bug `{id}` with the title `{title}`"))
        .collect()
}

/// The bugs of the page: id and title.
fn headings(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let headings = page.lines().filter(|line| line.starts_with('#'));

    headings.filter_map(|line| {
        let (id, title) = line.trim_start_matches('#').trim().split_once(' ')?;
        id.starts_with("F-").then_some((id, title))
    })
}

impl<'a> Bug<'a> {
    fn parse(row: &'a str) -> Option<Self> {
        let mut fields = row.split('\t');
        let bug = Bug {
            id: fields.next()?,
            title: fields.next()?,
            command: fields.next()?,
        };
        let is_whole = fields.next().is_none() && !bug.title.is_empty() && bug.number() > 0;

        is_whole.then_some(bug)
    }

    /// The number of the id, 0 if it is none.
    fn number(&self) -> u32 {
        let digits = self
            .id
            .strip_prefix("F-")
            .filter(|digits| digits.len() >= 3);

        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    fn commands(&self) -> impl Iterator<Item = &'a str> {
        let (commands, _) = self.command.split_once('#').unwrap_or((self.command, ""));

        commands
            .split("&&")
            .map(str::trim)
            .filter(|command| *command != "none")
    }
}

impl Names {
    fn of<'a>(sources: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        let mut names = Names::default();
        for (path, text) in sources {
            names.add_path(path);
            names.functions.extend(after(text, "fn "));
            names.modules.extend(after(text, "mod "));
            names.faults.extend(after(text, "name: \""));
        }
        names
    }

    /// A file is a module, and may be a test program.
    fn add_path(&mut self, path: &str) {
        let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        self.modules.extend(parts.iter().map(ToString::to_string));

        match parts[..] {
            [.., "tests", program, "main"] | [.., "tests", program] => {
                self.programs.insert(program.to_owned());
            }
            _ => {}
        }
    }

    /// What a command names that does not exist.
    fn missing(&self, command: &str) -> Option<String> {
        let mut words = command.split(' ').skip_while(|word| word.contains('='));
        match (words.next(), words.next()) {
            (Some("cargo"), Some("test")) => self.missing_test(words),
            (Some("cargo"), Some("xtask")) => self.missing_fault(words),
            _ => Some(format!("`{command}` is no test")),
        }
    }

    fn missing_test<'a>(&self, mut words: impl Iterator<Item = &'a str>) -> Option<String> {
        let mut programs = BTreeSet::new();
        let mut filters = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "--test" => programs.extend(words.next()),
                option if WITH_VALUE.contains(&option) => drop(words.next()),
                option if option.starts_with('-') => {}
                filter => filters.push(filter),
            }
        }

        if programs.is_empty() && filters.is_empty() {
            return Some("the command names no test".to_owned());
        }
        if let Some(program) = programs.iter().find(|name| !self.programs.contains(**name)) {
            return Some(format!("there is no test program `{program}`"));
        }
        let unknown = filters.iter().find(|filter| !self.has_test(filter))?;
        Some(format!("there is no test `{unknown}`"))
    }

    /// Whether a filter is a function, or ends with `::` and is a module.
    fn has_test(&self, filter: &str) -> bool {
        match filter.strip_suffix("::") {
            Some(module) => self.modules.contains(last_part(module)),
            None => self.functions.contains(last_part(filter)),
        }
    }

    fn missing_fault<'a>(&self, words: impl Iterator<Item = &'a str>) -> Option<String> {
        let fault = words.skip_while(|word| *word != "--fault").nth(1)?;
        let is_known = self.faults.contains(fault);

        (!is_known).then(|| format!("there is no fault `{fault}`"))
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// The names that follow `start` in a text.
fn after(text: &str, start: &str) -> impl Iterator<Item = String> {
    let names = text.split(start).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && !"_-".contains(c));
        &rest[..end.unwrap_or(rest.len())]
    });

    names.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &str) -> Vec<String> {
        let sources = [
            ("a/tests/server/outage.rs", "mod inner {}\nfn it_works() {}"),
            ("a/tests/server/main.rs", "mod outage;"),
            ("b/src/faults.rs", "name: \"half-open\","),
        ]
        .map(|(path, text)| (path.to_owned(), text.to_owned()));

        check_rows(
            rows,
            &Names::of(sources.iter().map(|(path, text)| (path, text))),
        )
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
            "cargo xtask lab --fault half-closed",
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

    #[test]
    fn heading_that_differs_from_its_row_is_rejected() {
        let rows = "F-001\tA `b`\tnone\n";

        assert!(check_page("## Ten\n\n### F-001 A `b`\n", rows).is_empty());
        for heading in ["### F-001 A b", "## F-002 A `b`"] {
            assert_eq!(check_page(heading, rows).len(), 1, "{heading}");
        }
    }
}
