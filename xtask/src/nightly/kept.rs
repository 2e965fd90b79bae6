//! The outcomes of the parts, which a later run goes on from.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Part;

/// How a part ended.
#[derive(Deserialize, Serialize)]
pub(super) struct Ended {
    pub(super) passed: bool,
    pub(super) seconds: u64,
    pub(super) commit: String,
    /// What this run and those before it have added to the goal.
    #[serde(default)]
    pub(super) total: u64,
}

/// The outcomes by the name of the part, and the file that keeps them.
pub(super) struct Kept {
    file: PathBuf,
    outcomes: BTreeMap<String, Ended>,
}

impl Kept {
    /// Reads the outcomes of an interrupted run, or begins a new one.
    pub(super) fn open(folder: &Path, resume: bool) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let file = folder.join("parts.json");
        let outcomes = match fs::read(&file) {
            Ok(text) if resume => serde_json::from_slice(&text)
                .with_context(|| format!("{} has no outcomes", file.display()))?,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            Ok(_) | Err(_) => BTreeMap::new(),
        };

        Ok(Self { file, outcomes })
    }

    /// Whether a part has passed and reached its goal.
    pub(super) fn is_done(&self, part: &Part) -> bool {
        let outcome = self.outcomes.get(&part.name);
        let goal = part.goal.as_ref().map_or(0, |goal| goal.amount);

        outcome.is_some_and(|outcome| outcome.passed && outcome.total >= goal)
    }

    /// What the runs of a part have added to its goal.
    pub(super) fn total(&self, part: &str) -> u64 {
        self.outcomes.get(part).map_or(0, |outcome| outcome.total)
    }

    /// Keeps an outcome. The file is replaced in one step, so an interrupted run keeps it whole.
    pub(super) fn add(&mut self, part: &str, outcome: Ended) -> Result<()> {
        self.outcomes.insert(part.to_owned(), outcome);
        let text = serde_json::to_string_pretty(&self.outcomes)? + "\n";
        let unfinished = self.file.with_extension("unfinished");

        fs::write(&unfinished, text)
            .and_then(|()| fs::rename(&unfinished, &self.file))
            .with_context(|| format!("cannot write {}", self.file.display()))
    }

    pub(super) fn any_failed(&self, parts: &[Part]) -> bool {
        let mut outcomes = parts
            .iter()
            .filter_map(|part| self.outcomes.get(&part.name));

        outcomes.any(|outcome| !outcome.passed)
    }

    pub(super) fn table(&self, parts: &[Part]) -> String {
        let rows = parts
            .iter()
            .map(|part| match self.outcomes.get(&part.name) {
                Some(outcome) => {
                    let word = match outcome.passed {
                        true if self.is_done(part) => "passed",
                        true => "so far",
                        false => "FAILED",
                    };
                    let commit = outcome.commit.get(..9).unwrap_or_default();
                    let seconds = outcome.seconds;
                    let total = part.goal.as_ref().map_or_else(String::new, |goal| {
                        format!(": {} of {} {}", outcome.total, goal.amount, goal.unit)
                    });
                    format!("{word}  {seconds:>6} s  {commit}  {}{total}\n", part.name)
                }
                None => format!("not run                      {}\n", part.name),
            });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: bool) -> Ended {
        Ended {
            passed,
            seconds: 7,
            commit: "0123456789abcdef".to_owned(),
            total: 0,
        }
    }

    #[test]
    fn interrupted_run_goes_on_behind_the_parts_that_passed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut kept = Kept::open(folder.path(), true)?;
        kept.add("a", outcome(true))?;
        kept.add("b", outcome(false))?;

        let parts = ["a", "b", "c"].map(|name| Part::cargo(name, ""));
        let again = Kept::open(folder.path(), true)?;
        assert!(again.is_done(&parts[0]));
        assert!(!again.is_done(&parts[1]) && !again.is_done(&parts[2]));
        assert!(!Kept::open(folder.path(), false)?.is_done(&parts[0]));

        assert!(again.any_failed(&parts) && !again.any_failed(&parts[..1]));
        assert_eq!(
            again.table(&parts),
            "passed       7 s  012345678  a\nFAILED       7 s  012345678  b\n\
             not run                      c\n"
        );
        Ok(())
    }
}
