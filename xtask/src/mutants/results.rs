//! The outcomes of mutants over several sessions.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::patch::Mutant;

const TABLE_HEADER: &str = "| mutant | what it breaks | killed by | s |\n|---|---|---|---|\n";

/// The outcome of applying a mutant and running its command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub(super) enum Outcome {
    /// The named tests failed, as they must.
    Killed {
        by: String,
    },
    Survived,
    DoesNotApply {
        reason: String,
    },
    DoesNotCompile,
}

/// An outcome, and what it was measured with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    digest: String,
    #[serde(flatten)]
    outcome: Outcome,
    seconds: u64,
    /// In seconds since 1970.
    recorded_at: u64,
}

/// The records by name of the mutant, and the file that they are kept in.
#[derive(Debug, Default)]
pub(super) struct Results {
    file: Option<PathBuf>,
    records: BTreeMap<String, Record>,
}

impl Results {
    /// Reads the file if it exists. Without a file the records are kept for this run only.
    pub(super) fn load(file: Option<&Path>) -> Result<Self> {
        let Some(file) = file else {
            return Ok(Self::default());
        };

        let folder = file.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;

        let records = match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} has no results", file.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        Ok(Self {
            file: Some(file.to_owned()),
            records,
        })
    }

    /// Records an outcome. The file is replaced in one step, so an interrupted run keeps it whole.
    pub(super) fn add(&mut self, name: &str, record: Record) -> Result<()> {
        self.records.insert(name.to_owned(), record);

        let Some(file) = &self.file else {
            return Ok(());
        };
        let unfinished = file.with_extension("unfinished");
        fs::write(
            &unfinished,
            serde_json::to_string_pretty(&self.records)? + "\n",
        )
        .and_then(|()| fs::rename(&unfinished, file))
        .with_context(|| format!("cannot write {}", file.display()))
    }

    /// The mutants without a valid record: those without any record first, then the oldest.
    pub(super) fn pending<'a>(
        &self,
        mutants: &'a [Mutant],
        tree: &Path,
    ) -> Result<Vec<&'a Mutant>> {
        let mut pending = Vec::new();
        for mutant in mutants {
            if !self.is_valid(mutant, tree)? {
                pending.push(mutant);
            }
        }

        pending.sort_by_key(|mutant| self.records.get(&mutant.name).map(|it| it.recorded_at));
        Ok(pending)
    }

    /// Whether patch and files are still what the record was measured with.
    fn is_valid(&self, mutant: &Mutant, tree: &Path) -> Result<bool> {
        let Some(record) = self.records.get(&mutant.name) else {
            return Ok(false);
        };

        Ok(record.digest == mutant.digest(tree)?)
    }

    /// The counts of outcomes.
    pub(super) fn summary(&self, mutants: &[Mutant], tree: &Path) -> Result<String> {
        let mut counts = BTreeMap::new();
        for mutant in mutants {
            let kind = match self.records.get(&mutant.name) {
                None => "not run",
                Some(_) if !self.is_valid(mutant, tree)? => "out of date",
                Some(record) => record.outcome.kind(),
            };
            *counts.entry(kind).or_insert(0) += 1;
        }

        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        let counts: Vec<String> = counts
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        Ok(format!("{} mutants: {}", mutants.len(), counts.join(", ")))
    }

    /// The mutants with a record other than killed.
    pub(super) fn problems<'a>(&self, mutants: &'a [Mutant]) -> Vec<&'a str> {
        let is_problem = |mutant: &&Mutant| {
            let record = self.records.get(&mutant.name);
            record.is_some_and(|record| !matches!(record.outcome, Outcome::Killed { .. }))
        };

        mutants
            .iter()
            .filter(is_problem)
            .map(|mutant| mutant.name.as_str())
            .collect()
    }

    /// All records of these mutants as a table.
    pub(super) fn table(&self, mutants: &[Mutant]) -> String {
        let rows = mutants.iter().filter_map(|mutant| {
            let record = self.records.get(&mutant.name)?;
            Some(format!("{}\n", record.row(mutant)))
        });

        [TABLE_HEADER.to_owned()].into_iter().chain(rows).collect()
    }
}

impl Record {
    pub(super) fn new(digest: String, outcome: Outcome, took: Duration) -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();

        Self {
            digest,
            outcome,
            seconds: took.as_secs(),
            recorded_at: since_1970.as_secs(),
        }
    }

    pub(super) fn row(&self, mutant: &Mutant) -> String {
        format!(
            "| `{}` | {} | {} | {} |",
            mutant.name, mutant.breaks, self.outcome, self.seconds
        )
    }
}

impl Outcome {
    fn kind(&self) -> &'static str {
        match self {
            Self::Killed { .. } => "killed",
            Self::Survived => "survived",
            Self::DoesNotApply { .. } => "do not apply",
            Self::DoesNotCompile => "do not compile",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { by } => f.write_str(by),
            Self::Survived => f.write_str("**nothing: it survives**"),
            Self::DoesNotApply { reason } => write!(f, "**nothing: {reason}**"),
            Self::DoesNotCompile => f.write_str("**nothing: it does not compile**"),
        }
    }
}

#[cfg(test)]
mod tests;
