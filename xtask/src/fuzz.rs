//! Random inputs for parsers.

use anyhow::Result;
use clap::Args;

use crate::step::Step;

/// Which inputs run.
#[derive(Args)]
pub(crate) struct Inputs {
    /// How long each target runs
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The seed of the first input; drawn from the clock without it
    #[arg(long)]
    seed: Option<u64>,
    /// Run this target only: a file of lab/fuzz/corpus without `.txt`
    target: Option<String>,
}

/// Runs the kept inputs and random ones. `cargo xtask test` runs them briefly, with all tests.
pub(crate) fn run(inputs: &Inputs) -> Result<()> {
    let test = "test --quiet --workspace --all-features --test fuzz --";
    let mut step = Step::cargo("random inputs", test);
    step = step.env("FUZZ_SECONDS", &inputs.seconds.to_string());

    if let Some(seed) = inputs.seed {
        step = step.env("FUZZ_SEED", &seed.to_string());
    }
    if let Some(target) = &inputs.target {
        step = step.args(["--exact", target]);
    }
    step.run()
}
