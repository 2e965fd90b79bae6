//! The steps of a task: how long each one took, beside its budget, and which ones failed.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::step::Step;

/// The steps that have run. All steps run, also after one that fails.
pub(crate) struct Timings {
    began: Instant,
    steps: Vec<Timing>,
    failures: Vec<String>,
}

struct Timing {
    name: String,
    took: Duration,
    /// In seconds. A step that takes longer does not fail, because machines differ.
    budget: u64,
    passed: bool,
}

impl Timings {
    pub(crate) fn begin() -> Self {
        Self {
            began: Instant::now(),
            steps: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn run_step(&mut self, step: &Step, budget: u64) {
        self.run(step.name(), budget, || step.run());
    }

    /// Runs a step, whose budget is in seconds.
    pub(crate) fn run(&mut self, name: &str, budget: u64, step: impl FnOnce() -> Result<()>) {
        println!("xtask: {name} …");
        let start = Instant::now();
        let outcome = step();

        let timing = Timing {
            name: name.to_owned(),
            took: start.elapsed(),
            budget,
            passed: outcome.is_ok(),
        };
        println!("xtask: {timing}");
        self.steps.push(timing);
        self.failures
            .extend(outcome.err().map(|error| format!("{error:#}")));
    }

    /// Ends a task whose other steps need those that have run.
    pub(crate) fn stop_if_failed(&mut self, task: &str) -> Result<()> {
        if self.failures.is_empty() {
            Ok(())
        } else {
            self.conclude(task)
        }
    }

    /// Prints the table, and fails if a step has failed.
    pub(crate) fn conclude(&self, task: &str) -> Result<()> {
        println!("\nxtask: {task}, by step\n{self}");

        ensure!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        println!(
            "xtask: {task} passed in {} s",
            self.began.elapsed().as_secs()
        );
        Ok(())
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for timing in &self.steps {
            writeln!(f, "  {timing}")?;
        }

        let budget: u64 = self.steps.iter().map(|timing| timing.budget).sum();
        let took = self.began.elapsed().as_secs();
        write!(f, "  {took:>5} s of {budget:>4} s  in all")
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took.as_secs();
        let outcome = if self.passed { "" } else { " FAILED" };

        write!(
            f,
            "{took:>5} s of {:>4} s  {}{outcome}",
            self.budget, self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_run_and_every_failure_is_reported() {
        let mut timings = Timings::begin();
        for step in ["false", "true", "sh"] {
            timings.run_step(&Step::program(step).args(["-c", "exit 3"]), 7);
        }

        let table = timings.to_string();
        assert!(table.contains("0 s of    7 s  false FAILED\n"), "{table}");
        assert!(table.contains("0 s of    7 s  true\n"), "{table}");
        assert!(table.ends_with("0 s of   21 s  in all"), "{table}");
        let error = timings
            .conclude("a task")
            .expect_err("two steps fail")
            .to_string();
        assert!(error.contains("step `false` failed"), "{error}");
        assert!(error.contains("step `sh` failed"), "{error}");
    }
}
