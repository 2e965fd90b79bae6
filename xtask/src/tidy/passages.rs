//! The prose of a file, in passages with their lines: comments, strings, documents, test names.

use std::ops::Range;
use std::sync::LazyLock;

use anyhow::{Result, anyhow};
use proc_macro2::{TokenStream, TokenTree};
use regex::Regex;
use syn::visit::Visit;

use super::Source;
use crate::repository::extension;

/// A sentence or paragraph, with its lines joined by spaces.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Passage {
    pub(super) text: String,
    /// The offset in the text and the line number in the file of each line.
    lines: Vec<(usize, usize)>,
}

impl Passage {
    fn of(line: usize, text: &str) -> Self {
        Self {
            text: text.to_owned(),
            lines: vec![(0, line)],
        }
    }

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
pub(super) fn passages_of(source: &Source) -> Result<Vec<Passage>> {
    if extension(&source.path) == "rs" {
        return passages_of_rust(source);
    }
    if extension(&source.path) == "md" {
        let lines = source
            .text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.to_owned()));
        return Ok(paragraphs(lines));
    }
    Ok(passages_of_script(&source.text))
}

fn passages_of_rust(source: &Source) -> Result<Vec<Passage>> {
    let invalid = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", source.path);
    let tokens: TokenStream = source.text.parse().map_err(|error| invalid(&error))?;
    let file = syn::parse2(tokens.clone()).map_err(|error| invalid(&error))?;

    let mut reader = Reader::new(&source.text);
    reader.read(tokens);
    reader.read_gap(source.text.len());

    let mut names = TestNames::default();
    names.visit_file(&file);

    let mut passages = paragraphs(reader.comments.into_iter());
    passages.extend(reader.strings);
    passages.extend(names.0);
    Ok(passages)
}

/// Collects the comments and the strings of a Rust file.
struct Reader<'a> {
    text: &'a str,
    /// The end of the last token. Comments are between tokens.
    end: usize,
    /// The line of that end.
    line: usize,
    comments: Vec<(usize, String)>,
    strings: Vec<Passage>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            end: 0,
            line: 1,
            comments: Vec::new(),
            strings: Vec::new(),
        }
    }

    fn read(&mut self, tokens: TokenStream) {
        for token in tokens {
            if let TokenTree::Group(group) = token {
                self.read_token(group.span_open().byte_range());
                self.read(group.stream());
                self.read_token(group.span_close().byte_range());
            } else {
                self.read_token(token.span().byte_range());
            }
        }
    }

    fn read_token(&mut self, range: Range<usize>) {
        // All tokens of a doc comment have the range of the comment.
        if range.start < self.end {
            return;
        }
        self.read_gap(range.start);

        let token = &self.text[range.clone()];
        if token.starts_with("//") {
            self.comments.push((self.line, content_of_comment(token)));
        } else if token.ends_with(['"', '#']) && token.contains('"') {
            self.strings.push(passage_of_string(self.line, token));
        }

        self.end = range.end;
        self.line += token.matches('\n').count();
    }

    /// Reads the comments up to an offset.
    fn read_gap(&mut self, until: usize) {
        let gap = &self.text[self.end..until];

        for (at, line) in gap.split('\n').enumerate() {
            let line = line.trim();
            if line.starts_with("//") || line.starts_with("/*") || line.starts_with('*') {
                if at == 0 {
                    // It follows code, so it does not continue the comment above it.
                    self.comments.push((self.line, String::new()));
                }
                let content = content_of_comment(line);
                self.comments.push((self.line + at, content));
            }
        }

        self.end = until;
        self.line += gap.matches('\n').count();
    }
}

fn content_of_comment(comment: &str) -> String {
    comment
        .trim_start_matches(['/', '!', '*'])
        .trim_end_matches(['/', '*'])
        .trim()
        .to_owned()
}

/// Escaped line ends separate words as real ones do.
fn passage_of_string(line: usize, token: &str) -> Passage {
    let is_raw = token.contains("r\"") || token.contains("r#");
    let mut passage = Passage::default();

    for (at, part) in token.split('\n').enumerate() {
        let text = if is_raw {
            part.to_owned()
        } else {
            ESCAPE.replace_all(part, " ").into_owned()
        };
        passage.push(
            line + at,
            text.trim_matches(['"', '#', 'r', 'b', 'c', '\\', ' '])
                .trim(),
        );
    }
    passage
}

static ESCAPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\\[ntr0]").expect("the pattern is valid"));

/// Collects the names of test functions, as words.
#[derive(Default)]
struct TestNames(Vec<Passage>);

impl<'ast> Visit<'ast> for TestNames {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let is_test = |attribute: &syn::Attribute| {
            attribute
                .path()
                .segments
                .last()
                .is_some_and(|segment| segment.ident == "test")
        };

        if function.attrs.iter().any(is_test) {
            let name = &function.sig.ident;
            let words = name.to_string().replace('_', " ");
            self.0.push(Passage::of(name.span().start().line, &words));
        }
        syn::visit::visit_item_fn(self, function);
    }
}

/// The comments and strings of a Lua or SQL file.
fn passages_of_script(text: &str) -> Vec<Passage> {
    let mut comments = Vec::new();
    let mut strings = Vec::new();

    for (at, line) in text.lines().enumerate() {
        let (code, comment) = split_comment(line);
        if let Some(comment) = comment {
            if !code.trim().is_empty() {
                // It follows code, so it does not continue the comment above it.
                comments.push((at + 1, String::new()));
            }
            comments.push((at + 1, comment.trim_start_matches('-').trim().to_owned()));
        }
        let literals = STRING
            .find_iter(code)
            .map(|found| found.as_str().trim_matches(['\'', '"']));
        strings.extend(literals.map(|literal| Passage::of(at + 1, literal.trim())));
    }

    let mut passages = paragraphs(comments.into_iter());
    passages.extend(strings);
    passages
}

static STRING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"'[^']*'|"[^"]*""#).expect("the pattern is valid"));

/// Splits a line at `--` outside a string.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    for (at, _) in line.match_indices("--") {
        let before = &line[..at];
        let quotes = before
            .bytes()
            .filter(|byte| matches!(byte, b'\'' | b'"'))
            .count();
        if quotes % 2 == 0 {
            return (before, Some(&line[at..]));
        }
    }
    (line, None)
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

/// The start of a heading, an item of a list or a row of a table.
static STARTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(#+ |[-*] |\d+\. |\|)").expect("the pattern is valid"));

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        let passages = passages_of(&source(path, text)).expect("the sample is valid");
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
            ["one //   two three", "four \"five", "six"]
        );
    }

    #[test]
    fn names_of_tests_are_passages_and_of_other_functions_are_not() {
        let text = "#[test]\nfn one_two() {}\nfn three() {}\nmod tests {\n    \
                    #[tokio::test(flavor = \"x\")]\n    async fn four() {}\n}\n";

        assert_eq!(texts("a.rs", text), ["x", "one two", "four"]);
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
        let passage = passages.expect("the sample is valid").swap_remove(0);

        let line_of = |word: &str| passage.line_at(passage.text.find(word).expect("it is there"));

        assert_eq!(
            [line_of("one"), line_of("two"), line_of("three")],
            [2, 3, 4]
        );
    }

    #[test]
    fn string_of_several_lines_has_the_line_of_each_word() {
        let passages = passages_of(&source("a.rs", "const A: &str = \"one\n  two\";\n"));
        let passage = passages.expect("the sample is valid").swap_remove(0);

        assert_eq!(
            passage.line_at(passage.text.find("two").expect("it is there")),
            2
        );
    }
}
