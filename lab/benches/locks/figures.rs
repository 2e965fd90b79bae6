//! The figures that the benchmark measures.

mod check;
mod cohorts;
mod commands;
mod contended;
mod handover;
mod names;
mod startup;
mod uncontended;

use std::time::Duration;

use anyhow::{Result, bail};

type Show = fn() -> Result<()>;

/// All figures, in the order in which the benchmark prints them.
const FIGURES: [(&str, Show); 8] = [
    ("uncontended", uncontended::show),
    ("names", names::show),
    ("handover", handover::show),
    ("contended", contended::show),
    ("check", check::show),
    ("commands", commands::show),
    ("cohorts", cohorts::show),
    ("startup", startup::show),
];

/// Each figure is the median of this number of rounds.
const ROUNDS: usize = 5;
/// The delay of each direction, for a round trip of 1 ms.
const DELAY: Duration = Duration::from_micros(500);

/// Measures and prints the figures in `names`, or all figures if `names` is empty.
pub(crate) fn show(names: &[String]) -> Result<()> {
    let known = FIGURES.map(|(figure, _)| figure);
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let known = known.join(", ");
        bail!("figure {unknown:?} does not exist; the figures are {known}");
    }

    for (figure, show) in FIGURES {
        if names.is_empty() || names.iter().any(|name| name == figure) {
            show()?;
        }
    }
    Ok(())
}

/// Returns the median of the times, in microseconds.
fn p50(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    micros(permille(&times, 500))
}

/// Returns the time that `part` of 1,000 samples do not exceed.
fn permille(sorted: &[u64], part: usize) -> u64 {
    sorted[(sorted.len() * part).div_ceil(1000) - 1]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a figure has three significant digits"
)]
fn float(number: u64) -> f64 {
    number as f64
}

/// Converts a count to a figure.
pub(crate) fn count(number: usize) -> f64 {
    float(number as u64)
}

fn micros(nanos: u64) -> f64 {
    float(nanos) / 1e3
}
