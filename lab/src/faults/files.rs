//! Faults of a folder.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{at_once, kept, last, lasted, millis};
use crate::ground::Store;
use crate::storm::{Storm, Struck};
use crate::{Random, now};

fn name(storm: &Storm, random: &mut Random) -> Result<String> {
    Ok(storm.terms.names[usize::try_from(random.below(3))?].clone())
}

fn files(storm: &Storm, name: &str) -> [PathBuf; 2] {
    ["lock", "line"].map(|ending| storm.ground.store().join(format!("{name}.{ending}")))
}

/// The two files of a name.
pub(super) fn unlinked(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let name = name(storm, random)?;
    for file in files(storm, &name) {
        fs::remove_file(&file).with_context(|| format!("{} is there while it is used", file.display()))?;
    }
    Ok(Some(at_once(format!("the files of {name}"))))
}

/// Another file in the place of what flock(1) locks.
pub(super) fn replaced(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let name = name(storm, random)?;
    let [lock, _] = files(storm, &name);
    let other = storm.ground.store().join(format!(".{name}.other"));
    fs::write(&other, "")?;
    fs::rename(&other, &lock)?;
    Ok(Some(at_once(format!("{name}.lock"))))
}

/// Nothing can be written that is not there yet: known names go on, new ones are refused, and granted when there is room.
pub(super) fn disk_full(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    if storm.ground.store != Store::File {
        return kept::disk_full(storm, random);
    }
    let time = millis(random, 300, 900);
    let fill = storm.ground.store().with_file_name("fill");
    let new = format!("new-{}", storm.strikes.len());
    let filled = std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(&fill)?);
    ensure!(filled.is_err(), "the disk has no end");
    let since = now();
    let site = &storm.ground;
    let refused = site.run(site.locks().mutex(&new).try_acquire());
    last(time);
    fs::remove_file(&fill)?;
    let struck = lasted(
        since,
        format!("{new} refused: {}", refused.as_ref().err().map(ToString::to_string).unwrap_or_default()),
    );
    let is_full = refused.is_err_and(|error| error.to_string().contains("full"));
    site.run(async { site.locks().mutex(&new).acquire().await?.release().await }).context("with room again")?;
    for file in files(storm, &new) {
        fs::remove_file(file)?;
    }
    Ok(is_full.then_some(struck))
}
