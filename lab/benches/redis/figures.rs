//! The figures that the benchmark measures, with one file for each figure.

mod cohorts;
mod commands;
mod crash;
mod failover;
mod handover;
mod hops;
mod names;
mod pairs;
mod redisson;
mod redlock;
mod renewal;
mod telemetry;
mod topologies;
mod uncontended;
mod utilisation;
mod waiting;
mod waits;

use anyhow::{Result, bail};

use crate::picture;
use crate::table::Table;

type Show = fn() -> Result<()>;

macro_rules! figures {
    ($($name:ident),+) => { &[$((stringify!($name), $name::show as Show)),+] };
}

/// All figures, in the order in which the benchmark prints them.
const FIGURES: &[(&str, Show)] = figures!(
    uncontended,
    names,
    handover,
    hops,
    commands,
    waits,
    waiting,
    cohorts,
    utilisation,
    telemetry,
    renewal,
    crash,
    redlock,
    topologies,
    failover
);

/// Each figure is the median of this number of rounds.
const ROUNDS: usize = 5;

/// Measures and prints the figures in `names`, or all figures if `names` is empty.
pub(crate) fn show(names: &[String]) -> Result<()> {
    for name in names {
        if !FIGURES.iter().any(|(figure, _)| figure == name) {
            let known: Vec<&str> = FIGURES.iter().map(|(figure, _)| *figure).collect();
            bail!(
                "figure {name:?} does not exist; the figures are {}",
                known.join(", ")
            );
        }
    }

    let wanted = |figure: &str| names.is_empty() || names.iter().any(|name| name == figure);
    FIGURES
        .iter()
        .filter(|(figure, _)| wanted(figure))
        .try_for_each(|(_, show)| show())?;

    let tables = FIGURES
        .iter()
        .map(|(figure, _)| Table::written(figure))
        .collect::<Result<Vec<_>>>()?;
    picture::draw(&tables.into_iter().flatten().collect::<Vec<_>>())
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
