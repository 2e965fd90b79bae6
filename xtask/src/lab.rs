//! The matrix of stores and faults.

use anyhow::Result;

use crate::needs;
use crate::step::Step;

/// Lists cells, or runs one, some or all of them; see `lab/src/bin/lab.rs`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let lists = args.iter().any(|arg| arg == "--list");
    if !lists {
        needs::meet()?;
    }
    Step::cargo("the lab", "build --quiet -p lab --bins").run_quietly()?;
    args.iter()
        .fold(Step::cargo("the matrix", "run --quiet -p lab --bin lab --"), |step, arg| step.arg(arg))
        .run_quietly()
}
