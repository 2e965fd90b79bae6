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
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A tree with two mutants.
    struct Fixture {
        folder: TempDir,
        mutants: Vec<Mutant>,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let mutants = ["one", "two", "three"].map(|name| {
                let mut mutant = Mutant::sample(name);
                mutant.path = folder.path().join(format!("{name}.patch"));
                mutant.files = vec![format!("{name}.rs")];
                fs::write(&mutant.path, name).expect("it is writable");
                mutant
            });

            Self {
                mutants: mutants.into(),
                folder,
            }
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("results.json")
        }

        fn results(&self) -> Results {
            Results::load(Some(&self.file())).expect("the file is valid")
        }

        fn record(&self, at: usize, outcome: Outcome, recorded_at: u64) -> Record {
            let digest = self.mutants[at]
                .digest(self.folder.path())
                .expect("it is readable");
            Record {
                digest,
                outcome,
                seconds: 7,
                recorded_at,
            }
        }

        fn pending(&self, results: &Results) -> Vec<String> {
            let pending = results
                .pending(&self.mutants, self.folder.path())
                .expect("readable");
            pending
                .into_iter()
                .map(|mutant| mutant.name.clone())
                .collect()
        }

        fn change(&self, file: &str) {
            fs::write(self.folder.path().join(file), "changed").expect("it is writable");
        }
    }

    fn killed() -> Outcome {
        Outcome::Killed {
            by: "`a::b`".to_owned(),
        }
    }

    #[test]
    fn records_survive_the_session() -> Result<()> {
        let fixture = Fixture::new();
        let outcomes = [
            killed(),
            Outcome::DoesNotApply {
                reason: "the context is different".to_owned(),
            },
            Outcome::Survived,
        ];

        let mut results = fixture.results();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            results.add(&fixture.mutants[at].name, fixture.record(at, outcome, 1))?;
        }

        assert_eq!(fixture.results().records, results.records);
        assert!(fixture.pending(&fixture.results()).is_empty());
        Ok(())
    }

    #[test]
    fn recorded_mutant_is_pending_again_when_its_patch_or_file_changes() -> Result<()> {
        let fixture = Fixture::new();
        let mut results = fixture.results();
        for at in 0..3 {
            results.add(&fixture.mutants[at].name, fixture.record(at, killed(), 1))?;
        }

        fixture.change("one.rs");
        assert_eq!(fixture.pending(&results), ["one"]);
        fixture.change("two.patch");
        assert_eq!(fixture.pending(&results), ["one", "two"]);
        Ok(())
    }

    #[test]
    fn unknown_mutant_is_pending_before_the_oldest() -> Result<()> {
        let fixture = Fixture::new();
        let mut results = fixture.results();
        results.add("one", fixture.record(0, killed(), 20))?;
        results.add("two", fixture.record(1, killed(), 10))?;
        fixture.change("one.rs");
        fixture.change("two.rs");

        assert_eq!(fixture.pending(&results), ["three", "two", "one"]);
        Ok(())
    }

    #[test]
    fn summary_counts_outcomes_and_what_is_left() -> Result<()> {
        let fixture = Fixture::new();
        let mut results = fixture.results();
        let path = fixture.folder.path();
        results.add("one", fixture.record(0, killed(), 1))?;
        results.add("two", fixture.record(1, Outcome::DoesNotCompile, 1))?;
        assert_eq!(
            results.summary(&fixture.mutants, path)?,
            "3 mutants: 1 do not compile, 1 killed, 1 not run"
        );

        fixture.change("two.rs");
        assert_eq!(
            results.summary(&fixture.mutants, path)?,
            "3 mutants: 1 killed, 1 not run, 1 out of date"
        );
        Ok(())
    }

    #[test]
    fn mutant_is_a_problem_unless_it_is_killed() -> Result<()> {
        let fixture = Fixture::new();
        let mut results = fixture.results();

        results.add("one", fixture.record(0, killed(), 1))?;
        assert!(results.problems(&fixture.mutants).is_empty());

        results.add("two", fixture.record(1, Outcome::Survived, 1))?;
        assert_eq!(results.problems(&fixture.mutants), ["two"]);
        Ok(())
    }

    #[test]
    fn table_has_a_row_for_each_record() -> Result<()> {
        let fixture = Fixture::new();
        let mut results = fixture.results();
        results.add("one", fixture.record(0, killed(), 1))?;

        let table = results.table(&fixture.mutants);

        assert_eq!(
            table,
            format!("{TABLE_HEADER}| `one` | A rule is broken | `a::b` | 7 |\n")
        );
        Ok(())
    }

    #[test]
    fn damaged_file_is_an_error_and_absent_one_is_not() {
        let fixture = Fixture::new();

        assert!(fixture.results().records.is_empty());
        fs::write(fixture.file(), "{").expect("it is writable");
        Results::load(Some(&fixture.file())).expect_err("it is not JSON");
    }

    #[test]
    fn nothing_is_written_without_a_file() -> Result<()> {
        let fixture = Fixture::new();
        let mut results = Results::load(None)?;

        results.add("one", fixture.record(0, killed(), 1))?;

        assert!(!fixture.file().exists());
        assert_eq!(results.records.len(), 1);
        Ok(())
    }
}
