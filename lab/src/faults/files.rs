//! Faults of a folder.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{ended_now, instant, millis, persistence, wait};
use crate::backends::Capability;
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now};

fn files(run: &FaultRun, name: &str) -> [PathBuf; 2] {
    ["lock", "queue"].map(|ending| run.testbed.store().join(format!("{name}.{ending}")))
}

/// The two files of a name.
pub(super) fn files_unlinked(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    for file in files(run, &name) {
        fs::remove_file(&file)
            .with_context(|| format!("{} is there while it is used", file.display()))?;
    }
    Ok(Some(instant(format!("the files of {name}"))))
}

/// Another file in the place of what flock(1) locks.
pub(super) fn replaced(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let [lock, _] = files(run, &name);
    let other = run.testbed.store().join(format!(".{name}.other"));
    fs::write(&other, "")?;
    fs::rename(&other, &lock)?;
    Ok(Some(instant(format!("{name}.lock"))))
}

/// Nothing can be written that is not there yet: known names go on, new ones are refused, and granted when there is room.
pub(super) fn disk_full(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    if !run.backend.has(Capability::Folder) {
        return persistence::disk_full(run, random);
    }
    let time = millis(random, 300, 900);
    let fill = run.testbed.store().with_file_name("fill");
    let new = format!("new-{}", run.injections.len());
    let filled = std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(&fill)?);
    ensure!(filled.is_err(), "the disk has no end");
    let since = now();
    let testbed = &run.testbed;
    let refused = testbed.run(testbed.locks().mutex(&new).try_acquire());
    wait(time);
    fs::remove_file(&fill)?;
    let effect = ended_now(
        since,
        format!(
            "{new} refused: {}",
            refused
                .as_ref()
                .err()
                .map(ToString::to_string)
                .unwrap_or_default()
        ),
    );
    let is_full = refused.is_err_and(|error| error.to_string().contains("full"));
    testbed
        .run(async { testbed.locks().mutex(&new).acquire().await?.release().await })
        .context("with room again")?;
    for file in files(run, &new) {
        fs::remove_file(file)?;
    }
    Ok(is_full.then_some(effect))
}
