//! The rule on forbidden words; `words.toml` lists them.

use std::sync::LazyLock;

use fancy_regex::Regex;
use serde::Deserialize;

use super::passages::passages_of;
use super::{Rule, Source, Violation};

/// The patterns in the order of their file.
static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let file: WordsFile = toml::from_str(include_str!("words.toml")).expect("words.toml is valid");

    file.pattern.into_iter().map(Pattern::new).collect()
});

pub(super) fn check(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();

    for passage in passages_of(source) {
        for pattern in PATTERNS.iter() {
            for (offset, words) in pattern.matches(&passage.text) {
                let words = words.trim_start_matches(|c: char| !c.is_alphanumeric());
                let message = format!("\"{words}\": {}", pattern.instead);
                violations.push(source.violation(Rule::Words, passage.line_at(offset), message));
            }
        }
    }

    violations
}

/// A kind of forbidden words.
struct Pattern {
    /// The better way to write it.
    instead: String,
    /// Ignores case.
    regex: Regex,
}

impl Pattern {
    fn new(entry: Entry) -> Self {
        let regex = Regex::new(&format!("(?i){}", entry.pattern));

        Self {
            regex: regex.expect("a pattern is valid"),
            instead: entry.instead,
        }
    }

    /// Where the pattern matches in one paragraph: the offset and the words.
    fn matches<'a>(&self, paragraph: &'a str) -> Vec<(usize, &'a str)> {
        let matches = self.regex.find_iter(paragraph);

        matches
            .map(|found| found.expect("the patterns do not backtrack far"))
            .map(|found| (found.start(), found.as_str()))
            .collect()
    }
}

#[derive(Deserialize)]
struct WordsFile {
    pattern: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[cfg_attr(not(test), expect(dead_code, reason = "a title for readers and tests"))]
    name: String,
    instead: String,
    pattern: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "samples for the tests"))]
    violating: Vec<String>,
    #[cfg_attr(not(test), expect(dead_code, reason = "samples for the tests"))]
    clean: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    fn entries() -> Vec<Entry> {
        let file: WordsFile = toml::from_str(include_str!("words.toml")).expect("it is valid");
        file.pattern
    }

    /// The first violating sample of each pattern.
    fn violating_samples() -> Vec<String> {
        let samples = entries().into_iter().map(|entry| entry.violating);

        samples.map(|mut samples| samples.swap_remove(0)).collect()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let violations = check(&source(path, text)).into_iter();
        let mut lines: Vec<_> = violations.map(|found| found.line).collect();
        lines.dedup();
        lines
    }

    fn is_clean(text: &str) -> bool {
        let matches = |pattern: &Pattern| !pattern.matches(text).is_empty();

        !PATTERNS.iter().any(matches)
    }

    #[test]
    fn each_pattern_matches_its_violating_samples_only() {
        for entry in entries() {
            let Entry {
                name,
                violating,
                clean,
                ..
            } = &entry;
            assert!(!violating.is_empty() && !clean.is_empty(), "{name}");
            assert_eq!(clean.iter().find(|text| !is_clean(text)), None, "{name}");

            let violating = violating.clone();
            let pattern = Pattern::new(entry);
            let accepted = |text: &&String| pattern.matches(text).is_empty();
            assert_eq!(violating.iter().find(accepted), None);
        }
    }

    #[test]
    fn violating_samples_are_found_in_prose_and_accepted_in_code() {
        for sample in violating_samples() {
            let name = sample.to_lowercase().replace([' ', '\'', ':', ','], "_");
            let cases: [(&str, String, &[usize]); 7] = [
                ("a.rs", format!("fn a() {{}}\n// {sample}\n"), &[2]),
                ("a.rs", format!("const A: &str = {sample:?};\n"), &[1]),
                ("a.rs", format!("#[test]\nfn {name}() {{}}\n"), &[2]),
                ("a.lua", format!("\n-- {sample}\n"), &[2]),
                ("a.md", format!("# A\n\n{sample}\n"), &[3]),
                ("a.rs", format!("fn {name}() {{}}\n"), &[]),
                ("a.md", format!("```\n{sample}\n```\n"), &[]),
            ];

            for (path, text, violations) in cases {
                assert_eq!(lines(path, &text), violations, "{path}: {text}");
            }
        }
    }

    #[test]
    fn words_that_span_two_lines_are_found_at_the_first() {
        let sample = violating_samples().pop().expect("there are samples");
        let split = sample.replace(' ', "\n// ");

        let found = lines("a.rs", &format!("// {split}\nfn a() {{}}\n"));

        assert_eq!(found.len(), 1, "{split}");
    }
}
