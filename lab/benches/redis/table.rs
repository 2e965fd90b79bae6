//! Figures with their goals, as people and programs read them.

use std::fs;

use anyhow::Result;
use serde::Serialize;

/// What the rounds measured of one peer, in one unit.
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

    /// The largest alone.
    pub(crate) fn longest(&self) -> Self {
        Self(vec![self.max()])
    }

    fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::MIN, f64::max)
    }

    fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::MAX, f64::min)
    }

    /// Each round's own ratio.
    fn over(&self, limit: &Self) -> Self {
        Self(self.0.iter().zip(&limit.0).map(|(value, limit)| value / limit).collect())
    }
}

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
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
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    beside: Option<String>,
    ratio: Option<f64>,
    goal: Option<String>,
    met: Option<bool>,
}

/// The figures of one kind.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    figure: &'static str,
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(figure: &'static str) -> Self {
        println!("| {figure} | who | median | least … most | ratio | goal | |\n|---|---|---|---|---|---|---|");
        Self { figure, rows: Vec::new() }
    }

    /// A figure that stands for itself; the goal, if any, is of its median.
    pub(crate) fn add(&mut self, what: &str, who: &str, unit: &'static str, rounds: &Rounds, goal: Option<Goal>) {
        self.put(what, who, unit, rounds, None, goal);
    }

    /// A figure beside another of the same rounds; the goal, if any, is of their ratio.
    pub(crate) fn add_beside(
        &mut self,
        (what, who, unit): (&str, &str, &'static str),
        rounds: &Rounds,
        (beside, limit): (&str, &Rounds),
        goal: Option<Goal>,
    ) {
        self.put(what, who, unit, rounds, Some((beside, rounds.over(limit).median())), goal);
    }

    fn put(
        &mut self,
        what: &str,
        who: &str,
        unit: &'static str,
        rounds: &Rounds,
        ratio: Option<(&str, f64)>,
        goal: Option<Goal>,
    ) {
        let (median, min, max) = (rounds.median(), rounds.min(), rounds.max());
        let met = goal.map(|goal| goal.is_met(ratio.map_or(median, |(_, ratio)| ratio)));
        let shown_ratio = ratio.map_or(String::new(), |(beside, ratio)| format!("{ratio:.2} × {beside}"));
        let [a, b, c] = [median, min, max].map(shown);
        let goal = goal.map(Goal::shown);
        let shown_goal = goal.as_deref().unwrap_or_default();
        let verdict = met.map_or("", |met| if met { "met" } else { "MISSED" });
        println!("| {what} | {who} | {a} {unit} | {b} … {c} | {shown_ratio} | {shown_goal} | {verdict} |");
        let (beside, ratio) = (ratio.map(|(beside, _)| beside.to_owned()), ratio.map(|(_, ratio)| ratio));
        let (what, who) = (what.to_owned(), who.to_owned());
        self.rows.push(Row { what, who, unit, median, min, max, beside, ratio, goal, met });
    }

    /// Writes `target/bench/redis-FIGURE.json`.
    pub(crate) fn finish(self) -> Result<()> {
        println!();
        let file = lab::report::folder()?.join(format!("redis-{}.json", self.figure));
        Ok(fs::write(file, serde_json::to_string_pretty(&self)?)?)
    }
}

/// With three digits that count.
fn shown(value: f64) -> String {
    match value.abs() {
        0.0..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
