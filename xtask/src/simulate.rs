//! Histories in virtual time.

use anyhow::Result;
use clap::Args;

use crate::step::Step;

/// The histories of the engine. They need about 200 seconds of a core.
const SEEDS: u64 = 100_000;

/// Which histories run.
#[derive(Args)]
pub(crate) struct Histories {
    /// How many histories to run; each has a seed
    #[arg(long, default_value_t = SEEDS, default_value_if("scripts", "true", "1000"))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many threads run histories
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Run the stores on Redis with their scripts; 1,000 histories if `--seeds` is not given
    #[arg(long)]
    scripts: bool,
    /// Run jobs once, six in each history
    #[arg(long, conflicts_with = "scripts")]
    once: bool,
}

/// Runs the histories, and prints the timeline of the first violation.
pub(crate) fn run(histories: &Histories) -> Result<()> {
    let Histories {
        seeds, from, jobs, ..
    } = histories;
    let simulate = format!(
        "run --quiet --release -p lab-simulation --bin simulate -- \
         --seeds {seeds} --from {from} --jobs {jobs}"
    );

    let scripts = histories.scripts.then_some("--scripts");
    let once = histories.once.then_some("--once");
    let kind = scripts.or(once);
    Step::cargo("simulation", &simulate).args(kind).run()
}
