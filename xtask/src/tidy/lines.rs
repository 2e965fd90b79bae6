//! Rules on the lines of a file: their width, and the header of a script.

use std::sync::LazyLock;

use regex::Regex;

use super::{Rule, Source, Violation};
use crate::repository::extension;

/// The widest line.
const COLUMNS: usize = 100;

/// What the header of a script states, and how it is recognised.
static HEADER: LazyLock<[(&str, Regex); 3]> = LazyLock::new(|| {
    let regex = |pattern: &str| Regex::new(pattern).expect("the pattern is valid");

    [
        ("keys", regex(r"(?i)\bkeys?\b")),
        ("arguments", regex(r"(?i)\b(argv|arguments?)\b")),
        ("replies", regex(r"(?i)\b(reply|replies)\b")),
    ]
});

pub(super) fn check_columns(source: &Source) -> Vec<Violation> {
    if extension(&source.path) == "md" {
        return Vec::new();
    }

    let lines = source.text.lines().enumerate();
    let widths = lines.map(|(at, line)| (at + 1, line.chars().count()));
    widths
        .filter(|(_, width)| *width > COLUMNS)
        .map(|(line, width)| {
            source.violation(
                Rule::Columns,
                line,
                format!("{width} columns, not {COLUMNS}"),
            )
        })
        .collect()
}

/// A script begins with a comment that states keys, arguments and replies; those that do not apply
/// are stated as none.
pub(super) fn check_script_header(source: &Source) -> Vec<Violation> {
    if extension(&source.path) != "lua" {
        return Vec::new();
    }

    let header: Vec<&str> = source
        .text
        .lines()
        .take_while(|line| line.starts_with("--"))
        .collect();
    let header = header.join("\n");
    HEADER
        .iter()
        .filter(|(_, regex)| !regex.is_match(&header))
        .map(|(part, _)| {
            source.violation(
                Rule::Scripts,
                1,
                format!("the header does not state {part}"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn line_of_101_columns_is_a_violation_and_of_100_is_not() {
        let text = format!("{}\n{}\n", "é".repeat(100), "é".repeat(101));

        for path in ["a.rs", "a.lua", "a.sql"] {
            let violations = check_columns(&source(path, &text));
            assert_eq!(
                violations
                    .iter()
                    .map(|found| found.line)
                    .collect::<Vec<_>>(),
                [2]
            );
        }
        assert!(check_columns(&source("a.md", &text)).is_empty());
    }

    #[test]
    fn script_header_states_keys_arguments_and_replies() {
        let check = |text: &str| {
            let violations = check_script_header(&source("a.lua", text));
            violations
                .into_iter()
                .map(|found| found.message)
                .collect::<Vec<_>>()
        };

        assert!(check("-- Keys: none\n-- ARGV[1]: x\n-- Replies: 1\nreturn 1\n").is_empty());
        assert_eq!(
            check("-- KEYS[1]: x\n-- Arguments: none\nreturn 1\n-- Reply: 1\n"),
            ["the header does not state replies"]
        );
        assert_eq!(check("local keys, arguments, reply\n").len(), 3);
    }

    #[test]
    fn only_scripts_need_a_header() {
        assert!(check_script_header(&source("a.sql", "SELECT 1\n")).is_empty());
    }
}
