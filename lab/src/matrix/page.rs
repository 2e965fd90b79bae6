//! Reports: of one run, and of all.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{Cell, Figures};
use crate::faults::FAULTS;

/// The result of each cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    cell: String,
    figures: Option<Figures>,
    failure: Option<String>,
}

/// The folder for reports, timelines and the events of failed runs: `target/lab`. It is created if
/// it is missing.
///
/// # Errors
/// If it cannot be created.
pub fn folder() -> Result<PathBuf> {
    let folder = crate::report::folder()?.with_file_name("lab");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes the figures of one run to `FOLDER/STORE-FAULT.json`.
///
/// # Errors
/// If the file cannot be written.
pub fn keep(folder: &Path, figures: &Figures) -> Result<()> {
    let name = format!("{}-{}.json", figures.backend, figures.fault);
    Ok(fs::write(
        folder.join(name),
        serde_json::to_string_pretty(figures)?,
    )?)
}

impl Figures {
    /// The figures in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            backend: store,
            fault,
            guarantee,
            acquisitions,
            faults,
            lost,
            opened,
            refused,
            overlap_times,
            in_turn,
            nested,
            intrusions,
            ..
        } = self;
        let recovery = seconds(self.slowest_recovery);
        let idle = seconds(self.longest_idle);
        let hand_over = format!("{:.3}", self.hand_over.as_secs_f64());
        let took = seconds(self.took);
        let overlaps = overlap_times.len();

        format!(
            "{store}/{fault} {guarantee}: {acquisitions} acquisitions, {faults} faults, \
             {lost} lost, {opened} opened, {refused} refused, {overlaps} overlaps, \
             {in_turn} in turn, {nested} nested, {intrusions} intrusions, \
             handed over in {hand_over} s, idle for {idle} s, \
             recovered within {recovery} s; took {took} s"
        )
    }
}

impl Figures {
    /// The overlaps in one line, each with its length. `None` without an overlap.
    #[must_use]
    pub fn overlaps_line(&self) -> Option<String> {
        let times: Vec<String> = self.overlap_times.iter().copied().map(seconds).collect();

        (!times.is_empty()).then(|| format!("holds overlapped for {} s", times.join(" s, ")))
    }
}

impl Page {
    /// Adds the result of a cell.
    pub fn add(&mut self, cell: &Cell, outcome: &Result<Figures>) {
        let failure = outcome.as_ref().err().map(|error| format!("{error:#}"));
        let figures = outcome.as_ref().ok().cloned();
        self.rows.push(Row {
            cell: cell.name(),
            figures,
            failure,
        });
    }

    /// How many cells have failed.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.rows.iter().filter(|row| row.failure.is_some()).count()
    }

    /// The whole report as JSON.
    ///
    /// # Errors
    /// If the report cannot be serialized.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// The whole report as Markdown; `how` says how the cells were run.
    #[must_use]
    pub fn table(&self, how: &str) -> String {
        let mut text = format!("{HEAD}\n{how}\n\n{COLUMNS}\n");
        for row in &self.rows {
            let line = row.figures.as_ref().map_or_else(|| failed(row), columns);
            writeln!(text, "{line}").expect("a string can grow");
        }
        let all: Vec<&Figures> = self
            .rows
            .iter()
            .filter_map(|row| row.figures.as_ref())
            .collect();
        let sum =
            |kind: fn(&Figures) -> usize| all.iter().map(|figures| kind(figures)).sum::<usize>();
        let slowest = all
            .iter()
            .map(|figures| figures.slowest_recovery)
            .max()
            .unwrap_or_default();
        let violations = self.failures();
        let recovery = seconds(slowest);
        writeln!(
            text,
            "| **all** | | {} | {} | {} | {} | {} | | {violations} | {recovery} s | |\n\n\
             {FAULTS_HEAD}",
            sum(|f| f.acquisitions),
            sum(|f| f.faults),
            sum(|f| f.lost),
            sum(|f| f.refused),
            sum(|f| f.overlap_times.len())
        )
        .expect("a string can grow");

        for fault in FAULTS {
            writeln!(
                text,
                "| `{}` | {} | {} |",
                fault.name, fault.description, fault.evidence
            )
            .expect("a string can grow");
        }
        text
    }
}

const HEAD: &str = "\
# The matrix

Every store under every fault that applies to it. [lab/README.md](../lab/README.md#terms) explains
the terms.

Eight processes take three locks again and again, with short and long holds. Some of them stop
waiting soon. Half of the processes use the blocking API, and half the async API. Two processes have
two threads that share one handle. One process acquires a lock again that it already holds. One of
the locks is a semaphore or a reader-writer lock, if the store has these. Three more processes take
a fourth lock. One of them holds it for three leases, behind wires of its own. Meanwhile an observer
inspects the queues, and an intruder tries to renew and release claims of others. A fault is
injected while the long holder holds, and ended. A new client opens the store meanwhile. The fault
is injected again when every lock has been granted again. The checkers of `lab/src/check.rs` read
the whole history. Redis is Debian's 7.0.15. A single ZooKeeper server is Debian's 3.8.0, and an
ensemble of three runs 3.9.6.

| letter | the store's guarantee under the fault |
|---|---|
| **E** | exclusion: no two clients hold at once by the machine's clock, and tokens rise |
| **T** | tokens only: tokens are unique and rise; two clients may hold at once, until the \
earlier one is notified |
| **R** | refuses: as E, and requests during the fault are refused |

*Lost* counts holds that ended before their release. *Longest* is the longest overlap. *Recovered*
is the longest time from the end of a fault until the last of the locks was granted again. *Bound*
is the time limit for this, which also applies on a busy machine. A run fails if the workers did too
little, or if its faults met no hold. Where `lab/tests/matrix/cells.txt` says `loses`, a run also
fails if a fault of a lease or longer cost no hold.

`cargo xtask lab --list` lists the cells. `cargo xtask lab --store STORE --fault FAULT --seed N
--seconds T` runs one, with a timeline in `target/lab`. `cargo xtask lab --long` runs all of them
and writes this page.
";

const COLUMNS: &str = "\
| cell | guarantee | acquisitions | faults | lost | refused | overlaps | longest | violations | \
recovered | bound |
|---|---|---|---|---|---|---|---|---|---|---|";

const FAULTS_HEAD: &str = "\
| fault | description | evidence of an effect |
|---|---|---|";

fn columns(figures: &Figures) -> String {
    let Figures {
        backend: store,
        fault,
        guarantee,
        acquisitions,
        faults,
        lost,
        refused,
        overlap_times,
        ..
    } = figures;

    let overlaps = overlap_times.len();
    let longest = overlap_times.iter().max();
    let longest = longest.map_or_else(String::new, |longest| format!("{} s", seconds(*longest)));
    let recovery = seconds(figures.slowest_recovery);
    let bound = figures.bound.as_secs();
    format!(
        "| {store}/{fault} | {guarantee} | {acquisitions} | {faults} | {lost} | {refused} \
         | {overlaps} | {longest} | 0 | {recovery} s | {bound} s |"
    )
}

fn failed(row: &Row) -> String {
    let why = row
        .failure
        .as_deref()
        .unwrap_or_default()
        .lines()
        .last()
        .unwrap_or_default()
        .replace('|', "/");
    format!("| {} | | | | | | | | **1**: {why} | | |", row.cell)
}

fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}
