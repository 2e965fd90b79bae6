//! Faults that only Redis servers have: of their data, in memory and on disk, and of their clients.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab_servers::{Raw, Redis, Reply, request};

use super::{ended_now, instant, millis, recovered_now, wait, whole};
use crate::backends::redis::USER;
use crate::backends::{Backend, Capability};
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now, until, until_within};

/// Draws the servers of a minority.
fn minority<'a>(run: &'a FaultRun, random: &mut Random) -> Vec<&'a Redis> {
    numbered(run, &run.minority(random))
}

fn numbered<'a>(run: &'a FaultRun, which: &[usize]) -> Vec<&'a Redis> {
    let servers = run.testbed.servers_of::<Redis>();
    which.iter().map(|&number| servers[number]).collect()
}

pub(super) fn connections_killed(
    run: &mut FaultRun,
    random: &mut Random,
) -> Result<Option<Effect>> {
    let servers = minority(run, random);
    let kind = if random.below(2) == 0 {
        "normal"
    } else {
        "pubsub"
    };
    let count: i64 = servers
        .iter()
        .map(|server| server.command(&["CLIENT", "KILL", "TYPE", kind]).int())
        .sum();

    Ok((count > 0).then(|| instant(format!("{count} {kind} connections"))))
}

pub(super) fn scripts_flushed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let servers = minority(run, random);
    let misses = servers.iter().map(|server| errors(server, "NOSCRIPT"));
    let before: u64 = misses.clone().sum();

    for server in &servers {
        server.command(&["SCRIPT", "FLUSH"]);
    }
    let effect = instant(String::new());
    let count = until_within(Duration::from_secs(5), "a script to be missed", || {
        Ok(Some(misses.clone().sum::<u64>() - before).filter(|count| *count > 0))
    });
    Ok(count.ok().map(|count| Effect {
        evidence: format!("{count} scripts missed"),
        ..effect
    }))
}

/// How many requests a server has refused with this error.
pub(super) fn errors(redis: &Redis, kind: &str) -> u64 {
    info_number(
        &redis.info("errorstats"),
        &format!("errorstat_{kind}:count="),
    )
}

/// The number in the line of INFO that begins with `field`, or 0.
pub(super) fn info_number(info: &str, field: &str) -> u64 {
    info.lines()
        .find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
        .unwrap_or(0)
}

pub(super) fn flushall(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let servers = minority(run, random);
    let mut count = 0;
    for server in servers {
        count += server.command(&["DBSIZE"]).int();
        server.command(&["FLUSHALL"]);
    }
    Ok((count > 0).then(|| instant(format!("{count} keys"))))
}

/// Deletes all keys of one lock.
pub(super) fn keys_deleted(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let servers = minority(run, random);
    let mut count = 0;
    for server in servers {
        for key in keys_of(server, run.cell.backend, &name) {
            count += server.command(&["DEL", &key]).int();
        }
    }
    Ok((count > 0).then(|| instant(format!("{count} keys of {name}"))))
}

fn keys_of(redis: &Redis, backend: &Backend, name: &str) -> Vec<String> {
    let pattern = if backend.has(Capability::PlainKeys) {
        name.to_owned()
    } else {
        format!("leasehold:*{{{name}}}*")
    };
    redis
        .command(&["KEYS", &pattern])
        .texts()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// Renames all keys of one lock. Then deletes them, or renames them back over the keys that exist
/// by then.
pub(super) fn keys_renamed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let is_undone = random.below(2) == 0;
    let time = millis(random, 50, 400);
    let servers = minority(run, random);
    let since = now();

    let mut renamed = Vec::new();
    for server in servers {
        for key in keys_of(server, run.cell.backend, &name) {
            let other = format!("other:{key}");
            // The key may have been deleted meanwhile.
            if !server.request(&["RENAME", &key, &other]).is_error() {
                renamed.push((server, key, other));
            }
        }
    }

    if is_undone {
        wait(time);
    }
    for (redis, key, other) in &renamed {
        let words: &[&str] = if is_undone {
            &["RENAME", other, key]
        } else {
            &["DEL", other]
        };
        // The key may have expired.
        let _ = redis.request(words);
    }
    let evidence = format!(
        "{} keys of {name}{}",
        renamed.len(),
        if is_undone { ", and back" } else { "" }
    );
    Ok((!renamed.is_empty()).then(|| ended_now(since, evidence)))
}

/// Removes the expiry of all keys of one lock.
pub(super) fn keys_persisted(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let redis = run.testbed.servers_of::<Redis>()[0];
    let keys = keys_of(redis, run.cell.backend, &name);
    let count: i64 = keys
        .iter()
        .map(|key| redis.command(&["PERSIST", key]).int())
        .sum();
    let effect = (count > 0).then(|| instant(format!("{count} keys of {name}")));

    // On these stores only an expiry ends the hold of a client that was killed before this fault.
    // An operator frees a key that nobody has renewed for a lease.
    if effect.is_some() && run.cell.backend.has(Capability::PlainKeys) {
        sleep(run.lease());
        for key in &keys {
            redis.command(&["EVAL", FREE_UNRENEWED, "1", key]);
        }
    }
    Ok(effect)
}

/// Deletes a key that has no expiry.
const FREE_UNRENEWED: &str =
    "if redis.call('PTTL', KEYS[1]) == -1 then redis.call('DEL', KEYS[1]) end";

/// Puts another application's list in the place of a lock for a while.
pub(super) fn wrong_type(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let name = run.draw_name(random);
    let time = millis(random, 200, 700);
    let key = if run.cell.backend.has(Capability::PlainKeys) {
        name.clone()
    } else {
        format!("leasehold:{{{name}}}")
    };
    let redis = run.testbed.servers_of::<Redis>()[0];
    let before = errors(redis, "WRONGTYPE") + errors(redis, "ERR");
    let taken = ["DEL", &key];
    let put = ["RPUSH", &key, "another", "application's"];
    let mut both = redis.connection();
    both.send(&[request(&["MULTI"]), request(&taken), request(&put)].concat())?;
    both.send(&request(&["EXEC"]))?;

    for _ in 0..4 {
        both.receive_reply()?;
    }
    let since = now();
    wait(time);
    let refused = errors(redis, "WRONGTYPE") + errors(redis, "ERR") - before;
    let kept = redis.command(&["TYPE", &key]).text() == "list";
    redis.command(&taken);
    ensure!(kept, "the data of another application was overwritten");

    Ok((refused > 0).then(|| ended_now(since, format!("{name}: {refused} refused"))))
}

/// Lets the server refuse requests for a while.
fn refusing(run: &FaultRun, kind: &str, on: &[&str], off: &[&str]) -> Option<Effect> {
    let redis = run.testbed.servers_of::<Redis>()[0];
    let time = run.plan.length;
    let before = errors(redis, kind);
    redis.command(on);
    let since = now();
    wait(time);
    let refused = errors(redis, kind) - before;
    let effect = ended_now(since, format!("{refused} refused in {time:?}"));
    redis.command(off);

    (refused > 0).then_some(effect)
}

pub(super) fn out_of_memory(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let on = ["CONFIG", "SET", "maxmemory", "1"];
    let off = ["CONFIG", "SET", "maxmemory", "0"];
    Ok(refusing(run, "OOM", &on, &off))
}

pub(super) fn writes_refused(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let set = |count| ["CONFIG", "SET", "min-replicas-to-write", count];
    Ok(refusing(run, "NOREPLICAS", &set("1"), &set("0")))
}

/// Makes the server a replica of a master that does not exist.
pub(super) fn read_only(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let on = ["REPLICAOF", "127.0.0.1", "1"];
    let off = ["REPLICAOF", "NO", "ONE"];
    Ok(refusing(run, "READONLY", &on, &off))
}

/// Lets the server evict keys to free memory, which a server with locks must not be configured to
/// do.
pub(super) fn evicted(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let time = millis(random, 50, 300);
    let redis = run.testbed.servers_of::<Redis>()[0];
    let set = |policy, most| {
        redis.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        redis.command(&["CONFIG", "SET", "maxmemory", most]);
    };
    let count = || info_number(&redis.info("stats"), "evicted_keys:");
    let before = count();
    set("allkeys-random", "1");
    let since = now();
    wait(time);
    let effect = ended_now(since, format!("{} keys in {time:?}", count() - before));
    set("noeviction", "0");

    Ok((count() > before).then_some(effect))
}

pub(super) fn rights_revoked(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let set = |rights| ["ACL", "SETUSER", USER, rights];
    Ok(refusing(run, "NOPERM", &set("-@scripting"), &set("+@all")))
}

/// In milliseconds: how long a script runs before the server replies that it is busy.
const BUSY_AFTER: &str = "20";

/// Another client's script runs until it is killed.
pub(super) fn busy_script(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    let time = run.plan.length;
    let servers = numbered(run, &which);
    let count = || {
        servers
            .iter()
            .map(|redis| errors(redis, "BUSY"))
            .sum::<u64>()
    };
    let before = count();
    let scripts = servers
        .iter()
        .map(|redis| occupied(redis))
        .collect::<Result<Vec<_>>>()?;

    let since = now();
    wait(time);
    let effect = ended_now(since, String::new());
    for (redis, mut script) in servers.iter().zip(scripts) {
        redis.command(&["SCRIPT", "KILL"]);
        ensure!(
            script.receive_reply()?.is_error(),
            "the script ended by itself"
        );
    }

    // The count includes the lab's own scripts.
    let refused = (count() - before).saturating_sub(which.len() as u64);
    let evidence = format!("servers {which:?} refused {refused} requests as busy");
    Ok((refused > 0).then(|| recovered_now(Effect { evidence, ..effect })))
}

/// Starts an endless script, and returns its connection once the server replies that it is busy.
fn occupied(redis: &Redis) -> Result<Raw> {
    redis.command(&["CONFIG", "SET", "busy-reply-threshold", BUSY_AFTER]);
    let mut script = redis.connection();
    script.send(&request(&["EVAL", "while true do end", "0"]))?;
    until("a server to be busy", || {
        Ok(
            matches!(redis.request(&["PING"]), Reply::Error(error) if error.starts_with("BUSY"))
                .then_some(()),
        )
    })?;
    Ok(script)
}

/// More than the server buffers for a subscriber.
const TOO_MUCH: usize = 200 * 1024;

/// Another client publishes more on every channel than the server buffers, so that the server
/// closes the connections of all subscribers.
pub(super) fn output_buffer_overflow(
    run: &mut FaultRun,
    random: &mut Random,
) -> Result<Option<Effect>> {
    let junk = "x".repeat(TOO_MUCH);
    let mut events = 0;
    let mut dropped = 0;
    for redis in minority(run, random) {
        let limit = |limit| redis.command(&["CONFIG", "SET", "client-output-buffer-limit", limit]);
        let drops = || {
            redis
                .log()
                .matches("overcoming of output buffer limits")
                .count()
        };

        let before = drops();
        limit("pubsub 65536 0 0");
        for channel in redis
            .command(&["PUBSUB", "CHANNELS", "leasehold:*"])
            .texts()
        {
            events += redis.command(&["PUBLISH", channel, &junk]).int();
        }

        limit("pubsub 33554432 8388608 60");
        dropped += drops() - before;
    }
    Ok((dropped > 0).then(|| instant(format!("{dropped} of {events} connections"))))
}

/// The server has no memory left for clients, and closes all their connections.
pub(super) fn clients_evicted(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let time = run.plan.length;
    let servers = minority(run, random);
    let mut own = servers.into_iter().map(kept).collect::<Result<Vec<_>>>()?;

    let before = own.iter_mut().map(evictions).sum::<Result<u64>>()?;
    own.iter_mut().try_for_each(|raw| room(raw, "1"))?;

    let since = now();
    wait(time);
    let count = own.iter_mut().map(evictions).sum::<Result<u64>>()? - before;
    let effect = ended_now(since, format!("{count} connections in {time:?}"));

    own.iter_mut().try_for_each(|raw| room(raw, "0"))?;
    Ok((count > 0).then(|| recovered_now(effect)))
}

/// A connection that the server does not close for lack of memory.
fn kept(redis: &Redis) -> Result<Raw> {
    let mut raw = redis.connection();
    let kept = raw.request(&["CLIENT", "NO-EVICT", "on"])?;
    ensure!(!kept.is_error(), "{kept:?}");
    Ok(raw)
}

fn room(raw: &mut Raw, bytes: &str) -> Result<()> {
    let set = raw.request(&["CONFIG", "SET", "maxmemory-clients", bytes])?;
    ensure!(!set.is_error(), "{set:?}");
    Ok(())
}

fn evictions(raw: &mut Raw) -> Result<u64> {
    let stats = raw.request(&["INFO", "stats"])?;
    Ok(info_number(stats.text(), "evicted_clients:"))
}

/// Kills the servers and cuts off the end of their append-only files, as a disk that loses power
/// does. The last record is torn.
pub(super) fn aof_truncated(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    let servers = numbered(run, &which).into_iter();
    let files = servers
        .map(|server| newest(server.folder()))
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
    numbered(run, &which)
        .into_iter()
        .try_for_each(rewritten_with_bulk)?;
    for &number in &which {
        run.testbed.server_mut(number).kill();
    }
    let since = now();

    for &number in &which {
        run.testbed.server_mut(number).restart();
    }
    let servers = numbered(run, &which).into_iter();
    let refused: u64 = servers.map(|server| errors(server, "LOADING")).sum();
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
