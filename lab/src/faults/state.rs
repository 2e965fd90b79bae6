//! Faults of what a Redis server keeps, of its connections, and of what it lets its clients do.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Redis;

use super::{at_once, last, lasted, millis};
use crate::ground::{Store, USER};
use crate::storm::{Storm, Struck};
use crate::{Random, now, until_within};

fn struck(storm: &Storm, random: &mut Random) -> Vec<usize> {
    storm.some(random)
}

pub(super) fn connections_killed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (which, servers) = (struck(storm, random), storm.ground.redis());
    let kind = if random.below(2) == 0 { "normal" } else { "pubsub" };
    let kill = |number: &usize| servers[*number].command(&["CLIENT", "KILL", "TYPE", kind]).int();
    let count: i64 = which.iter().map(kill).sum();
    Ok((count > 0).then(|| at_once(format!("{count} {kind} connections"))))
}

pub(super) fn scripts_flushed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (which, servers) = (struck(storm, random), storm.ground.redis());
    let count = || which.iter().map(|&number| errors(servers[number], "NOSCRIPT")).sum::<u64>();
    let before = count();
    for &number in &which {
        servers[number].command(&["SCRIPT", "FLUSH"]);
    }
    let struck = at_once(String::new());
    let missed = until_within(Duration::from_secs(5), "a script to be missed", || {
        Ok(Some(count() - before).filter(|missed| *missed > 0))
    });
    Ok(missed.ok().map(|missed| Struck { seen: format!("{missed} scripts missed"), ..struck }))
}

/// How often a server has refused so.
pub(super) fn errors(redis: &Redis, kind: &str) -> u64 {
    let told = redis.info("errorstats");
    let line =
        told.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{kind}:count="))?.trim().parse().ok());
    line.unwrap_or(0)
}

pub(super) fn emptied(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (which, servers) = (struck(storm, random), storm.ground.redis());
    let mut count = 0;
    for &number in &which {
        count += servers[number].command(&["DBSIZE"]).int();
        servers[number].command(&["FLUSHALL"]);
    }
    Ok((count > 0).then(|| at_once(format!("{count} keys"))))
}

/// All keys of one lock.
pub(super) fn keys_deleted(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let name = name(storm, random)?;
    let (which, servers) = (struck(storm, random), storm.ground.redis());
    let mut count = 0;
    for &number in &which {
        count += delete(servers[number], storm.ground.store, &name);
    }
    Ok((count > 0).then(|| at_once(format!("{count} keys of {name}"))))
}

fn name(storm: &Storm, random: &mut Random) -> Result<String> {
    Ok(storm.terms.names[usize::try_from(random.below(3))?].clone())
}

fn delete(redis: &Redis, store: Store, name: &str) -> i64 {
    let keys = keys_of(redis, store, name);
    keys.iter().map(|key| redis.command(&["DEL", key]).int()).sum()
}

fn keys_of(redis: &Redis, store: Store, name: &str) -> Vec<String> {
    let pattern = match store {
        Store::Plain => name.to_owned(),
        _ => format!("leasehold:*{{{name}}}*"),
    };
    redis.command(&["KEYS", &pattern]).texts().into_iter().map(str::to_owned).collect()
}

/// Somebody renames all keys of one lock; they are deleted then, or given their names again over whatever is there by then.
pub(super) fn keys_renamed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let name = name(storm, random)?;
    let (is_undone, time) = (random.below(2) == 0, millis(random, 50, 400));
    let (which, servers) = (struck(storm, random), storm.ground.redis());
    let since = now();
    let mut renamed = Vec::new();
    for &number in &which {
        for key in keys_of(servers[number], storm.ground.store, &name) {
            let other = format!("somebody's:{key}");
            // It may have been deleted meanwhile.
            if !servers[number].ask(&["RENAME", &key, &other]).is_error() {
                renamed.push((servers[number], key, other));
            }
        }
    }
    if is_undone {
        last(time);
    }
    for (redis, key, other) in &renamed {
        let words: &[&str] = if is_undone { &["RENAME", other, key] } else { &["DEL", other] };
        // It may have ended by itself.
        let _ = redis.ask(words);
    }
    let seen = format!("{} keys of {name}{}", renamed.len(), if is_undone { ", and back" } else { "" });
    Ok((!renamed.is_empty()).then(|| lasted(since, seen)))
}

/// All keys of one lock live for ever, as far as the server knows.
pub(super) fn keys_persisted(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let name = name(storm, random)?;
    let redis = storm.ground.redis()[0];
    let keys = keys_of(redis, storm.ground.store, &name);
    let count: i64 = keys.iter().map(|key| redis.command(&["PERSIST", key]).int()).sum();
    Ok((count > 0).then(|| at_once(format!("{count} keys of {name}"))))
}

/// Something else is where the lock was, for a while.
pub(super) fn wrong_type(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let name = name(storm, random)?;
    let time = millis(random, 200, 700);
    let key = if storm.ground.store == Store::Plain { name.clone() } else { format!("leasehold:{{{name}}}") };
    let redis = storm.ground.redis()[0];
    let before = errors(redis, "WRONGTYPE") + errors(redis, "ERR");
    let (taken, put) = (["DEL", &key], ["RPUSH", &key, "somebody", "else's"]);
    let mut both = redis.connection();
    both.send(&[lab_servers::request(&["MULTI"]), lab_servers::request(&taken), lab_servers::request(&put)].concat())?;
    both.send(&lab_servers::request(&["EXEC"]))?;
    for _ in 0..4 {
        both.hear()?;
    }
    let since = now();
    last(time);
    let refused = errors(redis, "WRONGTYPE") + errors(redis, "ERR") - before;
    let kept = redis.command(&["TYPE", &key]).text() == "list";
    redis.command(&taken);
    anyhow::ensure!(kept, "what is not ours was overwritten");
    Ok((refused > 0).then(|| lasted(since, format!("{name}: {refused} refused"))))
}

/// Does something for as long as it takes some to be refused, and takes it back.
fn refusing(storm: &Storm, time: Duration, kind: &str, on: &[&str], off: &[&str]) -> Option<Struck> {
    let redis = storm.ground.redis()[0];
    let before = errors(redis, kind);
    redis.command(on);
    let since = now();
    last(time);
    let refused = errors(redis, kind) - before;
    let struck = lasted(since, format!("{refused} refused in {time:?}"));
    redis.command(off);
    (refused > 0).then_some(struck)
}

pub(super) fn out_of_memory(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (on, off) = (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]);
    Ok(refusing(storm, millis(random, 300, 1_200), "OOM", &on, &off))
}

pub(super) fn writes_refused(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let set = |count| ["CONFIG", "SET", "min-replicas-to-write", count];
    Ok(refusing(storm, millis(random, 300, 1_200), "NOREPLICAS", &set("1"), &set("0")))
}

/// As a replica, of a master that is not there.
pub(super) fn read_only(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let (on, off) = (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]);
    Ok(refusing(storm, millis(random, 300, 1_200), "READONLY", &on, &off))
}

/// Keys are deleted to make room, though nobody who keeps locks there may ask for that.
pub(super) fn evicted(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let time = millis(random, 50, 300);
    let redis = storm.ground.redis()[0];
    let set = |policy, most| {
        redis.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        redis.command(&["CONFIG", "SET", "maxmemory", most]);
    };
    let count = || -> u64 {
        let told = redis.info("stats");
        told.lines().find_map(|line| line.strip_prefix("evicted_keys:")?.trim().parse().ok()).unwrap_or(0)
    };
    let before = count();
    set("allkeys-random", "1");
    let since = now();
    last(time);
    let struck = lasted(since, format!("{} keys in {time:?}", count() - before));
    set("noeviction", "0");
    Ok((count() > before).then_some(struck))
}

pub(super) fn rights_revoked(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let set = |rights| ["ACL", "SETUSER", USER, rights];
    Ok(refusing(storm, millis(random, 300, 1_200), "NOPERM", &set("-@scripting"), &set("+@all")))
}
