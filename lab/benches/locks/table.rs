//! Figures with their goals, as a table for readers and as JSON for programs.

use std::fs;

use anyhow::Result;
use serde::Serialize;

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

    fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::MIN, f64::max)
    }

    fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::MAX, f64::min)
    }

    /// Returns the median of the rounds' own ratios to `limit`.
    pub(crate) fn over(&self, limit: &Self) -> f64 {
        let ratios = self.0.iter().zip(&limit.0);
        Self(ratios.map(|(value, limit)| value / limit).collect()).median()
    }
}

/// The value that a figure should reach.
#[derive(Clone, Copy, Debug, Serialize)]
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

    fn shown(self) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {most}"),
            Self::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

/// One line of a table.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    who: String,
    unit: String,
    median: f64,
    min: f64,
    max: f64,
    beside: Option<String>,
    ratio: Option<f64>,
    goal: Option<Goal>,
    met: Option<bool>,
}

/// The figures of one kind.
#[derive(Debug, Serialize)]
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

    /// Adds a figure without a comparison. The goal, if any, applies to its median.
    pub(crate) fn add(
        &mut self,
        (what, who, unit): (&str, &str, &str),
        rounds: &Rounds,
        goal: Option<Goal>,
    ) {
        self.put((what, who, unit), rounds, None, goal);
    }

    /// Adds a figure beside another of the same rounds. The goal, if any, applies to their ratio.
    pub(crate) fn add_beside(
        &mut self,
        (what, who, unit): (&str, &str, &str),
        rounds: &Rounds,
        (beside, limit): (&str, &Rounds),
        goal: Option<Goal>,
    ) {
        let ratio = rounds.over(limit);
        self.put((what, who, unit), rounds, Some((beside, ratio)), goal);
    }

    fn put(
        &mut self,
        (what, who, unit): (&str, &str, &str),
        rounds: &Rounds,
        ratio: Option<(&str, f64)>,
        goal: Option<Goal>,
    ) {
        let value = ratio.map_or(rounds.median(), |(_, ratio)| ratio);
        let row = Row {
            what: what.to_owned(),
            who: who.to_owned(),
            unit: unit.to_owned(),
            median: rounds.median(),
            min: rounds.min(),
            max: rounds.max(),
            beside: ratio.map(|(beside, _)| beside.to_owned()),
            ratio: ratio.map(|(_, ratio)| ratio),
            goal,
            met: goal.map(|goal| goal.is_met(value)),
        };
        row.print();
        self.rows.push(row);
    }

    /// Writes `target/bench/FIGURE.json`.
    pub(crate) fn finish(self) -> Result<()> {
        println!();
        let file = lab::report::folder()?.join(format!("{}.json", self.figure));
        Ok(fs::write(file, serde_json::to_string_pretty(&self)?)?)
    }
}

impl Row {
    fn print(&self) {
        let Self {
            what, who, unit, ..
        } = self;
        let [median, least, most] = [self.median, self.min, self.max].map(shown);
        let ratio = self
            .ratio
            .zip(self.beside.as_ref())
            .map_or(String::new(), |(ratio, beside)| {
                format!("{ratio:.2} × {beside}")
            });
        let goal = self.goal.map(Goal::shown).unwrap_or_default();
        let verdict = match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        println!(
            "| {what} | {who} | {median} {unit} | {least} … {most} | {ratio} | {goal} | {verdict} |"
        );
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
