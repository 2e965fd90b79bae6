//! Faults of the way in which a Redis server treats its clients.

use anyhow::{Result, ensure};
use lab_servers::{Raw, Redis, Reply, request};

use super::redis_state::{errors, info_number};
use super::{ended_now, instant, recovered_now, wait};
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now, until};

/// In milliseconds: how long a script runs before the server replies that it is busy.
const BUSY_AFTER: &str = "20";

/// Another client's script runs until it is killed.
pub(super) fn busy_script(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    let time = run.plan.length;
    let servers: Vec<&Redis> = which
        .iter()
        .map(|&number| run.testbed.servers_of::<Redis>()[number])
        .collect();
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
    for number in run.minority(random) {
        let redis = run.testbed.servers_of::<Redis>()[number];
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
pub(super) fn evicted(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    let time = run.plan.length;
    let mut own = which
        .iter()
        .map(|&number| kept(run.testbed.servers_of::<Redis>()[number]))
        .collect::<Result<Vec<_>>>()?;

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
