//! The words that the style guide forbids; `words.toml` lists them.

use std::sync::LazyLock;

use fancy_regex::Regex;
use serde::Deserialize;

/// The patterns in the order of their file.
pub(crate) static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let file: WordsFile = toml::from_str(include_str!("words.toml")).expect("words.toml is valid");

    file.pattern.into_iter().map(Pattern::new).collect()
});

/// A kind of forbidden words.
pub(crate) struct Pattern {
    pub(crate) name: String,
    /// The better way to write it.
    pub(crate) instead: String,
    /// For one sentence or paragraph.
    regex: Regex,
    /// For a text of many lines: `^` matches at each.
    regex_of_lines: Regex,
}

impl Pattern {
    fn new(entry: Entry) -> Self {
        let compile = |flags: &str| {
            Regex::new(&format!("(?{flags}){}", entry.pattern)).expect("a pattern is valid")
        };

        Self {
            regex: compile("i"),
            regex_of_lines: compile("im"),
            name: entry.name,
            instead: entry.instead,
        }
    }

    /// Where the pattern matches in one paragraph: the offset and the words.
    pub(crate) fn matches<'a>(&self, paragraph: &'a str) -> Vec<(usize, &'a str)> {
        let matches = self.regex.find_iter(paragraph);

        matches
            .map(|found| found.expect("the patterns do not backtrack far"))
            .map(|found| (found.start(), found.as_str()))
            .collect()
    }

    /// How often the pattern matches in a text of many lines.
    pub(crate) fn count_in_lines(&self, text: &str) -> usize {
        self.regex_of_lines.find_iter(text).count()
    }
}

#[derive(Deserialize)]
struct WordsFile {
    pattern: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    instead: String,
    pattern: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "samples for the tests"))]
    violating: Vec<String>,
    #[cfg_attr(not(test), expect(dead_code, reason = "samples for the tests"))]
    clean: Vec<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The first violating sample of each pattern.
    pub(crate) fn violating_samples() -> Vec<String> {
        entries()
            .into_iter()
            .map(|mut entry| entry.violating.swap_remove(0))
            .collect()
    }

    fn entries() -> Vec<Entry> {
        let file: WordsFile = toml::from_str(include_str!("words.toml")).expect("it is valid");
        file.pattern
    }

    #[test]
    fn violating_samples_match_and_clean_samples_do_not() {
        for entry in entries() {
            assert!(
                !entry.violating.is_empty() && !entry.clean.is_empty(),
                "{}",
                entry.name
            );
            let samples = (entry.violating.clone(), entry.clean.clone());
            let pattern = Pattern::new(entry);

            for text in samples.0 {
                assert!(
                    !pattern.matches(&text).is_empty(),
                    "{}: {text}",
                    pattern.name
                );
                assert!(pattern.count_in_lines(&format!("\n{text}")) > 0, "{text}");
            }
            for text in samples.1 {
                assert!(
                    pattern.matches(&text).is_empty(),
                    "{}: {text}",
                    pattern.name
                );
            }
        }
    }

    #[test]
    fn clean_samples_match_no_other_pattern() {
        for text in entries().iter().flat_map(|entry| &entry.clean) {
            let found = PATTERNS
                .iter()
                .find(|pattern| !pattern.matches(text).is_empty());
            assert!(
                found.is_none(),
                "{text}: {}",
                found.map_or("", |pattern| &pattern.name)
            );
        }
    }
}
