//! What shows each guarantee of GUARANTEES.md.
//!
//! A line `Shows G-01, S3.` ends the comment of a test, a suite, a checker or a fault of the
//! matrix, or the one at the head of a file of tests. The head of a seeded bug names the guarantees
//! that the bug breaks.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::mutants::Mutant;
use crate::repository::{self, extension};
use crate::usage::check_names;

/// Something that names guarantees.
struct Evidence {
    /// A file, or a file and a name in it.
    place: String,
    ids: Vec<String>,
}

/// Prints the tests that show a guarantee or an invariant, and the seeded bugs that break it.
pub(crate) fn print(id: &str) -> Result<()> {
    let root = repository::root();
    let known = known_ids(&root)?;
    let valid: Vec<&str> = known.iter().map(String::as_str).collect();
    check_names("guarantee", &[id.to_owned()], &valid)?;

    for one in tests(&root)?.iter().chain(&seeded_bugs(&root)?) {
        if one.ids.iter().any(|shown| shown == id) {
            println!("{}", one.place);
        }
    }
    Ok(())
}

/// Fails if no test shows a guarantee, if no seeded bug breaks it, or if one that does not exist is
/// named.
pub(crate) fn check() -> Result<()> {
    let root = repository::root();
    let known = known_ids(&root)?;
    let tests = tests(&root)?;
    let seeded_bugs = seeded_bugs(&root)?;

    for id in &known {
        ensure!(
            tests.iter().any(|one| one.ids.contains(id)),
            "no test shows {id}: end the comment of one with `Shows {id}.`"
        );
        ensure!(
            seeded_bugs.iter().any(|one| one.ids.contains(id)),
            "no seeded bug breaks {id}, so its tests may be unable to fail: see lab/mutants"
        );
    }
    for Evidence { place, ids } in tests.iter().chain(&seeded_bugs) {
        let unknown = ids.iter().find(|id| !known.contains(id));
        ensure!(
            unknown.is_none(),
            "{place} names {unknown:?}, which GUARANTEES.md does not have"
        );
    }
    Ok(())
}

/// The guarantees, which are headings or rows of a table, and the invariants, which are rows.
fn known_ids(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join("GUARANTEES.md"))?;
    let ids = page.lines().filter_map(|line| {
        let heading = line
            .strip_prefix("## G-")
            .and_then(|_| line.split(' ').nth(1));
        heading.or_else(|| line.strip_prefix("| **")?.split("**").next())
    });

    Ok(ids.map(str::to_owned).collect())
}

fn tests(root: &Path) -> Result<Vec<Evidence>> {
    let mut tests = Vec::new();

    for file in repository::files(root)? {
        let path = file.to_string_lossy();
        if extension(&path) == "rs" {
            tests.extend(read(&path, &fs::read_to_string(root.join(&file))?));
        }
    }
    Ok(tests)
}

fn read(path: &str, text: &str) -> Vec<Evidence> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let comments = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, line, ids_of(line)?)));

    comments
        .map(|(at, line, ids)| {
            let name = lines[at..].iter().find_map(|line| name_of(line));
            let place = match name {
                Some(name) if !line.starts_with("//!") => format!("{path}: {name}"),
                _ => path.to_owned(),
            };
            Evidence { place, ids }
        })
        .collect()
}

/// The ids in a comment `Shows G-01, S3.` What is not one of them stays part of the list, so that
/// it is reported as unknown.
fn ids_of(line: &str) -> Option<Vec<String>> {
    let (slashes, list) = line.split_once(" Shows ")?;
    let number = list.strip_prefix("G-").or(list.strip_prefix(['S', 'L']))?;
    let begins_with_id = number.starts_with(|c: char| c.is_ascii_digit());

    let ids = list.strip_suffix('.').unwrap_or(list).split(", ");
    (["//", "///", "//!"].contains(&slashes) && begins_with_id)
        .then(|| ids.map(str::to_owned).collect())
}

/// The function or type that a line defines, or the fault that it names.
fn name_of(line: &str) -> Option<&str> {
    let start = ["fn ", "struct ", "name: \""]
        .iter()
        .find_map(|start| Some(line.split_once(start)?.1))?;

    start
        .split(|c: char| !c.is_alphanumeric() && !"_-".contains(c))
        .next()
}

fn seeded_bugs(root: &Path) -> Result<Vec<Evidence>> {
    let bugs = Mutant::all(root)?.into_iter().map(|bug| Evidence {
        place: format!("lab/mutants/{}.patch", bug.name),
        ids: bug.guarantees,
    });

    Ok(bugs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_names_the_test_below_it() {
        let text = "//! Tests.\n//!\n//! Shows S3.\n\n/// It works.\n///\n/// Shows G-01, L2.\n\
                    #[test]\nfn it_works() {}\n\n    // Shows G-02.\n    name: \"half-open\",\n\
                    /// Shows 3 ways.\nfn other() {}\n/// Shows G-01 and L2.\nfn third() {}\n";

        let found: Vec<String> = read("a.rs", text)
            .iter()
            .map(|one| format!("{} {}", one.place, one.ids.join("+")))
            .collect();
        assert_eq!(
            found,
            [
                "a.rs S3",
                "a.rs: it_works G-01+L2",
                "a.rs: half-open G-02",
                "a.rs: third G-01 and L2",
            ]
        );
    }
}
