//! Faults of a folder.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lab_servers::Postgres;

use super::{ended_now, instant, redis, wait};
use crate::backends::Capability;
use crate::backends::file::folder;
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now};

fn files(run: &FaultRun, name: &str) -> [PathBuf; 2] {
    ["lock", "queue"].map(|ending| folder(&run.testbed).join(format!("{name}.{ending}")))
}

/// Deletes the two files of a name.
pub(super) fn files_unlinked(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let mut count = 0;
    for file in files(run, &name) {
        match fs::remove_file(&file) {
            // The name was free, and its last holder removed the files.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => {
                removed.with_context(|| format!("cannot delete {}", file.display()))?;
                count += 1;
            }
        }
    }
    Ok((count > 0).then(|| instant(format!("{count} files of {name}"))))
}

/// Replaces the file that flock(1) locks by another.
pub(super) fn replaced(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let [lock, _] = files(run, &name);
    let other = folder(&run.testbed).join(format!(".{name}.other"));
    fs::write(&other, "")?;
    fs::rename(&other, &lock)?;
    Ok(Some(instant(format!("{name}.lock"))))
}

/// No new file can be written, and no table can grow. Known names still work; a new name is
/// refused, and granted when there is space again.
pub(super) fn disk_full(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let stores = [Capability::Folder, Capability::DurableGrants];
    if !run.cell.backend.has_any(&stores) {
        return redis::disk_full(run, random);
    }
    let time = run.plan.length;
    for server in run.testbed.servers_of::<Postgres>() {
        // A server that cannot begin another file of its log ends for good.
        server.run("SELECT pg_switch_wal(); CHECKPOINT");
    }

    let disk = run.testbed.disk.as_ref();
    let fill = disk.context("the disk is small")?.path().join("fill");
    let filled = std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(&fill)?);
    ensure!(filled.is_err(), "the disk never becomes full");

    let since = now();
    let testbed = &run.testbed;
    let use_once = |name: &str| {
        let lock = testbed.locks().mutex(name);
        testbed.run(async {
            match lock.try_acquire().await? {
                Ok(held) => held.release().await,
                Err(_refused) => Ok(()),
            }
        })
    };
    let names = (0..NEW_NAMES_MAX).map(|n| format!("new-{}-{n}", run.injections.len()));
    let refused = names.into_iter().find_map(|name| {
        let error = use_once(&name).err()?;
        Some((name, error.to_string()))
    });

    wait(time);
    fs::remove_file(&fill)?;
    let (new, error) = refused.context("each new name is granted")?;
    let effect = ended_now(since, format!("{new} refused: {error}"));
    use_once(&new).context("with space on the disk again")?;
    if run.cell.backend.has(Capability::Folder) {
        for file in files(run, &new) {
            fs::remove_file(file)?;
        }
    }
    let is_full = ["full", "No space left"]
        .iter()
        .any(|why| error.contains(why));
    Ok(is_full.then_some(effect))
}

/// The pages of a table have space for some new names.
const NEW_NAMES_MAX: u32 = 2_000;
