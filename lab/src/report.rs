//! Figures, each beside its limit from the same run.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// Measured times, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    /// Measures the time of `work`.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        self.add(nanos(begun.elapsed()));
        done
    }

    /// Adds a time that was measured elsewhere.
    pub fn add(&mut self, nanos: u64) {
        self.0.push(nanos);
    }

    /// The median and the 99th percentile.
    ///
    /// # Panics
    /// If nothing was measured.
    #[must_use]
    pub fn spread(&self) -> Spread {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |hundredths: usize| sorted[(sorted.len() * hundredths).div_ceil(100) - 1];
        Spread {
            count: sorted.len(),
            p50_ns: at(50),
            p99_ns: at(99),
        }
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().map(nanos).collect())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The summary of measured times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The number of measurements.
    pub count: usize,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

/// One row of a report.
#[derive(Clone, Debug, Serialize)]
struct Row {
    what: String,
    leasehold: Spread,
    limit: Spread,
    limit_what: String,
}

/// The figures of one benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    rows: Vec<Row>,
}

impl Report {
    /// An empty report; `bench` is the name of the benchmark and of its file.
    #[must_use]
    pub fn new(bench: &'static str) -> Self {
        println!(
            "| {bench} | p50 | p99 | compared with | p50 | p99 | ratio of p50 |\n\
             |---|---|---|---|---|---|---|"
        );
        Self {
            bench,
            rows: Vec::new(),
        }
    }

    /// Adds and prints a figure beside its limit.
    pub fn add(&mut self, what: &str, leasehold: &Samples, limit_what: &str, limit: &Samples) {
        let leasehold = leasehold.spread();
        let limit = limit.spread();
        let [a, b, c, d] = [
            leasehold.p50_ns,
            leasehold.p99_ns,
            limit.p50_ns,
            limit.p99_ns,
        ]
        .map(shown);

        println!(
            "| {what} | {a} | {b} | {limit_what} | {c} | {d} | {} |",
            ratio(leasehold.p50_ns, limit.p50_ns)
        );

        self.rows.push(Row {
            what: what.to_owned(),
            leasehold,
            limit,
            limit_what: limit_what.to_owned(),
        });
    }

    /// Writes `target/bench/NAME.json`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(self) -> Result<()> {
        let folder = folder()?;
        println!();
        Ok(fs::write(
            folder.join(format!("{}.json", self.bench)),
            serde_json::to_string_pretty(&self)?,
        )?)
    }
}

/// The folder for figures, `target/bench`. It is created if it is missing.
///
/// # Errors
/// If the folder cannot be created.
pub fn folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")),
        PathBuf::from,
    );
    let folder = target.join("bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A time with one decimal, in a fitting unit.
fn shown(nanos: u64) -> String {
    let unit = |nanos_each: u64, name: &str| {
        let tenths = (nanos * 10 + nanos_each / 2) / nanos_each;
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    };
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => unit(1_000, "µs"),
        _ => unit(1_000_000, "ms"),
    }
}

fn ratio(ours: u64, limit: u64) -> String {
    let tenths = (ours * 10 + limit / 2) / limit.max(1);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_sorted_times() {
        let samples = Samples((1..=200).rev().collect());
        assert_eq!(
            samples.spread(),
            Spread {
                count: 200,
                p50_ns: 100,
                p99_ns: 198
            }
        );

        assert_eq!(
            Samples(vec![7]).spread(),
            Spread {
                count: 1,
                p50_ns: 7,
                p99_ns: 7
            }
        );
    }

    #[test]
    fn times_are_shown_with_one_decimal() {
        assert_eq!(
            (shown(999), shown(2_960), shown(1_234_567)),
            ("999 ns".into(), "3.0 µs".into(), "1.2 ms".into())
        );
        assert_eq!(ratio(29, 10), "2.9");
    }
}
