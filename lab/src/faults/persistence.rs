//! Faults of the data that a Redis server keeps on disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lab_servers::Redis;

use super::redis_state::errors;
use super::{ended_now, instant, millis, recovered_now, wait, whole};
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now, until};

/// Kills the servers and cuts off the end of their append-only files, as a disk that loses power
/// does. The last record is torn.
pub(super) fn aof_truncated(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    let files = which
        .iter()
        .map(|&number| newest(run.testbed.servers_of::<Redis>()[number].folder()))
        .collect::<Result<Vec<_>>>()?;
    let synced = files
        .iter()
        .map(|file| Ok(fs::metadata(file)?.len()))
        .collect::<Result<Vec<_>>>()?;

    let since = now();
    wait(millis(random, 50, 400));

    let forgotten = run.grants_since(since)?;
    for &number in &which {
        run.testbed.server_mut(number).kill();
    }

    let mut cut = 0;
    for (file, synced) in files.iter().zip(synced) {
        let file = File::options().write(true).open(file)?;
        let written = file.metadata()?.len();
        // Fewer bytes than any request of a client has.
        let left = (synced + 1 + random.below(40)).min(written);
        file.set_len(left)?;
        cut += written - left;
    }
    let effect = instant(format!(
        "{cut} bytes of servers {which:?}, {forgotten} grants since"
    ));
    for &number in &which {
        run.testbed.server_mut(number).restart();
    }
    whole(run, effect).map(|effect| (cut > 0 && forgotten > 0).then_some(effect))
}

/// The file to which a server appends.
fn newest(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder.join("appendonlydir"))?.collect::<Result<Vec<_>, _>>()?;
    let files = entries.iter().map(fs::DirEntry::path);
    let mut appended: Vec<PathBuf> = files
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .collect();
    appended.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
    appended.pop().context("the server has no append-only file")
}

/// Data that takes a while to load, in a database without locks.
const BULK: &str =
    "redis.call('SELECT', '1') for i = 1, 300 do redis.call('SET', i, string.rep('x', 1024)) end";

/// Kills the servers and restarts them with so much data that they reply LOADING for a while.
pub(super) fn loading(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    for &number in &which {
        rewritten_with_bulk(run.testbed.servers_of::<Redis>()[number])?;
    }
    for &number in &which {
        run.testbed.server_mut(number).kill();
    }
    let since = now();

    for &number in &which {
        run.testbed.server_mut(number).restart();
    }
    let refused: u64 = which
        .iter()
        .map(|&number| errors(run.testbed.servers_of::<Redis>()[number], "LOADING"))
        .sum();
    let effect = ended_now(
        since,
        format!("servers {which:?} refused {refused} requests as loading"),
    );
    whole(run, effect).map(|effect| (refused > 0).then_some(effect))
}

/// Moves all data to one file that the server loads piece by piece.
fn rewritten_with_bulk(redis: &Redis) -> Result<()> {
    redis.command(&["EVAL", BULK, "0"]);
    redis.command(&["BGREWRITEAOF"]);

    until("a server to rewrite its file", || {
        let events = redis.info("persistence");
        let under_way = ["in_progress:1", "scheduled:1"]
            .iter()
            .any(|end| events.contains(&format!("aof_rewrite_{end}")));
        ensure!(
            under_way || events.contains("aof_last_bgrewrite_status:ok"),
            "the rewrite failed: {events}"
        );
        Ok((!under_way).then_some(()))
    })
}

/// The server cannot append any more, and refuses writes.
pub(super) fn disk_full(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let time = run.plan.length;
    let redis = run.testbed.servers_of::<Redis>()[0];
    let fill = run
        .testbed
        .disk
        .as_ref()
        .context("the disk of the server is small")?
        .path()
        .join("fill");

    let status = |is: &str| {
        let line = format!("aof_last_write_status:{is}");
        until(&line, || {
            Ok(redis.info("persistence").contains(&line).then_some(()))
        })
    };

    let before = errors(redis, "MISCONF");
    let filled = std::io::copy(&mut std::io::repeat(0), &mut File::create(&fill)?);
    ensure!(filled.is_err(), "the disk never becomes full");
    status("err")?;

    let since = now();
    wait(time);
    let refused = errors(redis, "MISCONF") - before;
    let effect = ended_now(since, format!("{refused} refused in {time:?}"));
    fs::remove_file(&fill)?;
    status("ok")?;
    Ok((refused > 0).then(|| recovered_now(effect)))
}
