//! How many violations of each rule exist, by folder or file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Rule, Violation, is_below};

const FILE: &str = "xtask/allowed.toml";
const HEADER: &str = "\
# Violations of the tidy rules that exist, by folder, file or duplicate type. A violation counts for
# the longest path that contains it. Numbers only shrink: `cargo xtask tidy --update` lowers them.

";
/// More violations of one path are not printed.
const PRINTED: usize = 20;

/// Number of violations by rule and path.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Allowances(BTreeMap<Rule, BTreeMap<String, usize>>);

impl Allowances {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE)).with_context(|| FILE)?;

        toml::from_str(&text).with_context(|| format!("{FILE} is not valid"))
    }

    pub(super) fn save(&self, root: &Path) -> Result<()> {
        let text = format!("{HEADER}{}", toml::to_string(self)?);

        fs::write(root.join(FILE), text).with_context(|| FILE)
    }

    /// A message for each number that is too low or too high.
    pub(super) fn compare(&self, violations: &[Violation]) -> Vec<String> {
        let found = self.group(violations);
        let mut problems = Vec::new();

        for ((rule, path), violations) in &found {
            let allowed = self.allowed(*rule, path);
            if violations.len() > allowed {
                problems.push(too_many(*rule, path, allowed, violations));
            }
        }

        for (rule, paths) in &self.0 {
            for (path, allowed) in paths {
                let count = found.get(&(*rule, path.clone())).map_or(0, Vec::len);
                if count < *allowed {
                    problems.push(too_few(*rule, path, *allowed, count));
                }
            }
        }

        problems
    }

    /// Lowers the numbers that are too high, removes those that reach 0, and returns how many it
    /// changed. It never raises a number.
    pub(super) fn lower(&mut self, violations: &[Violation]) -> usize {
        let counts: BTreeMap<(Rule, String), usize> = self
            .group(violations)
            .into_iter()
            .map(|(key, list)| (key, list.len()))
            .collect();
        let mut lowered = 0;

        for (rule, paths) in &mut self.0 {
            for (path, allowed) in paths.iter_mut() {
                let count = counts
                    .get(&(*rule, path.clone()))
                    .copied()
                    .unwrap_or_default();
                if count < *allowed {
                    *allowed = count;
                    lowered += 1;
                }
            }
            paths.retain(|_, allowed| *allowed > 0);
        }
        self.0.retain(|_, paths| !paths.is_empty());

        lowered
    }

    /// Violations by rule and by the path that they count for.
    fn group<'a>(
        &self,
        violations: &'a [Violation],
    ) -> BTreeMap<(Rule, String), Vec<&'a Violation>> {
        let mut groups: BTreeMap<_, Vec<&Violation>> = BTreeMap::new();

        for violation in violations {
            let path = self.path_of(violation).unwrap_or(&violation.key);
            groups
                .entry((violation.rule, path.to_owned()))
                .or_default()
                .push(violation);
        }
        groups
    }

    /// The longest allowed path that contains the violation.
    fn path_of(&self, violation: &Violation) -> Option<&str> {
        let paths = self.0.get(&violation.rule)?.keys();
        let containing = paths.filter(|path| is_below(&violation.key, path));

        containing.max_by_key(|path| path.len()).map(String::as_str)
    }

    fn allowed(&self, rule: Rule, path: &str) -> usize {
        let paths = self.0.get(&rule);

        paths
            .and_then(|paths| paths.get(path))
            .copied()
            .unwrap_or_default()
    }
}

fn too_many(rule: Rule, path: &str, allowed: usize, violations: &[&Violation]) -> String {
    let count = violations.len();
    let list: Vec<String> = violations
        .iter()
        .take(PRINTED)
        .map(|violation| format!("\n  {violation}"))
        .collect();
    let more = match count.saturating_sub(PRINTED) {
        0 => String::new(),
        more => format!("\n  and {more} more: cargo xtask tidy {path}"),
    };

    format!(
        "{path}: {count} violations of `{rule}`, allowed are {allowed}:{}{more}",
        list.concat()
    )
}

fn too_few(rule: Rule, path: &str, allowed: usize, count: usize) -> String {
    format!(
        "{path}: {count} violations of `{rule}`, allowed are {allowed}: \
         lower the number in {FILE} (cargo xtask tidy --update)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowances(text: &str) -> Allowances {
        toml::from_str(text).expect("the sample is valid")
    }

    fn violations(files: &[&str]) -> Vec<Violation> {
        let violation = |file: &&str| Violation {
            rule: Rule::Columns,
            key: (*file).to_owned(),
            file: (*file).to_owned(),
            line: 1,
            message: "it is long".to_owned(),
        };
        files.iter().map(violation).collect()
    }

    #[test]
    fn allowed_number_is_accepted() {
        let allowed = allowances("[columns]\nlab = 2\n");

        assert!(
            allowed
                .compare(&violations(&["lab/a.rs", "lab/b.rs"]))
                .is_empty()
        );
    }

    #[test]
    fn one_more_violation_is_a_problem_that_lists_all() {
        let allowed = allowances("[columns]\nlab = 1\n");

        let problems = allowed.compare(&violations(&["lab/a.rs", "lab/b.rs"]));

        assert_eq!(
            problems,
            ["lab: 2 violations of `columns`, allowed are 1:\n  \
              lab/a.rs:1: columns: it is long\n  lab/b.rs:1: columns: it is long"]
        );
    }

    #[test]
    fn one_violation_less_is_a_problem_that_demands_a_lower_number() {
        let allowed = allowances("[columns]\nlab = 2\n");

        let problems = allowed.compare(&violations(&["lab/a.rs"]));

        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("lower the number"), "{problems:?}");
    }

    #[test]
    fn file_without_a_number_allows_no_violation() {
        let problems = Allowances::default().compare(&violations(&["lab/a.rs"]));

        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("lab/a.rs: 1 violations"),
            "{problems:?}"
        );
    }

    #[test]
    fn violation_counts_for_its_longest_path_only() {
        let allowed = allowances("[columns]\nlab = 1\n\"lab/src\" = 1\n");

        assert!(
            allowed
                .compare(&violations(&["lab/a.rs", "lab/src/a.rs"]))
                .is_empty()
        );
        assert_eq!(
            allowed
                .compare(&violations(&["lab/src/a.rs", "lab/src/b.rs"]))
                .len(),
            2
        );
    }

    #[test]
    fn number_of_another_rule_does_not_count() {
        let allowed = allowances("[words]\nlab = 1\n");

        assert_eq!(allowed.compare(&violations(&["lab/a.rs"])).len(), 2);
    }

    #[test]
    fn update_lowers_numbers_and_raises_none() {
        let mut allowed = allowances("[columns]\nlab = 3\ncrates = 1\n[words]\nlab = 1\n");
        let found = violations(&["lab/a.rs", "crates/a.rs", "crates/b.rs"]);

        assert_eq!(allowed.lower(&found), 2);

        assert_eq!(allowed, allowances("[columns]\nlab = 1\ncrates = 1\n"));
        assert_eq!(
            allowed.compare(&found).len(),
            1,
            "crates still has one too many"
        );
    }
}
