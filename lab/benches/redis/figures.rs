//! What is measured: one file each.

mod commands;
mod crash;
mod handover;
mod names;
mod pairs;
mod redisson;
mod redlock;
mod renewal;
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

/// All figures, in the order in which they are shown.
const FIGURES: &[(&str, Show)] = figures!(
    uncontended,
    names,
    handover,
    commands,
    waits,
    waiting,
    utilisation,
    renewal,
    crash,
    redlock
);

/// Each figure is the median of so many rounds.
const ROUNDS: usize = 5;

/// Shows the figures that are named, or all.
pub(crate) fn show(names: &[String]) -> Result<()> {
    for name in names {
        if !FIGURES.iter().any(|(figure, _)| figure == name) {
            let known: Vec<&str> = FIGURES.iter().map(|(figure, _)| *figure).collect();
            bail!(
                "no figure is called {name:?}; there are {}",
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

/// The median time, in microseconds.
fn p50(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    micros(permille(&times, 500))
}

/// The time below which so many of 1,000 samples are.
fn permille(sorted: &[u64], part: usize) -> u64 {
    sorted[(sorted.len() * part).div_ceil(1000) - 1]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a figure has three digits that count"
)]
fn float(number: u64) -> f64 {
    number as f64
}

/// A count as a figure.
pub(crate) fn count(number: usize) -> f64 {
    float(number as u64)
}

fn micros(nanos: u64) -> f64 {
    float(nanos) / 1e3
}
