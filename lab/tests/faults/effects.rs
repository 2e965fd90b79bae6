//! A fault that does not do what it says fails the run, or counts as one without an effect.

use anyhow::{Result, ensure};
use lab::Random;
use lab::fault_run::FaultRun;
use lab::matrix::cell_named;

use super::WORKER;

fn run_on_files(fault: &str) -> Result<FaultRun> {
    let cell = cell_named("file", fault)?;
    let testbed = (cell.backend.start)(WORKER, cell.fault.requires)?;
    FaultRun::begin(&cell, testbed, 0)
}

#[test]
fn worker_that_fails_before_its_step_fails_the_run() -> Result<()> {
    let mut run = run_on_files("killed-at-step")?;
    run.config.store = "nowhere:".to_owned();

    let injected = (run.cell.fault.inject)(&mut run, &mut Random::seeded(0));
    ensure!(injected.is_err(), "{injected:?}");
    Ok(())
}

/// The names have no files, except that of the long holder.
#[test]
fn files_that_do_not_exist_are_not_unlinked() -> Result<()> {
    let mut run = run_on_files("files-unlinked")?;
    run.config.names = ["x", "y", "z"].map(str::to_owned).to_vec();

    for seed in 0..10 {
        let effect = (run.cell.fault.inject)(&mut run, &mut Random::seeded(seed))?;
        ensure!(
            effect
                .as_ref()
                .is_none_or(|effect| effect.evidence.contains("long")),
            "{effect:?}"
        );
    }
    Ok(())
}
