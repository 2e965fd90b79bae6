//! Tests of results.

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
