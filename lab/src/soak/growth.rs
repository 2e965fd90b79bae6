//! Whether a measured value grows without a bound.

use std::fmt;

use anyhow::{Result, ensure};

/// Fewer values than this show nothing.
const LEN_MIN: usize = 16;

/// The values of one measured quantity, in the order of time.
#[derive(Clone, Debug)]
pub(super) struct Series {
    what: String,
    /// Growth up to this does not count: a thread that runs for a while, or an entry that stays a
    /// while.
    slack: u64,
    values: Vec<u64>,
}

impl Series {
    pub(super) fn new(what: &str, slack: u64) -> Self {
        Self {
            what: what.to_owned(),
            slack,
            values: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, value: u64) {
        self.values.push(value);
    }

    /// Compares the least value of the last quarter with the greatest of the second quarter. The
    /// first quarter is the start of the process. A peak does not count, and a leak never shrinks.
    ///
    /// # Errors
    /// If the value has grown.
    pub(super) fn check(&self) -> Result<()> {
        if self.values.len() < LEN_MIN {
            return Ok(());
        }

        let (before, after) = self.quarters();
        ensure!(
            after <= before + self.slack,
            "{} grew from at most {before} to at least {after}: {:?}",
            self.what,
            self.values
        );
        Ok(())
    }

    /// Returns the greatest value of the second quarter and the least of the last quarter.
    fn quarters(&self) -> (u64, u64) {
        let quarter = (self.values.len() / 4).max(1).min(self.values.len());
        let second = self.values.iter().skip(quarter).take(quarter);
        let last = self.values.iter().rev().take(quarter);
        let before = second.max().or(self.values.first());
        (
            before.copied().unwrap_or_default(),
            last.min().copied().unwrap_or_default(),
        )
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.quarters();
        write!(f, "{} {before} → {after}", self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut series = Series::new("descriptors", 4);
        values.into_iter().for_each(|value| series.push(value));
        series.check()
    }

    #[test]
    fn least_growth_beyond_the_slack_is_detected() {
        let grows_to = |last| (0..40).map(move |at| if at < 30 { 10 } else { last });

        check(grows_to(14)).expect("the slack allows it");
        check(grows_to(15)).expect_err("it is beyond the slack");
    }

    #[test]
    fn slow_leak_is_detected() {
        check((0..400).map(|at| 20 + at / 25)).expect_err("every 25th step leaks one");
    }

    #[test]
    fn start_and_peaks_do_not_count() {
        check((0..40).map(|at| at.min(10))).expect("it grows only at the start");
        check((0..40).map(|at| if at % 9 == 0 { 900 } else { 9 })).expect("peaks pass");
        check([1, 100, 10_000]).expect("too few values show nothing");
    }
}
