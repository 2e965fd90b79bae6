//! The surface of the repository in figures: the language of its prose and the density of its code.
//!
//! Prose is every comment in .rs, .lua and .sql files and every .md file, except the changelog and
//! translations. The patterns are approximate, so compare a figure with its earlier value.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::Result;
use regex::Regex;

use crate::prose::PATTERNS;
use crate::repository::{self, extension};

/// A function of this many lines needs a blank line between its steps.
const LONG_FUNCTION: usize = 15;
/// The widest line of code.
const COLUMNS: usize = 100;

/// Prints the figures of this repository.
pub(crate) fn print() -> Result<()> {
    print!("{}", Surface::measure(&repository::root())?);
    Ok(())
}

/// The figures of a repository.
#[derive(Default)]
struct Surface {
    product: Area,
    lab: Area,
    code_lines: usize,
    tuple_lets: usize,
    long_lines: usize,
    long_functions: usize,
    long_functions_with_blank_line: usize,
    /// Matches of all patterns by file.
    worst: Vec<(String, usize)>,
}

/// The figures of the product or of the lab.
#[derive(Default)]
struct Area {
    words: usize,
    tokens: usize,
    /// Matches by pattern.
    matches: BTreeMap<&'static str, usize>,
}

impl Surface {
    fn measure(root: &Path) -> Result<Self> {
        let mut surface = Self::default();

        for file in repository::files(root)? {
            let path = file.to_string_lossy();
            if !is_measured(&path) {
                continue;
            }
            // A file that is not UTF-8 has no prose.
            if let Ok(text) = fs::read_to_string(root.join(&file)) {
                surface.add(&path, &text);
            }
        }

        surface
            .worst
            .sort_by_key(|(_, matches)| std::cmp::Reverse(*matches));
        Ok(surface)
    }

    fn add(&mut self, path: &str, text: &str) {
        self.add_prose(path, &prose_of(path, text));

        if extension(path) == "rs" {
            self.add_code(path, text);
        }
    }

    fn add_prose(&mut self, path: &str, prose: &str) {
        let area = self.area(path);
        let mut matches_of_file = 0;

        area.words += WORD.find_iter(prose).count();
        for pattern in PATTERNS.iter() {
            let count = pattern.count_in_lines(prose);
            *area.matches.entry(&pattern.name).or_default() += count;
            matches_of_file += count;
        }

        self.worst.push((path.to_owned(), matches_of_file));
    }

    fn add_code(&mut self, path: &str, text: &str) {
        for line in text.split('\n') {
            self.long_lines += usize::from(line.chars().count() > COLUMNS);

            let code = line.trim();
            if code.is_empty() || code.starts_with("//") {
                continue;
            }
            self.code_lines += 1;
            self.tuple_lets += usize::from(TUPLE_LET.is_match(code));
            self.area(path).tokens += TOKEN.find_iter(code).count();
        }

        if !path.contains("/tests") && !path.ends_with("tests.rs") {
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            for function in functions(product)
                .iter()
                .filter(|it| it.lines >= LONG_FUNCTION)
            {
                self.long_functions += 1;
                self.long_functions_with_blank_line += usize::from(function.has_blank_line);
            }
        }
    }

    fn area(&mut self, path: &str) -> &mut Area {
        let is_lab = path.starts_with("lab/") || path.starts_with("xtask/");

        if is_lab {
            &mut self.lab
        } else {
            &mut self.product
        }
    }
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let areas = [&self.product, &self.lab];
        writeln!(
            f,
            "{:36} {:>9} {:>9}",
            "per 1,000 words of prose", "product", "lab"
        )?;

        let mut row = |name: &str, counts: [usize; 2]| {
            let [product, lab] = [0, 1].map(|at| 1000.0 * ratio(counts[at], areas[at].words));
            writeln!(f, "{name:36} {product:9.2} {lab:9.2}")
        };

        for pattern in PATTERNS.iter() {
            let name = pattern.name.as_str();
            row(
                name,
                areas.map(|area| area.matches.get(name).copied().unwrap_or_default()),
            )?;
        }
        row(
            "all patterns",
            areas.map(|area| area.matches.values().sum()),
        )?;

        writeln!(
            f,
            "words: product {}, lab {}; tokens of code: product {}, lab {}",
            self.product.words, self.lab.words, self.product.tokens, self.lab.tokens
        )?;
        writeln!(
            f,
            "tokens per code line {:.2}; tuple lets {}; lines over {COLUMNS} columns {}; \
             functions of {LONG_FUNCTION}+ lines with a blank line {:.0} % of {}",
            ratio(self.product.tokens + self.lab.tokens, self.code_lines),
            self.tuple_lets,
            self.long_lines,
            100.0 * ratio(self.long_functions_with_blank_line, self.long_functions),
            self.long_functions
        )?;

        let worst: Vec<String> = self
            .worst
            .iter()
            .take(8)
            .map(|(path, count)| format!("{path} {count}"))
            .collect();
        writeln!(f, "worst files: {}", worst.join(", "))
    }
}

/// 0 for 0 of 0.
#[expect(clippy::cast_precision_loss, reason = "counts of this size are exact")]
fn ratio(count: usize, of: usize) -> f64 {
    count as f64 / of.max(1) as f64
}

fn is_measured(path: &str) -> bool {
    let has_prose = ["rs", "lua", "sql", "md"].contains(&extension(path));

    has_prose && !path.contains("CHANGELOG") && !path.ends_with(".zh-CN.md")
}

/// The prose of a file: its comments, or all of a document; fenced code apart.
fn prose_of(path: &str, text: &str) -> String {
    if extension(path) == "rs" {
        without_fences(comments(text, "//")).join(" ")
    } else if extension(path) == "md" {
        without_fences(text.lines()).join("\n")
    } else {
        comments(text, "--").collect::<Vec<_>>().join(" ")
    }
}

fn comments<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(move |line| line.starts_with(mark));

    lines.map(|line| line.trim_start_matches(['/', '!', '-']).trim())
}

fn without_fences<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut is_fenced = false;
    let mut kept = Vec::new();

    for line in lines {
        if line.trim().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            kept.push(line);
        }
    }
    kept
}

#[derive(Debug, PartialEq)]
struct Function {
    lines: usize,
    has_blank_line: bool,
}

/// The functions of a source, by braces outside strings and comments.
fn functions(text: &str) -> Vec<Function> {
    let code = OPAQUE.replace_all(text, |found: &regex::Captures<'_>| blank(&found[0]));
    let mut functions = Vec::new();

    for found in FUNCTION.find_iter(&code) {
        let rest = &code[found.end()..];
        let Some(start) = rest.find('{') else {
            continue;
        };
        if rest.find(';').is_some_and(|semicolon| semicolon < start) {
            continue;
        }

        let length = length_of_block(&rest[start..]);
        let start = found.end() + start;
        functions.push(function(&text[start..start + length]));
    }
    functions
}

/// Spaces of the same length, with the same line ends.
fn blank(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte == b'\n' { '\n' } else { ' ' })
        .collect()
}

/// The length up to the closing brace.
fn length_of_block(code: &str) -> usize {
    let mut depth = 0;

    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

fn function(body: &str) -> Function {
    let lines: Vec<&str> = body.split('\n').collect();
    let inner = lines.get(1..lines.len() - 1).unwrap_or_default();

    Function {
        lines: lines.len(),
        has_blank_line: inner.iter().any(|line| line.trim().is_empty()),
    }
}

static WORD: LazyLock<Regex> = LazyLock::new(|| regex("[A-Za-z']+"));
static TOKEN: LazyLock<Regex> = LazyLock::new(|| regex(r"\w+|[^\w\s]"));
static TUPLE_LET: LazyLock<Regex> = LazyLock::new(|| regex(r"^(let (mut )?)?\([^)]*,[^)]*\) = \("));
static FUNCTION: LazyLock<Regex> = LazyLock::new(|| regex(r"\bfn \w+"));
/// Comments, strings and characters.
static OPAQUE: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'"#));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::tests::violating_samples;

    fn surface_of(path: &str, text: &str) -> Surface {
        let mut surface = Surface::default();
        surface.add(path, text);
        surface
    }

    #[test]
    fn patterns_are_counted_in_comments_and_not_in_code() {
        let sample = &violating_samples()[0];
        let count = |text: &str| surface_of("crates/a.rs", text).worst[0].1;

        assert_eq!(count(&format!("/// {sample}\nfn a() {{}}\n")), 1);
        assert_eq!(count(&format!("fn a() {{ b({sample:?}) }}\n")), 0);
        assert_eq!(count(&format!("/// ```\n/// {sample}\n/// ```\n")), 0);
    }

    #[test]
    fn words_and_tokens_belong_to_their_area() {
        let surface = surface_of("crates/a.rs", "// two words\nlet a = b;\n");
        assert_eq!(surface.product.words, 2);
        assert_eq!(surface.product.tokens, 5);

        let surface = surface_of("xtask/a.rs", "// two words\nlet a = b;\n");
        assert_eq!(surface.product.words, 0);
        assert_eq!(surface.lab.words, 2);
    }

    #[test]
    fn tuple_lets_are_counted() {
        let count = |text: &str| surface_of("a.rs", text).tuple_lets;

        assert_eq!(count("    let (a, b) = (1, 2);"), 1);
        assert_eq!(count("    (a, b) = (b, a);"), 1);
        assert_eq!(count("    let (a, b) = both();"), 0);
    }

    #[test]
    fn line_of_101_columns_is_long_and_of_100_is_not() {
        assert_eq!(surface_of("a.rs", &"é".repeat(101)).long_lines, 1);
        assert_eq!(surface_of("a.rs", &"é".repeat(100)).long_lines, 0);
    }

    #[test]
    fn blank_line_is_found_in_body_only() {
        let lines = |has_blank_line, lines| {
            vec![Function {
                lines,
                has_blank_line,
            }]
        };

        assert_eq!(
            functions("fn a() {\n    b();\n\n    c();\n}\n\n"),
            lines(true, 5)
        );
        assert_eq!(
            functions("fn a() {\n    b(\"}\n\n\");\n}\n"),
            lines(true, 5)
        );
        assert_eq!(
            functions("fn a() {\n    b('}'); // }\n}\n"),
            lines(false, 3)
        );
        assert_eq!(functions("trait A { fn a(); }\n"), []);
    }
}
