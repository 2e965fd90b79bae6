//! Faults of the data of a Redis server, of its connections, and of the rights of its clients.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use lab_servers::Redis;

use super::{ended_now, instant, millis, wait};
use crate::backends::redis::USER;
use crate::backends::{Backend, Capability};
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now, until_within};

/// Draws the servers of a minority.
fn minority<'a>(run: &'a FaultRun, random: &mut Random) -> Vec<&'a Redis> {
    let servers = run.testbed.servers_of::<Redis>();
    let which = run.minority(random);
    which.into_iter().map(|number| servers[number]).collect()
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
    both.send(
        &[
            lab_servers::request(&["MULTI"]),
            lab_servers::request(&taken),
            lab_servers::request(&put),
        ]
        .concat(),
    )?;
    both.send(&lab_servers::request(&["EXEC"]))?;

    for _ in 0..4 {
        both.receive_reply()?;
    }
    let since = now();
    wait(time);
    let refused = errors(redis, "WRONGTYPE") + errors(redis, "ERR") - before;
    let kept = redis.command(&["TYPE", &key]).text() == "list";
    redis.command(&taken);
    anyhow::ensure!(kept, "the data of another application was overwritten");

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
