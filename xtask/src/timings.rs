//! Runs the steps of a task, and prints how long each one took beside its budget.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::step::Step;

/// A step of a task.
pub(crate) struct Timed {
    name: String,
    /// In seconds. A step that takes longer does not fail, because machines differ.
    budget: u64,
    run: Box<dyn FnOnce() -> Result<()>>,
}

impl Timed {
    pub(crate) fn new(name: &str, budget: u64, run: impl FnOnce() -> Result<()> + 'static) -> Self {
        Self {
            name: name.to_owned(),
            budget,
            run: Box::new(run),
        }
    }

    pub(crate) fn step(step: Step, budget: u64) -> Self {
        Self {
            name: step.name().to_owned(),
            budget,
            run: Box::new(move || step.run()),
        }
    }
}

/// Runs all steps, also after one that fails, and prints a table of them.
pub(crate) fn run_all(task: &str, steps: Vec<Timed>) -> Result<()> {
    let task_began = Instant::now();
    let mut budgets = 0;
    let mut table = String::new();
    let mut failures = String::new();

    for Timed { name, budget, run } in steps {
        println!("xtask: {name} …");
        let began = Instant::now();
        let outcome = run();

        let seconds = began.elapsed().as_secs();
        let row = row(&name, outcome.is_ok(), seconds, budget);
        println!("xtask: {row}");
        writeln!(table, "  {row}")?;
        if let Err(error) = outcome {
            writeln!(failures, "{error:#}")?;
        }
        budgets += budget;
    }

    let seconds = task_began.elapsed().as_secs();
    println!("\nxtask: {task}, by step\n{table}  {seconds:>5} s (usually {budgets} s) in all");
    ensure!(failures.is_empty(), "{}", failures.trim_end());
    println!("xtask: {task} passed in {seconds} s");
    Ok(())
}

/// The line of a step. A step that is slower than usual has not failed.
fn row(name: &str, passed: bool, seconds: u64, budget: u64) -> String {
    let outcome = match passed {
        false => "FAILED",
        true if seconds > budget => "passed; the first run after a change compiles",
        true => "passed",
    };
    format!("{seconds:>5} s (usually {budget} s) {name}: {outcome}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_step_does_not_look_like_a_failed_one() {
        assert_eq!(
            row("lints", true, 8, 20),
            "    8 s (usually 20 s) lints: passed"
        );
        assert!(row("lints", true, 623, 20).contains("lints: passed; the first run"));
        assert!(row("lints", false, 8, 20).ends_with("lints: FAILED"));
    }

    #[test]
    fn all_steps_run_and_every_failure_is_reported() {
        let steps = ["false", "true", "sh"].map(|program| {
            let step = Step::program(program).args(["-c", "exit 3"]);
            Timed::step(step, 7)
        });

        let error = run_all("a task", steps.into())
            .expect_err("two steps fail")
            .to_string();
        assert!(error.contains("step `false` failed"), "{error}");
        assert!(error.contains("step `sh` failed"), "{error}");
    }
}
