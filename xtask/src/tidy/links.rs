//! Links of Markdown files, and the pages, decisions and bugs that comments name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::repository::extension;

/// What files can name.
pub(super) struct Targets<'a> {
    root: &'a Path,
    /// The anchors of each Markdown file.
    pages: BTreeMap<String, BTreeSet<String>>,
    /// Ids of bugs, such as `F-123`, and of decisions, such as `D-12`.
    ids: BTreeSet<String>,
}

impl<'a> Targets<'a> {
    /// `pages` are the Markdown files by their paths.
    pub(super) fn new(
        root: &'a Path,
        pages: &BTreeMap<String, String>,
        bugs: &BTreeSet<&str>,
    ) -> Self {
        let decisions = pages
            .get("docs/decisions.md")
            .into_iter()
            .flat_map(|page| headings(page))
            .filter_map(|line| Some(line.split_once(' ')?.0))
            .filter(|id| id.starts_with("D-"));
        let ids = bugs.iter().copied().chain(decisions);

        Self {
            root,
            ids: ids.map(str::to_owned).collect(),
            pages: pages
                .iter()
                .map(|(path, text)| (path.clone(), anchors(text)))
                .collect(),
        }
    }

    /// The links of a page that lead nowhere.
    pub(super) fn check_page(&self, path: &str, text: &str) -> Vec<String> {
        let prose = without_code(text);
        let broken = prose
            .iter()
            .flat_map(|(at, line)| link_targets(line).map(move |target| (at, target)))
            .filter(|(_, target)| !target.contains(':') && !self.has_link(path, target))
            .map(|(at, target)| format!("{path}:{at}: the link {target} leads nowhere"));

        let unknown = prose
            .iter()
            .flat_map(|(at, line)| self.unknown_ids(line).map(move |id| (at, id)))
            .map(|(at, id)| format!("{path}:{at}: there is no {id}"));
        broken.chain(unknown).collect()
    }

    /// The pages and ids that the comments of a file name and that do not exist.
    pub(super) fn check_comments(&self, path: &str, text: &str) -> Vec<String> {
        let numbered = comments(path, text);

        numbered
            .flat_map(|(at, line)| {
                let pages = line
                    .split(|c: char| !c.is_alphanumeric() && !"_-./#:".contains(c))
                    .map(|word| word.trim_end_matches(['.', ':', '#']))
                    .filter(|word| extension(word.split('#').next().unwrap_or(word)) == "md")
                    .filter(|word| !word.contains("://") && !self.has_mention(path, word));
                let missing = pages.chain(self.unknown_ids(line));

                missing
                    .map(|what| format!("{path}:{at}: there is no {what}"))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// A comment names a page by its path in the repository or beside the file, or by its name.
    fn has_mention(&self, from: &str, page: &str) -> bool {
        let (file, _) = page.split_once('#').unwrap_or((page, ""));
        let by_name = self
            .pages
            .keys()
            .find(|path| path.rsplit('/').next() == Some(file));

        self.has_link(from, page)
            || self.has_link("", page)
            || by_name.is_some_and(|path| self.has_link("", &page.replacen(file, path, 1)))
    }

    /// Whether a file exists beside another one, with the anchor behind `#`.
    fn has_link(&self, from: &str, target: &str) -> bool {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = match file {
            "" => from.to_owned(),
            file => resolve(from, file),
        };
        let has_anchor = |page: &BTreeSet<String>| anchor.is_empty() || page.contains(anchor);

        match self.pages.get(&path) {
            Some(page) => has_anchor(page),
            None => anchor.is_empty() && self.root.join(path).exists(),
        }
    }

    /// The ids in a line that no bug and no decision has.
    fn unknown_ids<'t>(&self, line: &'t str) -> impl Iterator<Item = &'t str> {
        let words = line.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c));

        words.filter(|word| is_id(word) && !self.ids.contains(*word))
    }
}

/// Where the links of a line lead.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1);

    links.map(|rest| rest.split([')', ' ']).next().unwrap_or(rest))
}

fn is_id(word: &str) -> bool {
    let digits = word.strip_prefix("F-").or(word.strip_prefix("D-"));

    digits.is_some_and(|digits| digits.len() >= 2 && digits.chars().all(|c| c.is_ascii_digit()))
}

/// The path of a file that another one names, relative to the root.
fn resolve(from: &str, file: &str) -> String {
    let mut path = PathBuf::from(from);
    path.pop();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }

    path.to_string_lossy().into_owned()
}

/// The comments of a file; of a patch, its head.
fn comments<'t>(path: &str, text: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    let starts: &[&str] = match extension(path) {
        "rs" => &["//"],
        "lua" => &["--"],
        "toml" => &["#"],
        _ => &[""],
    };
    let is_patch = extension(path) == "patch";
    let lines = text
        .lines()
        .take_while(move |line| !is_patch || !line.starts_with("--- "));

    lines.enumerate().filter_map(|(at, line)| {
        let start = starts.iter().filter_map(|start| line.find(start)).min()?;
        let (code, comment) = line.split_at(start);
        let is_text = code.matches('"').count() % 2 == 1;

        (!is_text).then_some((at + 1, comment))
    })
}

/// The lines outside of code blocks, without the code in them.
fn without_code(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut lines = Vec::new();

    for (line, at) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((at, line.split('`').step_by(2).collect::<Vec<_>>().join("`")));
        }
    }
    lines
}

/// The texts of the headings.
fn headings(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;

    text.lines().filter_map(move |line| {
        is_code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#').strip_prefix(' ')?;
        (!is_code && line.starts_with('#')).then_some(heading.trim())
    })
}

/// The anchors that GitHub makes of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in headings(text) {
        let anchor = anchor(heading);
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone())
            .chain(repeated)
            .find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let shown = heading.split("](").enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once(')').map_or("", |(_, rest)| rest),
    });

    shown
        .collect::<String>()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n## `code` and a [link](b.md), twice\n## A page\n\n\
                        ```text\n# no heading\n```\n";

    fn targets(check: impl Fn(&Targets<'_>)) {
        let pages = BTreeMap::from([
            ("docs/a.md".to_owned(), PAGE.to_owned()),
            (
                "docs/decisions.md".to_owned(),
                "## D-01 One rule\n".to_owned(),
            ),
        ]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));

        check(&Targets::new(root, &pages, &BTreeSet::from(["F-001"])));
    }

    #[test]
    fn link_to_missing_file_or_anchor_is_rejected() {
        targets(|targets| {
            let check = |line: &str| targets.check_page("docs/b.md", line).len();

            for link in [
                "[x](a.md)",
                "[x](../docs/a.md#a-page)",
                "[x](a.md#code-and-a-link-twice)",
                "[x](a.md#a-page-1)",
                "[x](../Cargo.toml)",
                "[x](https://example.org/#x)",
                "`[x](c.md)`",
                "```\n[x](c.md)\n```",
            ] {
                assert_eq!(check(link), 0, "{link}");
            }
            for link in [
                "[x](c.md)",
                "[x](a.md#no-heading)",
                "[x](a.md#a-page-2)",
                "[x](#a-page)",
                "[x](../Cargo.toml#x)",
            ] {
                assert_eq!(check(link), 1, "{link}");
            }
        });
    }

    #[test]
    fn comment_that_names_a_missing_page_or_id_is_rejected() {
        targets(|targets| {
            let check = |path: &str, line: &str| targets.check_comments(path, line).len();

            assert_eq!(
                check("src/a.rs", "let x = 1; // docs/a.md, D-01 and F-001."),
                0
            );
            assert_eq!(check("src/a.rs", "//! See a.md, (../docs/a.md#a-page)."), 0);
            assert_eq!(check("src/a.rs", "let x = \"docs/c.md\";"), 0);
            assert_eq!(check("a.patch", "bug: F-001\n--- a\n+// F-002"), 0);

            assert_eq!(check("src/a.rs", "// docs/c.md, a.md#x, D-02, F-002"), 4);
            assert_eq!(check("a.lua", "-- docs/c.md"), 1);
            assert_eq!(check("a.toml", "x = 1 # D-02"), 1);
            assert_eq!(check("a.patch", "bug: F-002\n--- a"), 1);
        });
    }
}
