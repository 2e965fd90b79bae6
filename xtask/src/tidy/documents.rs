//! The rule that a path in a document exists.

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::{Rule, Source, Violation, is_below};
use crate::repository::extension;

/// Endings of files that documents name.
const ENDINGS: [&str; 15] = [
    "rs", "lua", "sql", "md", "toml", "svg", "patch", "py", "js", "go", "java", "c", "cnf",
    "trycmd", "lock",
];
/// The folders at the top. A path that begins with one is complete.
const TOP_FOLDERS: [&str; 5] = ["crates/", "lab/", "docs/", "xtask/", ".ci/"];

/// Checks link targets relative to the document, and paths in code spans relative to any folder.
/// Fenced code, addresses and placeholders in capitals are left out.
pub(super) fn check(source: &Source, paths: &[String]) -> Vec<Violation> {
    if extension(&source.path) != "md" {
        return Vec::new();
    }

    let folder = Path::new(&source.path).parent().unwrap_or(Path::new(""));
    let mut is_fenced = false;
    let mut violations = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        is_fenced ^= line.trim().starts_with("```");
        if is_fenced {
            continue;
        }

        let missing_links = links(line).filter(|link| !exists(&resolve(folder, link), paths));
        let missing_spans = spans(line).filter(|span| !is_suffix(span, paths));
        let missing = missing_links.chain(missing_spans);
        violations.extend(missing.map(|path| {
            source.violation(Rule::Documents, at + 1, format!("{path} does not exist"))
        }));
    }
    violations
}

/// The targets of links in this repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = LINK
        .captures_iter(line)
        .map(|found| found.get(1).map_or("", |it| it.as_str()));
    let files = targets.filter(|target| !target.contains(':') && !target.starts_with('#'));

    files.map(|target| target.split('#').next().unwrap_or(target))
}

/// The words of code spans that are paths.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    let spans = SPAN
        .captures_iter(line)
        .map(|found| found.get(1).map_or("", |it| it.as_str()));

    spans
        .flat_map(str::split_whitespace)
        .filter(|word| is_path(word))
}

fn is_path(word: &str) -> bool {
    let has_path_characters = PATH.is_match(word);
    let is_file = ENDINGS.contains(&extension(word));
    let is_complete = TOP_FOLDERS.iter().any(|folder| word.starts_with(folder));
    let is_placeholder = word
        .split(['/', '.'])
        .any(|part| PLACEHOLDER.is_match(part))
        && extension(word) != "md";
    let is_elsewhere = word.starts_with('/') || word.starts_with("target/") || word.contains("..");

    has_path_characters && (is_file || is_complete) && !is_placeholder && !is_elsewhere
}

/// A path without `.` and `..`.
fn resolve(folder: &Path, link: &str) -> String {
    let mut resolved = PathBuf::new();

    for component in folder.join(link).components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    resolved.to_string_lossy().into_owned()
}

/// Whether a file or a folder has this path.
fn exists(path: &str, paths: &[String]) -> bool {
    paths.iter().any(|present| is_below(present, path))
}

/// Whether the path of a file or a folder ends so.
fn is_suffix(path: &str, paths: &[String]) -> bool {
    let path = path.trim_end_matches('/');
    if TOP_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return exists(path, paths);
    }

    let inner = format!("/{path}/");
    let last = format!("/{path}");
    paths.iter().any(|present| {
        is_below(present, path) || present.ends_with(&last) || present.contains(&inner)
    })
}

static LINK: LazyLock<Regex> = LazyLock::new(|| regex(r"\]\(([^)\s]+)\)"));
static SPAN: LazyLock<Regex> = LazyLock::new(|| regex("`([^`]+)`"));
static PATH: LazyLock<Regex> = LazyLock::new(|| regex(r"^[\w./-]+$"));
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| regex("^[A-Z]+$"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    fn missing(path: &str, text: &str) -> Vec<String> {
        let paths = ["README.md", "docs/guide.md", "crates/a/src/stores/file.rs"];
        let violations = check(&source(path, text), &paths.map(str::to_owned));
        violations
            .into_iter()
            .map(|violation| violation.message)
            .collect()
    }

    #[test]
    fn link_to_an_absent_file_is_a_violation_and_to_a_present_one_is_not() {
        assert!(missing("docs/guide.md", "[a](../README.md#top) [b](../crates/a)").is_empty());
        assert_eq!(
            missing("docs/guide.md", "[a](README.md)"),
            ["docs/README.md does not exist"].map(|_| "README.md does not exist")
        );
        assert!(missing("README.md", "[a](https://b/c.md) [d](#e)").is_empty());
    }

    #[test]
    fn path_in_a_code_span_exists_below_any_folder() {
        assert!(missing("a.md", "`stores/file.rs`, `file.rs`, `crates/a/src`").is_empty());
        assert!(missing("a.md", "`stores/file`, `crates/a/src/stores/file.rs`").is_empty());
        assert_eq!(
            missing("a.md", "see `stores/redis.rs`"),
            ["stores/redis.rs does not exist"]
        );
        assert_eq!(missing("a.md", "`le.rs`"), ["le.rs does not exist"]);
        assert_eq!(
            missing("a.md", "`src/stores` `lab/src`"),
            ["lab/src does not exist"]
        );
    }

    #[test]
    fn placeholders_fences_and_paths_elsewhere_are_left_out() {
        assert!(
            missing(
                "a.md",
                "`crates/a/src/stores/NAME.rs` `target/a.md` `/etc/a.c`"
            )
            .is_empty()
        );
        assert!(missing("a.md", "```\n`lab/absent.rs`\n```").is_empty());
        assert_eq!(missing("a.md", "`GUIDE.md`"), ["GUIDE.md does not exist"]);
    }
}
