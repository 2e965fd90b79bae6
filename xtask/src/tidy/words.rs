//! The rule on forbidden words.

use anyhow::Result;

use super::passages::passages_of;
use super::{Rule, Source, Violation};
use crate::prose::PATTERNS;

pub(super) fn check(source: &Source) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();

    for passage in passages_of(source)? {
        for pattern in PATTERNS.iter() {
            for (offset, words) in pattern.matches(&passage.text) {
                let words = words.trim_start_matches(|c: char| !c.is_alphanumeric());
                let message = format!("\"{words}\": {}", pattern.instead);
                violations.push(source.violation(Rule::Words, passage.line_at(offset), message));
            }
        }
    }

    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;
    use crate::prose::tests::violating_samples;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let violations = check(&source(path, text)).expect("the sample is valid");
        let mut lines: Vec<_> = violations
            .into_iter()
            .map(|violation| violation.line)
            .collect();
        lines.dedup();
        lines
    }

    #[test]
    fn violating_samples_are_found_in_comments_strings_documents_and_test_names() {
        for sample in violating_samples() {
            let name = sample.to_lowercase().replace([' ', '\'', ':', ','], "_");

            assert_eq!(
                lines("a.rs", &format!("fn a() {{}}\n// {sample}\n")),
                [2],
                "{sample}"
            );
            assert_eq!(
                lines("a.rs", &format!("const A: &str = {sample:?};\n")),
                [1],
                "{sample}"
            );
            assert_eq!(
                lines("a.rs", &format!("#[test]\nfn {name}() {{}}\n")),
                [2],
                "{sample}"
            );
            assert_eq!(lines("a.lua", &format!("\n-- {sample}\n")), [2], "{sample}");
            assert_eq!(
                lines("a.md", &format!("# A\n\n{sample}\n")),
                [3],
                "{sample}"
            );
        }
    }

    #[test]
    fn violating_samples_are_accepted_in_code() {
        for sample in violating_samples() {
            let name = sample.to_lowercase().replace([' ', '\'', ':', ','], "_");

            assert!(
                lines("a.rs", &format!("fn {name}() {{}}\n")).is_empty(),
                "{sample}"
            );
            assert!(
                lines("a.md", &format!("```\n{sample}\n```\n")).is_empty(),
                "{sample}"
            );
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
