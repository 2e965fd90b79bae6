//! Reports: of one run, and of all.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{Cell, Figures};

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
            jobs: (jobs, again),
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
             {jobs} jobs, {again} of them again, \
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
    pub fn add(&mut self, cell: &Cell, outcome: Result<Figures>) {
        let (figures, failure) = match outcome {
            Ok(figures) => (Some(figures), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
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
        let mut text = format!("{how}\n\n{COLUMNS}\n");
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
            "| **all** | | {} | {} | {} | {} | {} | | {violations} | {recovery} s | |",
            sum(|f| f.acquisitions),
            sum(|f| f.faults),
            sum(|f| f.lost),
            sum(|f| f.refused),
            sum(|f| f.overlap_times.len())
        )
        .expect("a string can grow");
        text
    }
}

const COLUMNS: &str = "\
| cell | guarantee | acquisitions | faults | lost | refused | overlaps | longest | violations | \
recovered | bound |
|---|---|---|---|---|---|---|---|---|---|---|";

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
    let longest = overlap_times
        .iter()
        .max()
        .map_or_else(String::new, |longest| format!("{} s", seconds(*longest)));
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
