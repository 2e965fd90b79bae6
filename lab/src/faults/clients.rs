//! Faults of how a Redis server treats its clients.

use anyhow::{Result, ensure};
use lab_servers::{Raw, Redis, Reply, request};

use super::state::errors;
use super::{at_once, last, lasted, millis};
use crate::storm::{Storm, Struck};
use crate::{Random, now, until};

/// In milliseconds: how long a script runs before the server says that it is busy.
const BUSY_AFTER: &str = "20";

/// Somebody's script does not end, until it is ended by hand.
pub(super) fn busy(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (which, time) = (storm.some(random), millis(random, 300, 1_200));
    let servers: Vec<&Redis> = which.iter().map(|&number| storm.ground.redis()[number]).collect();
    let count = || servers.iter().map(|redis| errors(redis, "BUSY")).sum::<u64>();
    let before = count();
    let scripts = servers.iter().map(|redis| occupied(redis)).collect::<Result<Vec<_>>>()?;
    let since = now();
    last(time);
    let until = now();
    for (redis, mut script) in servers.iter().zip(scripts) {
        redis.command(&["SCRIPT", "KILL"]);
        ensure!(script.hear()?.is_error(), "it has ended by itself");
    }
    // Ours are among them.
    let refused = (count() - before).saturating_sub(which.len() as u64);
    let seen = format!("server {which:?} busy to {refused}");
    Ok((refused > 0).then(|| Struck { since, until, over: now(), seen }))
}

/// Who asked for the script, once the server says that it is busy.
fn occupied(redis: &Redis) -> Result<Raw> {
    redis.command(&["CONFIG", "SET", "busy-reply-threshold", BUSY_AFTER]);
    let mut script = redis.connection();
    script.send(&request(&["EVAL", "while true do end", "0"]))?;
    until("a server to be busy", || {
        Ok(matches!(redis.ask(&["PING"]), Reply::Error(error) if error.starts_with("BUSY")).then_some(()))
    })?;
    Ok(script)
}

/// More than a server keeps for a client that subscribes.
const TOO_MUCH: usize = 200 * 1024;

/// Somebody tells more on every channel than the server keeps for a client: it hangs up on all who listen.
pub(super) fn buffers_dropped(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let junk = "x".repeat(TOO_MUCH);
    let (mut told, mut dropped) = (0, 0);
    for number in storm.some(random) {
        let redis = storm.ground.redis()[number];
        let limit = |limit| redis.command(&["CONFIG", "SET", "client-output-buffer-limit", limit]);
        let drops = || redis.log().matches("overcoming of output buffer limits").count();
        let before = drops();
        limit("pubsub 65536 0 0");
        for channel in redis.command(&["PUBSUB", "CHANNELS", "leasehold:*"]).texts() {
            told += redis.command(&["PUBLISH", channel, &junk]).int();
        }
        limit("pubsub 33554432 8388608 60");
        dropped += drops() - before;
    }
    Ok((dropped > 0).then(|| at_once(format!("{dropped} of {told} connections"))))
}

/// The server has no room for its clients, and hangs up on all.
pub(super) fn evicted(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (which, time) = (storm.some(random), millis(random, 100, 900));
    let mut own = which.iter().map(|&number| kept(storm.ground.redis()[number])).collect::<Result<Vec<_>>>()?;
    let before = own.iter_mut().map(evictions).sum::<Result<u64>>()?;
    own.iter_mut().try_for_each(|raw| room(raw, "1"))?;
    let since = now();
    last(time);
    let count = own.iter_mut().map(evictions).sum::<Result<u64>>()? - before;
    let struck = lasted(since, format!("{count} connections in {time:?}"));
    own.iter_mut().try_for_each(|raw| room(raw, "0"))?;
    Ok((count > 0).then(|| Struck { over: now(), ..struck }))
}

/// A connection that the server does not hang up on.
fn kept(redis: &Redis) -> Result<Raw> {
    let mut raw = redis.connection();
    let kept = raw.ask(&["CLIENT", "NO-EVICT", "on"])?;
    ensure!(!kept.is_error(), "{kept:?}");
    Ok(raw)
}

fn room(raw: &mut Raw, bytes: &str) -> Result<()> {
    let set = raw.ask(&["CONFIG", "SET", "maxmemory-clients", bytes])?;
    ensure!(!set.is_error(), "{set:?}");
    Ok(())
}

fn evictions(raw: &mut Raw) -> Result<u64> {
    let told = raw.ask(&["INFO", "stats"])?;
    let count = told.text().lines().find_map(|line| line.strip_prefix("evicted_clients:")?.trim().parse().ok());
    Ok(count.unwrap_or(0))
}
