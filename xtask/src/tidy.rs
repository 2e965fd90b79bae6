//! The rules on code that rustc and clippy do not have.
//!
//! | rule | what it rejects |
//! |---|---|
//! | circles | files that name each other in a circle, by what they import |
//! | features | `cfg(feature)` outside the files that are named for it |
//! | types | a type name that a crate defines twice |
//! | scripts | a Lua script whose header does not state keys, arguments, replies |
//! | links | a link of a Markdown file, or a page or an id in a comment, that does not exist |
//! | bugs | a row of `found.tsv` whose test does not exist |
//!
//! `xtask/tidy.toml` has the natural circles, the files, and the names that may occur twice.

mod imports;
mod links;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::found;
use crate::repository::{self, extension};
use links::Targets;

/// Where the crates are whose files name each other in no circle.
const WITHOUT_CIRCLES: [&str; 2] = ["crates/", "lab/simulation"];

/// What the header of a script states; one word of each is enough.
const HEADER: [(&str, &[&str]); 3] = [
    ("keys", &["key"]),
    ("arguments", &["argv", "argument"]),
    ("replies", &["reply", "replies"]),
];

/// The endings of the files that are read.
const READ: [&str; 5] = ["rs", "lua", "patch", "toml", "md"];

/// The content of `tidy.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// Files with `cfg(feature)`.
    features: Vec<String>,
    /// Types as `CRATE/NAME`.
    same_names: Vec<String>,
    circles: Vec<Circle>,
}

/// Files that name each other, each by the crate's folder and the path of its module.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Circle {
    files: BTreeSet<String>,
    /// Why they do.
    #[serde(rename = "reason")]
    _reason: String,
}

/// The files of each crate by their paths, without tests, benchmarks and binaries.
type Crates = BTreeMap<String, BTreeMap<String, String>>;

/// Fails if the code breaks a rule.
pub(crate) fn check() -> Result<()> {
    let root = repository::root();
    let text = fs::read_to_string(root.join("xtask/tidy.toml"))?;
    let rules: Rules = toml::from_str(&text).context("xtask/tidy.toml is not valid")?;

    let violations = rules.violations(&root)?;
    ensure!(
        violations.is_empty(),
        "step `tidy` failed; to repeat it:\n  cargo xtask tidy\n{}",
        violations.join("\n")
    );
    Ok(())
}

impl Rules {
    fn violations(&self, root: &Path) -> Result<Vec<String>> {
        let texts = texts(root)?;
        let mut violations = check_links(root, &texts)?;
        let sources = texts.iter().filter(|(path, _)| extension(path) == "rs");
        violations.extend(found::violations(root, sources)?);

        let mut crates = Crates::new();
        for (path, text) in &texts {
            match extension(path) {
                "lua" => violations.extend(check_header(path, text)),
                "rs" if is_of_a_crate(path) => {
                    let (folder, _) = path.split_once("/src/").context("it is in src")?;
                    let files = crates.entry(folder.to_owned()).or_default();
                    files.insert(path.clone(), text.clone());
                }
                _ => {}
            }
        }

        let mut circles = Vec::new();
        for (folder, files) in &crates {
            violations.extend(self.check_types(folder, files));
            if WITHOUT_CIRCLES
                .iter()
                .any(|start| folder.starts_with(start))
            {
                violations.extend(self.check_features(files));
                circles.extend(imports::circles(folder, files)?);
            }
        }
        violations.extend(self.check_circles(&circles));
        Ok(violations)
    }

    /// Compares the circles with those that have a reason.
    fn check_circles(&self, found: &[BTreeSet<String>]) -> Vec<String> {
        let new = found
            .iter()
            .filter(|circle| {
                !self
                    .circles
                    .iter()
                    .any(|known| circle.is_subset(&known.files))
            })
            .map(|circle| format!("files that name each other in a circle: {circle:?}"));
        let open = self
            .circles
            .iter()
            .filter(|known| !found.iter().any(|circle| circle.is_subset(&known.files)))
            .map(|known| format!("tidy.toml has a circle that is open: {:?}", known.files));

        new.chain(open).collect()
    }

    fn check_features(&self, files: &BTreeMap<String, String>) -> Vec<String> {
        let is_condition = |line: &str| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains("feature = ") && code.contains("cfg")
        };
        let others = files
            .iter()
            .filter(|(path, _)| !self.features.contains(path));

        others
            .flat_map(|(path, text)| lines_with(path, text, is_condition))
            .map(|(place, _)| format!("{place}: cfg(feature) belongs elsewhere"))
            .collect()
    }

    fn check_types(&self, folder: &str, files: &BTreeMap<String, String>) -> Vec<String> {
        let folder = folder.rsplit('/').next().unwrap_or_default();
        let mut defined_in = BTreeMap::new();
        let mut violations = Vec::new();

        for (path, text) in files {
            let items = imports::without_tests(text);
            for (place, line) in lines_with(path, items, |line| type_name(line).is_some()) {
                let name = type_name(line).unwrap_or_default();
                let is_known = self.same_names.contains(&format!("{folder}/{name}"));
                if let (Some(other), false) = (defined_in.insert(name, place.clone()), is_known) {
                    violations.push(format!("{place}: type `{name}` is also defined in {other}"));
                }
            }
        }
        violations
    }
}

/// The files with code, comments or links, by their paths.
fn texts(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();

    for file in repository::files(root)? {
        let path = file.to_string_lossy().into_owned();
        if READ.contains(&extension(&path)) {
            let text = fs::read_to_string(root.join(&file)).with_context(|| path.clone())?;
            texts.insert(path, text);
        }
    }
    Ok(texts)
}

fn check_links(root: &Path, texts: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let (pages, others): (BTreeMap<_, _>, BTreeMap<_, _>) = texts
        .iter()
        .map(|(path, text)| (path.clone(), text.clone()))
        .partition(|(path, _)| extension(path) == "md");
    let rows = fs::read_to_string(root.join(found::ROWS)).context(found::ROWS)?;
    let targets = Targets::new(root, &pages, &found::ids(&rows));

    let of_pages = pages
        .iter()
        .flat_map(|(path, text)| targets.check_page(path, text));
    let of_comments = others
        .iter()
        .flat_map(|(path, text)| targets.check_comments(path, text));
    Ok(of_pages.chain(of_comments).collect())
}

/// The lines of a file for which `is_wanted` holds, each with its place.
fn lines_with<'a>(
    path: &'a str,
    text: &'a str,
    is_wanted: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (String, &'a str)> {
    let numbered = text.lines().zip(1..);

    numbered
        .filter(move |(line, _)| is_wanted(line))
        .map(move |(line, number)| (format!("{path}:{number}"), line))
}

/// The name of the type that a line defines, outside of functions.
fn type_name(line: &str) -> Option<&str> {
    let start = line
        .find("struct ")
        .or(line.find("enum "))
        .or(line.find("trait "))?;
    let is_item = ["", "pub ", "pub(crate) ", "pub(super) "].contains(&&line[..start]);
    let name = line[start..].split(' ').nth(1)?;

    is_item.then(|| name.split(|c: char| !c.is_alphanumeric()).next())?
}

/// Whether a file belongs to a crate, and not to its tests, benchmarks or binaries.
fn is_of_a_crate(path: &str) -> bool {
    path.contains("/src/") && !path.contains("/tests") && !path.contains("/bin/")
}

/// A script begins with a comment that states keys, arguments and replies; those that do not apply
/// are stated as none.
fn check_header(path: &str, text: &str) -> Vec<String> {
    let header = text
        .lines()
        .take_while(|line| line.starts_with("--"))
        .map(str::to_lowercase)
        .collect::<Vec<_>>()
        .join("\n");

    HEADER
        .iter()
        .filter(|(_, words)| !words.iter().any(|word| header.contains(word)))
        .map(|(part, _)| format!("{path}:1: the header does not state {part}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "
        features = ['x/a/src/named.rs']
        same_names = ['a/Both']
        [[circles]]
        files = ['a/b', 'a/c']
        reason = 'they are a pair'";

    fn rules() -> Rules {
        toml::from_str(RULES).expect("the sample is valid")
    }

    fn file(path: &str, text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(path.to_owned(), text.to_owned())])
    }

    #[test]
    fn circle_without_reason_and_reason_without_circle_are_rejected() {
        let circle = |files: [&str; 2]| files.map(str::to_owned).into();

        assert!(rules().check_circles(&[circle(["a/b", "a/c"])]).is_empty());
        let found = rules().check_circles(&[circle(["a/c", "a/d"])]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn feature_outside_named_files_is_rejected() {
        let text = "// cfg(feature = \"a\")\n#[cfg(all(unix, feature = \"a\"))]\nfn a() {}\n\
                    fn b() -> bool {\n    cfg!(feature = \"b\")\n}\n";

        let found = rules().check_features(&file("x/a/src/b.rs", text));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("x/a/src/b.rs:2:"), "{found:?}");
        assert!(
            rules()
                .check_features(&file("x/a/src/named.rs", text))
                .is_empty()
        );
    }

    #[test]
    fn type_name_that_a_crate_defines_twice_is_rejected() {
        let check = |text: &str| {
            let mut files = file("x/a/src/b.rs", "struct Name;\nenum Both {}\n");
            files.extend(file("x/a/src/c.rs", text));
            rules().check_types("x/a", &files).len()
        };

        assert_eq!(check("\npub(crate) enum Name<T> {}"), 1);
        for text in [
            "struct Both;",
            "#[cfg(test)]\nmod tests {\nstruct Name;\n}",
            "impl A for B {\n    type Name = u8;\n}",
        ] {
            assert_eq!(check(text), 0, "{text}");
        }
    }

    #[test]
    fn script_whose_header_is_incomplete_is_rejected() {
        let check = |text| check_header("a.lua", text);

        assert!(check("-- Keys: none\n-- ARGV[1]: x\n-- Replies: 1\nreturn 1\n").is_empty());
        assert_eq!(
            check("-- KEYS[1]: x\n-- Arguments: none\nreturn 1\n-- Reply: 1\n"),
            ["a.lua:1: the header does not state replies"]
        );
        assert_eq!(check("local keys, arguments, reply\n").len(), 3);
    }
}
