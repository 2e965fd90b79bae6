//! Finds the prose of a file and its line numbers: comments, strings, documents, test names.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::Source;
use crate::repository::extension;

/// A sentence or paragraph, with its lines joined by spaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Passage {
    pub(super) text: String,
    /// The offset in the text and the line number in the file of each line.
    lines: Vec<(usize, usize)>,
}

impl Passage {
    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
    }

    /// The line of the file that an offset belongs to.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        let after = self.lines.partition_point(|(start, _)| *start <= offset);

        self.lines[after.saturating_sub(1)].1
    }
}

/// All passages of a file.
pub(super) fn passages_of(source: &Source) -> Vec<Passage> {
    let text = &source.text;

    match extension(&source.path) {
        "md" => {
            let lines = text.lines().enumerate();
            paragraphs(lines.map(|(at, line)| (at + 1, line.to_owned())))
        }
        "rs" => [read(text, &RUST), test_names(text)].concat(),
        _ => read(text, &SCRIPT),
    }
}

/// Comments, strings and characters of Rust. None begins inside another.
static RUST: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?s)//[^\n]*|/\*.*?\*/",
        r####"|r"[^"]*"|r#".*?"#|r##".*?"##|"(?:\\.|[^"\\])*""####,
        r"|'(?:\\.[^']*|[^'\\\n])'",
    ))
});

/// Comments and strings of Lua and SQL.
static SCRIPT: LazyLock<Regex> = LazyLock::new(|| regex(r#"--[^\n]*|'[^'\n]*'|"[^"\n]*""#));

/// A function with the attribute `test` or `PATH::test`.
static TEST: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"#\[(?:\w+::)*test\b[^\n]*\]\s+(?:(?:#\[|//)[^\n]*\s+)*(?:pub )?(?:async )?fn (\w+)")
});

/// Escapes that separate words, and the end of an escaped line.
static ESCAPE: LazyLock<Regex> = LazyLock::new(|| regex(r"\\[ntr0]|\\$"));

/// The start of a heading, an item of a list or a row of a table.
static STARTS: LazyLock<Regex> = LazyLock::new(|| regex(r"^(#+ |[-*] |\d+\. |\|)"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

/// A Rust file with spaces in place of its comments and strings.
pub(super) fn code_of(text: &str) -> String {
    let blank = |found: &Captures<'_>| {
        let characters = found[0].chars();
        characters
            .map(|character| if character == '\n' { '\n' } else { ' ' })
            .collect::<String>()
    };

    RUST.replace_all(text, blank).into_owned()
}

/// The comments and strings of a file of code.
fn read(text: &str, lexer: &Regex) -> Vec<Passage> {
    let mut comments = Vec::new();
    let mut strings = Vec::new();
    let mut line = 1;
    let mut end = 0;

    for found in lexer.find_iter(text) {
        line += text[end..found.start()].matches('\n').count();
        end = found.start();

        if found.as_str().starts_with(['/', '-']) {
            let before = text[..end].rsplit('\n').next().unwrap_or_default();
            if !before.trim().is_empty() {
                // It follows code, so it does not continue the comment above it.
                comments.push((line, String::new()));
            }
            comments.extend(lines_of_comment(line, found.as_str()));
        } else {
            strings.push(passage_of_string(line, found.as_str()));
        }
    }

    // A single character is not prose.
    strings.retain(|passage| passage.text.len() > 1);
    [paragraphs(comments.into_iter()), strings].concat()
}

fn lines_of_comment(first: usize, comment: &str) -> impl Iterator<Item = (usize, String)> {
    let content = |line: &str| {
        let line = line.trim().trim_start_matches(['/', '!', '*', '-']);
        line.trim_end_matches(['/', '*']).trim().to_owned()
    };

    let lines = comment.lines().enumerate();
    lines.map(move |(at, line)| (first + at, content(line)))
}

/// Escaped line ends separate words as real ones do.
fn passage_of_string(first: usize, token: &str) -> Passage {
    let is_raw = token.starts_with('r');
    let content = token.trim_start_matches('r').trim_matches('#');
    let content = &content[1..content.len() - 1];
    let mut passage = Passage::default();

    for (at, line) in content.split('\n').enumerate() {
        if is_raw {
            passage.push(first + at, line.trim());
        } else {
            passage.push(first + at, ESCAPE.replace_all(line, " ").trim());
        }
    }
    passage
}

/// The names of test functions, as words.
fn test_names(text: &str) -> Vec<Passage> {
    let names = TEST.captures_iter(text).filter_map(|found| found.get(1));

    names
        .map(|name| {
            let mut passage = Passage::default();
            let line = text[..name.start()].matches('\n').count() + 1;
            passage.push(line, &name.as_str().replace('_', " "));
            passage
        })
        .collect()
}

/// Joins lines to paragraphs. A paragraph ends at an empty line, a gap, a fence, a heading, an item
/// of a list and a row of a table. Fenced code is left out.
fn paragraphs(lines: impl Iterator<Item = (usize, String)>) -> Vec<Passage> {
    let mut passages = vec![Passage::default()];
    let mut is_fenced = false;
    let mut previous = 0;

    for (line, text) in lines {
        let text = text.trim();
        let is_fence = text.starts_with("```");
        let is_apart = line != previous + 1 || text.is_empty() || is_fence || STARTS.is_match(text);
        previous = line;

        if is_apart {
            passages.push(Passage::default());
        }
        if is_fence {
            is_fenced = !is_fenced;
        } else if !is_fenced && !text.is_empty() {
            let passage = passages.last_mut().expect("there is one");
            passage.push(line, STARTS.replace(text, "").trim());
        }
    }

    passages.retain(|passage| !passage.text.is_empty());
    passages
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        let passages = passages_of(&source(path, text));
        passages.into_iter().map(|passage| passage.text).collect()
    }

    #[test]
    fn comments_of_rust_are_joined_to_paragraphs() {
        let text = "//! One\n//! two.\n//!\n//! - Three\n//! four\nfn a() {} // five\n";

        assert_eq!(texts("a.rs", text), ["One two.", "Three four", "five"]);
    }

    #[test]
    fn code_and_fenced_code_are_not_prose() {
        let text = "/// One\n///\n/// ```\n/// two();\n/// ```\n/// Three\nfn four() {}\n";

        assert_eq!(texts("a.rs", text), ["One", "Three"]);
    }

    #[test]
    fn strings_of_rust_are_passages() {
        let text = "fn a() {\n    b(\"one // \\n two\\\n three\", r#\"four \"five\"\"#);\n    \
                    c('\"', b\"six\");\n}\n";

        assert_eq!(
            texts("a.rs", text),
            ["one //   two three", "four \"five\"", "six"]
        );
    }

    #[test]
    fn string_keeps_its_last_letter() {
        assert_eq!(texts("a.rs", "b(br#\"car\"#, \"bar\");\n"), ["car", "bar"]);
    }

    #[test]
    fn names_of_tests_are_passages_and_of_other_functions_are_not() {
        let text = "#[test]\nfn one_two() {}\nfn three() {}\nmod tests {\n    \
                    #[tokio::test(flavor = \"xy\")]\n    async fn four() {}\n}\n";

        assert_eq!(texts("a.rs", text), ["xy", "one two", "four"]);
    }

    #[test]
    fn comments_and_strings_of_scripts_are_passages() {
        let text = "-- One\n-- two\nlocal a = 'b -- c' -- three\n";

        assert_eq!(texts("a.lua", text), ["One two", "three", "b -- c"]);
    }

    #[test]
    fn documents_are_split_at_items_rows_and_fences() {
        let text = "# One\ntwo\n\n- three\n  four\n- five\n\n| six |\n| seven |\n```\neight\n```\n";

        assert_eq!(
            texts("a.md", text),
            ["One two", "three four", "five", "six |", "seven |"]
        );
    }

    #[test]
    fn offset_belongs_to_the_line_of_its_word() {
        let passages = passages_of(&source("a.rs", "\n// one\n// two\n// three\nfn a() {}\n"));
        let passage = &passages[0];

        let line_of = |word: &str| passage.line_at(passage.text.find(word).expect("it is there"));

        assert_eq!(
            [line_of("one"), line_of("two"), line_of("three")],
            [2, 3, 4]
        );
    }

    #[test]
    fn string_of_several_lines_has_the_line_of_each_word() {
        let passages = passages_of(&source("a.rs", "const A: &str = \"one\n  two\";\n"));
        let passage = &passages[0];

        assert_eq!(
            passage.line_at(passage.text.find("two").expect("it is there")),
            2
        );
    }
}
