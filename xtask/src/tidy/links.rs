//! Links of Markdown files, and the pages, decisions and bugs that texts name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::found;
use crate::repository::extension;

/// Where a page may be that a comment names without its folder.
const FOLDERS: [&str; 6] = [
    "",
    "docs",
    "docs/stores",
    "docs/protocols",
    "lab",
    "lab/mutants",
];

/// The links and ids that lead nowhere; `rows` are those of the bugs.
pub(super) fn violations(root: &Path, texts: &BTreeMap<String, String>, rows: &str) -> Vec<String> {
    let decisions = texts.get("docs/decisions.md").map_or("", String::as_str);
    let decisions = headings(decisions).filter_map(|heading| heading.split(' ').next());
    let ids: BTreeSet<&str> = decisions.chain(found::ids(rows)).collect();
    let mut violations = Vec::new();

    // The tests of this task name what does not exist.
    for (path, text) in texts.iter().filter(|(path, _)| !path.starts_with("xtask/")) {
        let file = root.join(path);
        let is_page = extension(path) == "md";
        let searched = if is_page { prose(text) } else { code(text) };
        for (at, line) in searched {
            let links = line.split("](").skip(1).filter(|_| is_page);
            let links = links.filter_map(|rest| rest.split([')', ' ']).next());
            let broken = links.filter(|link| !link.contains(':') && !leads(&file, link));
            let unknown = words(&line).filter(|word| is_id(word) && !ids.contains(word));
            let missing =
                words(&line).filter(|word| !is_page && is_missing_page(root, &file, word));

            let found = broken.chain(unknown).chain(missing);
            violations.extend(found.map(|what| format!("{path}:{at}: there is no {what}")));
        }
    }
    violations
}

/// Whether there is a file beside another one, with the heading behind `#`.
fn leads(from: &Path, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let path = match file {
        "" => from.to_owned(),
        file => from.with_file_name(file),
    };
    let has_heading = |page: String| headings(&page).any(|one| anchor(one) == heading);

    path.exists() && (heading.is_empty() || fs::read_to_string(path).is_ok_and(has_heading))
}

/// Whether a word names a page that is neither beside the file nor in one of the usual folders.
fn is_missing_page(root: &Path, file: &Path, word: &str) -> bool {
    let name = word.split('#').next().unwrap_or_default();
    let folders = FOLDERS.map(|folder| root.join(folder).join("file"));

    name.len() > 3
        && extension(name) == "md"
        && !leads(file, word)
        && !folders.iter().any(|folder| leads(folder, word))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_alphanumeric() && !"_-./#".contains(c));

    words.map(|word| word.trim_end_matches(['.', '#']))
}

fn is_id(word: &str) -> bool {
    let digits = word.strip_prefix("F-").or(word.strip_prefix("D-"));

    digits.is_some_and(|digits| digits.len() >= 2 && digits.chars().all(|c| c.is_ascii_digit()))
}

/// The lines of a file without its texts.
fn code(text: &str) -> Vec<(usize, String)> {
    let lines = (1..).zip(text.lines());

    lines.map(|(at, line)| (at, outside(line, '"'))).collect()
}

/// The lines outside of code blocks, without the code in them.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });

    lines.map(|(at, line)| (at, outside(line, '`'))).collect()
}

fn outside(line: &str, quote: char) -> String {
    line.split(quote).step_by(2).collect::<Vec<_>>().join(" ")
}

/// The texts of the headings.
fn headings(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| line.starts_with('#'));

    lines.filter_map(|line| Some(line.trim_start_matches('#').strip_prefix(' ')?.trim()))
}

/// The anchor that GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let shown = heading.split("](").enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once(')').map_or("", |(_, rest)| rest),
    });
    let shown = shown.collect::<String>().to_lowercase().replace(' ', "-");

    shown.replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_nowhere_is_rejected() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let check = |path: &str, text: &str| {
            let page = "## D-01 One rule\n".to_owned();
            let decisions = ("docs/decisions.md".to_owned(), page);
            let texts = BTreeMap::from([decisions, (path.to_owned(), text.to_owned())]);
            violations(&root, &texts, "F-001\ta\tnone\n").len()
        };

        for (path, text) in [
            (
                "docs/b.md",
                "[x](stores) [x](../README.md#install) [x](https://a.b/#x)",
            ),
            ("docs/b.md", "`[x](c.md)`, D-01\n```\n[x](c.md)\n```"),
            ("crates/a.rs", "// docs/install.md, D-01 and F-001."),
            ("crates/a.rs", "//! See ../README.md#install, (install.md)."),
            ("crates/a.rs", "let page = \"docs/c.md\";"),
        ] {
            assert_eq!(check(path, text), 0, "{text}");
        }
        for (path, text) in [
            ("docs/b.md", "[x](c.md)"),
            ("docs/b.md", "[x](../README.md#no-heading)"),
            ("docs/b.md", "F-002"),
            ("crates/a.rs", "// docs/c.md"),
            ("crates/a.rs", "// README.md#no-heading"),
            ("a.patch", "bug: D-02"),
            ("a.sql", "-- F-002"),
        ] {
            assert_eq!(check(path, text), 1, "{text}");
        }
    }
}
