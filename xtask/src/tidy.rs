//! The rules on code and prose that rustc and clippy do not have.
//!
//! | rule | what it rejects |
//! |---|---|
//! | circles | files of a crate that name each other in a circle, by what they import |
//! | links | a link of a Markdown file, or a page in a comment, that leads nowhere |
//! | ids | the id of a decision or a bug that does not exist |
//! | bugs | a row of `found.tsv` whose test does not exist |
//!
//! `CIRCLES` are those that remain.

mod imports;
mod links;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::found;
use crate::repository::{self, extension};

/// The endings of the files with code or prose.
const READ: [&str; 6] = ["rs", "lua", "sql", "patch", "toml", "md"];

/// Files that name each other, or folders with such files. A smaller circle of them is known too.
const CIRCLES: [&[&str]; 8] = [
    // Natural: the clock asks the world for the time, which the world returns as an instant of the
    // clock.
    &[
        "leasehold-core/runtime/clock",
        "leasehold-core/runtime/simulation",
    ],
    &["lab/backends", "lab/fault_run", "lab/faults", "lab/matrix"],
    &["lab/check", "lab/worker", "lab/worker_config"],
    &["lab/conditions"],
    &["redis-model"],
    &["servers/child", "servers/clock"],
    &["servers/wire"],
    &["xtask/repository", "xtask/step"],
];

/// Fails if a file breaks a rule.
pub(crate) fn check() -> Result<()> {
    let root = repository::root();
    let texts = texts(&root)?;
    let rows = fs::read_to_string(root.join(found::ROWS)).context(found::ROWS)?;

    let mut violations = found::violations(&texts, &rows);
    violations.extend(links::violations(&root, &texts, &rows));

    let mut circles = Vec::new();
    for (folder, files) in crates(&texts) {
        circles.extend(imports::circles(folder, &files)?);
    }
    violations.extend(check_circles(&circles, &CIRCLES));

    let list = violations.join("\n");
    ensure!(
        violations.is_empty(),
        "step `tidy` failed; to repeat it:\n  cargo xtask tidy\n{list}"
    );
    Ok(())
}

/// The files with code or prose by their paths.
fn texts(root: &Path) -> Result<BTreeMap<String, String>> {
    let paths = repository::files(root)?.into_iter();
    let paths = paths.map(|file| file.to_string_lossy().into_owned());

    paths
        .filter(|path| READ.contains(&extension(path)))
        .map(|path| Ok((path.clone(), fs::read_to_string(root.join(path))?)))
        .collect()
}

/// The files of each crate without tests and binaries, by the folder of the crate.
fn crates(texts: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeMap<&str, &str>> {
    let mut crates = BTreeMap::<&str, BTreeMap<&str, &str>>::new();
    for (path, text) in texts {
        if let ("rs", Some((folder, file))) = (extension(path), path.split_once("/src/"))
            && !file.contains("tests")
            && !file.starts_with("bin/")
        {
            crates.entry(folder).or_default().insert(file, text);
        }
    }
    crates
}

/// Compares the circles with those that are known.
fn check_circles(found: &[BTreeSet<String>], known: &[&[&str]]) -> Vec<String> {
    let fits = |circle: &BTreeSet<String>, known: &[&str]| {
        let is_known = |file: &String| {
            let mut known = known.iter().filter_map(|known| file.strip_prefix(known));
            known.any(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        circle.iter().all(is_known)
    };
    let new = found
        .iter()
        .filter(|circle| !known.iter().any(|known| fits(circle, known)))
        .map(|circle| format!("files that name each other in a circle: {circle:?}"));
    let open = known
        .iter()
        .filter(|known| !found.iter().any(|circle| fits(circle, known)))
        .map(|known| format!("there is no longer a circle of {known:?}"));

    new.chain(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_circle_and_known_one_that_is_open_are_rejected() {
        let check = |files: [&str; 2]| {
            check_circles(&[files.map(str::to_owned).into()], &[&["a/b", "a/c"]])
        };

        assert!(check(["a/b", "a/c"]).is_empty());
        assert!(check(["a/b/d", "a/c"]).is_empty());
        assert_eq!(check(["a/bd", "a/c"]).len(), 2);
        let found = check(["a/c", "a/d"]);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
