//! Figures with their goals, as a table for readers and as JSON for programs.

use std::fs;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The values that the rounds measured for one peer, in one unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<f64>);

impl Rounds {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// Returns the largest value alone.
    pub(crate) fn longest(&self) -> Self {
        Self(vec![self.max()])
    }

    fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::MIN, f64::max)
    }

    fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::MAX, f64::min)
    }

    /// Returns each round's own ratio to `limit`.
    fn over(&self, limit: &Self) -> Self {
        Self(
            self.0
                .iter()
                .zip(&limit.0)
                .map(|(value, limit)| value / limit)
                .collect(),
        )
    }
}

/// The value that a figure should reach.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    /// Returns `value` as a part of the goal: 1 is the goal, and more is worse.
    pub(crate) fn part(self, value: f64) -> f64 {
        match self {
            Self::AtMost(most) => value / most,
            Self::AtLeast(least) => least / value,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {most}"),
            Self::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

/// One line of a table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) who: String,
    pub(crate) unit: String,
    median: f64,
    min: f64,
    max: f64,
    pub(crate) beside: Option<String>,
    pub(crate) ratio: Option<f64>,
    goal: Option<Goal>,
    pub(crate) met: Option<bool>,
}

impl Row {
    /// Returns the number that a goal applies to.
    pub(crate) fn verdict(&self) -> f64 {
        self.ratio.unwrap_or(self.median)
    }
}

/// The figures of one kind.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    figure: String,
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(figure: &'static str) -> Self {
        println!(
            "| {figure} | who | median | least … most | ratio | goal | |\n\
             |---|---|---|---|---|---|---|"
        );
        Self {
            figure: figure.to_owned(),
            rows: Vec::new(),
        }
    }

    /// Reads the table of a figure that was written last, if the file exists.
    pub(crate) fn written(figure: &str) -> Result<Option<Self>> {
        let file = lab::report::folder()?.join(format!("redis-{figure}.json"));
        if !file.exists() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&fs::read_to_string(file)?)?))
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the goal that leasehold has for the same figure.
    pub(crate) fn goal_of(&self, row: &Row) -> Option<Goal> {
        let same = |other: &&Row| {
            other.what == row.what && other.beside == row.beside && other.goal.is_some()
        };
        self.rows.iter().find(same).and_then(|other| other.goal)
    }

    /// Adds a figure without a comparison. The goal, if any, applies to its median.
    pub(crate) fn add(
        &mut self,
        what: &str,
        who: &str,
        unit: &str,
        rounds: &Rounds,
        goal: Option<Goal>,
    ) {
        self.put(what, who, unit, rounds, None, goal);
    }

    /// Adds a figure beside another of the same rounds. The goal, if any, applies to their ratio.
    pub(crate) fn add_beside(
        &mut self,
        (what, who, unit): (&str, &str, &str),
        rounds: &Rounds,
        (beside, limit): (&str, &Rounds),
        goal: Option<Goal>,
    ) {
        self.put(
            what,
            who,
            unit,
            rounds,
            Some((beside, rounds.over(limit).median())),
            goal,
        );
    }

    fn put(
        &mut self,
        what: &str,
        who: &str,
        unit: &str,
        rounds: &Rounds,
        ratio: Option<(&str, f64)>,
        goal: Option<Goal>,
    ) {
        let median = rounds.median();
        let min = rounds.min();
        let max = rounds.max();
        let met = goal.map(|goal| goal.is_met(ratio.map_or(median, |(_, ratio)| ratio)));
        let shown_ratio = ratio.map_or(String::new(), |(beside, ratio)| {
            format!("{ratio:.2} × {beside}")
        });
        let [a, b, c] = [median, min, max].map(shown);
        let shown_goal = goal.map(Goal::shown).unwrap_or_default();
        let verdict = met.map_or("", |met| if met { "met" } else { "MISSED" });
        println!(
            "| {what} | {who} | {a} {unit} | {b} … {c} | {shown_ratio} | {shown_goal} | {verdict} |"
        );

        self.rows.push(Row {
            what: what.to_owned(),
            who: who.to_owned(),
            unit: unit.to_owned(),
            median,
            min,
            max,
            beside: ratio.map(|(beside, _)| beside.to_owned()),
            ratio: ratio.map(|(_, ratio)| ratio),
            goal,
            met,
        });
    }

    /// Writes `target/bench/redis-FIGURE.json`.
    pub(crate) fn finish(self) -> Result<()> {
        println!();
        let file = lab::report::folder()?.join(format!("redis-{}.json", self.figure));
        Ok(fs::write(file, serde_json::to_string_pretty(&self)?)?)
    }
}

/// Formats a value with three significant digits.
fn shown(value: f64) -> String {
    match value.abs() {
        0.0..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
