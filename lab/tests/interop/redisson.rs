//! Redisson's own locks and leasehold, on one Redis server.
//!
//! Shows G-52, G-55.

mod sentinel;
mod shares;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{HoldWork, RedissonPeer as Peer, Testbed, WorkerConfig, until};
use lab_servers::Redis;
use leasehold::{LossReason, blocking};

use crate::WORKER;
use crate::redis_locks::{Others, contend, cycles};

/// The lease of the other holders.
const WATCHDOG: Duration = Duration::from_secs(30);
/// The lease of holders that crash or stop.
const SHORT: Duration = Duration::from_secs(3);
/// A wait that ended by a message, on a busy machine. The lease of the holder is ten times longer.
const BY_MESSAGE: Duration = Duration::from_secs(3);

#[test]
fn redisson_and_leasehold_share_a_lock() -> Result<()> {
    share("lock", "", 1)
}

/// A spin lock publishes no release, so leasehold tries again only after 5 s. With these pauses,
/// the cycles of Redisson take longer than that, so that the two contend.
#[test]
fn spin_lock_of_redisson_and_leasehold_share_a_lock() -> Result<()> {
    share("spin", "", 20)
}

#[test]
fn redisson_and_leasehold_share_a_fenced_lock() -> Result<()> {
    share("fenced", "&lock=fenced", 1)
}

/// The name mapper and the watchdog of both sides are set.
#[test]
fn settings_of_redisson_apply_to_both_sides() -> Result<()> {
    let redis = Redis::start();
    let mut peer = Peer::start(&redis, SHORT, "app:")?;
    let url = url(&redis, "&prefix=app:&watchdog=2s");
    let testbed = Testbed::at(WORKER, &url)?;

    peer.expect("try lock a", "true")?;
    let refused = testbed.run(testbed.locks().mutex("a").try_acquire())?;
    ensure!(refused.is_err(), "two hold at once");
    peer.request("unlock lock a")?;

    let guard = testbed.run(testbed.locks().mutex("a").acquire())?;
    peer.expect("locked lock a", "true")?;
    let left = redis.command(&["PTTL", "app:a"]).int();
    ensure!((1..=2_000).contains(&left), "{left} ms are left");
    Ok(testbed.run(guard.release())?)
}

/// What Redisson reports of a hold of leasehold.
///
/// Shows G-12.
#[test]
fn redisson_sees_and_breaks_a_hold_of_leasehold() -> Result<()> {
    let (_redis, mut peer, testbed) = both(WATCHDOG, "")?;
    peer.expect("locked lock a", "false")?;
    peer.expect("left lock a", "-2")?;
    let guard = testbed.run(testbed.locks().mutex("a").acquire())?;

    peer.expect("locked lock a", "true")?;
    peer.expect("mine lock a", "false")?;
    peer.expect("count lock a", "0")?;
    peer.expect("try lock a", "false")?;
    let left: i64 = peer.request("left lock a")?.parse()?;
    ensure!((1..=30_000).contains(&left), "{left} ms are left");
    let refused = peer.request("unlock lock a")?;
    ensure!(refused.contains("IllegalMonitorState"), "{refused}");
    guard.check()?;

    let lost = async {
        let breaking = tokio::task::spawn_blocking(move || peer.request("force lock a"));
        let lost = tokio::time::timeout(BY_MESSAGE, guard.lost()).await;
        (lost, breaking.await)
    };
    let (lost, broken) = testbed.run(lost);
    ensure!(broken?? == "true");
    ensure!(lost? == LossReason::Revoked);
    ensure!(
        testbed
            .run(guard.release())
            .is_err_and(|error| error.is_lost())
    );
    ensure!(testbed.inspect("a")?.entries.is_empty());
    Ok(())
}

/// What leasehold shows of a hold of Redisson. A reentrant hold is broken as a whole.
#[test]
fn leasehold_sees_and_breaks_a_hold_of_redisson() -> Result<()> {
    let (_redis, mut peer, testbed) = both(WATCHDOG, "")?;
    peer.request("lock lock a")?;
    peer.request("lock lock a")?;
    peer.expect("count lock a", "2")?;

    let lock_state = testbed.inspect("a")?;
    let [holder] = &lock_state.entries[..] else {
        anyhow::bail!("{lock_state:?}")
    };
    ensure!(&*holder.info.program == "Redisson");
    ensure!(holder.info.label.ends_with(" ×2"), "{}", holder.info.label);
    let names = testbed.run(testbed.locks().list("", 10))?;
    ensure!(names.iter().map(leasehold::Name::as_str).eq(["a"]));

    let token = holder.token().context("it holds")?;
    let broken = testbed.run(testbed.locks().break_hold("a", token))?;
    ensure!(broken.is_some());
    peer.expect("mine lock a", "false")?;
    peer.expect("locked lock a", "false")?;
    Ok(())
}

/// A waiter of either side is granted by the other side's message, long before the lease ends.
#[test]
fn release_wakes_the_waiter_of_the_other_side() -> Result<()> {
    let (redis, mut peer, testbed) = both(WATCHDOG, "")?;

    let guard = testbed.run(testbed.locks().mutex("a").acquire())?;
    redis.command(&["CONFIG", "RESETSTAT"]);
    peer.send("lock lock a")?;
    wait_for_two_attempts(&redis)?;
    let released = Instant::now();
    testbed.run(guard.release())?;
    peer.reply()?;
    let took = released.elapsed();
    println!("Redisson is granted {took:?} after leasehold's release");
    ensure!(took < BY_MESSAGE, "granted only after {took:?}");

    let mutex = blocking::Lock::from(testbed.locks().mutex("a"));
    redis.command(&["CONFIG", "RESETSTAT"]);
    let waiting = thread::spawn(move || mutex.acquire());
    wait_for_two_attempts(&redis)?;
    let released = Instant::now();
    peer.request("unlock lock a")?;
    let guard = waiting.join().expect("it does not panic")?;
    let took = released.elapsed();
    println!("leasehold is granted {took:?} after Redisson's release");
    ensure!(took < BY_MESSAGE, "granted only after {took:?}");
    Ok(guard.release()?)
}

/// The lock of a killed Java program is free when its watchdog's timeout has passed.
#[test]
fn killed_redisson_frees_the_lock_at_the_end_of_its_lease() -> Result<()> {
    let (_redis, mut peer, testbed) = both(SHORT, "")?;
    peer.request("lock lock a")?;
    // The watchdog renews: the hold outlives its lease.
    let wait = testbed.locks().mutex("a");
    ensure!(testbed.run(wait.try_acquire_for(SHORT * 3 / 2))?.is_err());

    peer.kill()?;
    let killed = Instant::now();
    let guard = testbed.run(wait.acquire())?;
    let took = killed.elapsed();
    ensure!(took < SHORT + BY_MESSAGE, "granted only after {took:?}");
    Ok(testbed.run(guard.release())?)
}

/// The lock of a killed leasehold process is free when its lease has ended.
#[test]
fn killed_leasehold_frees_the_lock_at_the_end_of_its_lease() -> Result<()> {
    let (_redis, mut peer, testbed) = both(WATCHDOG, "&watchdog=3s")?;
    let mut holder = testbed.start(WorkerConfig {
        names: vec!["a".to_owned()],
        cycles: 1,
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    peer.expect("try lock a", "false")?;

    holder.kill()?;
    let killed = Instant::now();
    peer.request("lock lock a")?;
    let took = killed.elapsed();
    ensure!(took < SHORT + BY_MESSAGE, "granted only after {took:?}");
    peer.request("unlock lock a").map(drop)
}

/// Both sides count the grants of a fenced lock with one counter.
#[test]
fn tokens_of_redisson_and_leasehold_rise_together() -> Result<()> {
    let (_redis, mut peer, testbed) = both(WATCHDOG, "&lock=fenced")?;
    let mut tokens = Vec::new();
    for _ in 0..5 {
        tokens.push(peer.request("token fenced a")?.parse()?);
        peer.request("unlock fenced a")?;
        let guard = testbed.run(testbed.locks().mutex("a").acquire())?;
        tokens.push(guard.token().get());
        testbed.run(guard.release())?;
    }
    ensure!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    Ok(())
}

/// A key that is not an `RLock` is refused with the reason, and stays as it is.
#[test]
fn keys_of_other_types_are_refused_with_the_reason() -> Result<()> {
    let redis = Redis::start();
    let testbed = Testbed::at(WORKER, &url(&redis, ""))?;
    let id = "285475da-9152-4c83-822a-67ee2f116a79:52";
    redis.command(&["SET", "string", "5"]);
    redis.command(&["RPUSH", "list", id]);
    redis.command(&["HSET", "other", "field", "1"]);
    redis.command(&["HSET", "rw", "mode", "read", id, "1"]);
    redis.command(&["RPUSH", "redisson_lock_queue:{fair}", id]);
    let before = redis.command(&["DUMP", "rw"]);

    for (name, reason) in [
        ("string", "semaphore"),
        ("list", "list"),
        ("other", "hash"),
        ("rw", "RReadWriteLock"),
        ("fair", "RFairLock"),
    ] {
        let tried = testbed.run(testbed.locks().mutex(name).try_acquire());
        let error = tried.err().with_context(|| format!("{name} was locked"))?;
        ensure!(error.to_string().contains(reason), "{error}");
        if name == "fair" {
            continue;
        }
        let shown = testbed.inspect(name).err().context("it was shown")?;
        ensure!(shown.to_string().contains(reason), "{shown}");
    }
    ensure!(redis.command(&["DUMP", "rw"]) == before);
    ensure!(testbed.run(testbed.locks().list("", 10))?.is_empty());
    Ok(())
}

/// Redisson and a process of leasehold acquire one lock in turn. The two must never hold at once.
/// Lets both sides cycle. Redisson pauses for some milliseconds after each of its holds.
fn share(kind: &'static str, settings: &str, pause: u32) -> Result<()> {
    let redis = Redis::start();
    let cycles = cycles()?;
    contend(&url(&redis, settings), "a", cycles, || {
        let peer = Peer::start(&redis, WATCHDOG, "")?;
        Ok(cycling(
            peer,
            format!("cycle {kind} a {cycles} {pause}"),
            cycles,
        ))
    })?;

    let keys = redis.command(&["KEYS", "*"]);
    let left: Vec<&str> = keys.texts().iter().map(|key| &**key).collect();
    let is_clean = left.iter().all(|key| *key == "redisson_lock_token:{a}");
    ensure!(is_clean, "{left:?}");
    Ok(())
}

/// Lets the program acquire and release a lock, and reports its holds.
fn cycling(mut peer: Peer, command: String, cycles: u64) -> Others {
    Others::start(move |held| {
        peer.send(&command)?;
        for _ in 0..cycles {
            let line = peer.reply()?;
            let (granted, until) = line.split_once(' ').with_context(|| line.clone())?;
            held(peer.time(granted)?, peer.time(until)?);
        }
        peer.reply().map(drop)
    })
}

/// Waits until a client has tried twice: before and after it subscribed. Only a message or the end
/// of the lease wakes it from then on. Each attempt reads the rest of the holder's lease.
fn wait_for_two_attempts(redis: &Redis) -> Result<()> {
    until("the waiter to try again", || {
        let statistics = redis.info("commandstats");
        let calls = statistics.lines().find_map(|line| {
            let (_, calls) = line.strip_prefix("cmdstat_pttl:")?.split_once("calls=")?;
            calls.split(',').next()?.parse::<u32>().ok()
        });
        Ok((calls >= Some(2)).then_some(()))
    })
}

/// A server, Redisson with this lease, and leasehold with these settings.
fn both(watchdog: Duration, settings: &str) -> Result<(Redis, Peer, Testbed)> {
    let redis = Redis::start();
    let peer = Peer::start(&redis, watchdog, "")?;
    let testbed = Testbed::at(WORKER, &url(&redis, settings))?;
    Ok((redis, peer, testbed))
}

fn url(redis: &Redis, settings: &str) -> String {
    format!("{}?dialect=redisson{settings}", redis.url())
}
