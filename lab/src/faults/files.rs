//! Faults of a folder.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{ended_now, instant, persistence, wait};
use crate::backends::Capability;
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now};

fn files(run: &FaultRun, name: &str) -> [PathBuf; 2] {
    ["lock", "queue"].map(|ending| run.testbed.store().join(format!("{name}.{ending}")))
}

/// Deletes the two files of a name.
pub(super) fn files_unlinked(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    for file in files(run, &name) {
        match fs::remove_file(&file) {
            // The name was free, and its last holder removed the files.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("cannot delete {}", file.display()))?,
        }
    }
    Ok(Some(instant(format!("the files of {name}"))))
}

/// Replaces the file that flock(1) locks by another.
pub(super) fn replaced(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let [lock, _] = files(run, &name);
    let other = run.testbed.store().join(format!(".{name}.other"));
    fs::write(&other, "")?;
    fs::rename(&other, &lock)?;
    Ok(Some(instant(format!("{name}.lock"))))
}

/// No new file can be written. Known names still work; a new name is refused, and granted when
/// there is space again.
pub(super) fn disk_full(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    if !run.cell.backend.has(Capability::Folder) {
        return persistence::disk_full(run, random);
    }
    let time = run.plan.length;

    let fill = run.testbed.store().with_file_name("fill");
    let new = format!("new-{}", run.injections.len());
    let filled = std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(&fill)?);
    ensure!(filled.is_err(), "the disk never becomes full");

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
        .context("with space on the disk again")?;
    for file in files(run, &new) {
        fs::remove_file(file)?;
    }
    Ok(is_full.then_some(effect))
}
