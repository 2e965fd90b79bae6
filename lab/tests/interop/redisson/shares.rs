//! Readers, writers and permits of Redisson and leasehold, on one Redis server.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{HoldWork, LockKind, RedissonPeer as Peer, Testbed, WorkerConfig, until};
use lab_servers::Redis;
use leasehold::store::Share;
use leasehold::{Lock, LossReason, blocking};

use super::{BY_MESSAGE, SHORT, WATCHDOG, both, cycling, url};
use crate::WORKER;
use crate::redis_locks::{contend_for, cycles};

const READ_WRITE: &str = "&lock=rw";
const SEMAPHORE: &str = "&lock=semaphore";

#[test]
fn writers_of_redisson_and_leasehold_exclude_each_other() -> Result<()> {
    share(LockKind::Writer, "write", Share::WRITER)
}

#[test]
fn writer_of_leasehold_excludes_readers_of_redisson() -> Result<()> {
    share(LockKind::Writer, "read", Share::READER)
}

#[test]
fn writer_of_redisson_excludes_readers_of_leasehold() -> Result<()> {
    share(LockKind::Reader, "write", Share::WRITER)
}

/// Two of three permits exclude two others.
#[test]
fn permits_of_redisson_and_leasehold_are_counted_together() -> Result<()> {
    let redis = Redis::start();
    let cycles = cycles()?;
    let kind = LockKind::Slots {
        permits: 2,
        slots: 3,
    };
    let theirs = Share::slots(2, 3)?;
    contend_for(&url(&redis, SEMAPHORE), ("a", kind), theirs, cycles, || {
        let mut peer = Peer::start(&redis, WATCHDOG, "")?;
        peer.request("permit-size a 3")?;
        let command = format!("permit-cycle a {cycles} 2");
        Ok(cycling(peer, command, cycles))
    })?;
    ensure!(redis.command(&["GET", "a"]).text() == "3");
    ensure!(redis.command(&["KEYS", "*"]).texts() == ["a"]);
    Ok(())
}

#[test]
fn readers_of_redisson_and_leasehold_hold_together() -> Result<()> {
    let (redis, mut peer, testbed) = both(WATCHDOG, READ_WRITE)?;
    let lock = testbed.locks().rwlock("a");

    peer.expect("try read a", "true")?;
    peer.expect("try read a", "true")?;
    let guard = testbed
        .run(lock.shared().try_acquire())?
        .context("readers share")?;
    peer.expect("try write a", "false")?;
    ensure!(testbed.run(lock.exclusive().try_acquire())?.is_err());
    let lock_state = testbed.inspect("a")?;
    let counted = |text: &str| {
        lock_state
            .holders()
            .any(|one| one.info.label.ends_with(text))
    };
    ensure!(
        lock_state.holders().count() == 2 && counted("×2"),
        "{lock_state:?}"
    );

    // The lock lasts while one reader of either side holds it.
    let second = testbed.run(lock.shared().acquire())?;
    testbed.run(second.release())?;
    peer.expect("count read a", "2")?;
    guard.check()?;
    ensure!(testbed.inspect("a")?.holders().count() == 2);
    peer.request("unlock read a")?;
    peer.request("unlock read a")?;
    guard.check()?;
    peer.expect("locked read a", "true")?;
    peer.expect("try write a", "false")?;
    testbed.run(guard.release())?;
    peer.expect("try write a", "true")?;
    ensure!(testbed.run(lock.shared().try_acquire())?.is_err());
    peer.request("unlock write a")?;
    ensure!(redis.command(&["KEYS", "*"]).list().is_empty());
    Ok(())
}

/// A writer that becomes a reader lets readers of Redisson in, and no writer.
#[test]
fn downgraded_writer_shares_with_readers_of_redisson() -> Result<()> {
    let (_redis, mut peer, testbed) = both(WATCHDOG, READ_WRITE)?;
    let guard = testbed.run(testbed.locks().rwlock("a").exclusive().acquire())?;
    peer.expect("locked write a", "true")?;
    peer.expect("try read a", "false")?;

    peer.send("lock read a")?;
    testbed.run(guard.downgrade())?;
    peer.reply()?;
    peer.expect("try write a", "false")?;
    testbed.run(guard.release())?;
    peer.request("unlock read a")?;
    peer.expect("try write a", "true")
}

/// A break of one reader leaves the others alone. Redisson breaks all readers at once.
#[test]
fn one_reader_of_several_is_broken() -> Result<()> {
    let (_redis, mut peer, testbed) = both(WATCHDOG, READ_WRITE)?;
    peer.request("lock read a")?;
    let guard = testbed.run(testbed.locks().rwlock("a").shared().acquire())?;

    let lock_state = testbed.inspect("a")?;
    let theirs = lock_state
        .holders()
        .find(|one| &*one.info.program == "Redisson");
    let token = theirs
        .and_then(leasehold::Entry::token)
        .context("it holds")?;
    let broken = testbed.run(testbed.locks().break_hold("a", token))?;
    ensure!(broken.is_some());
    peer.expect("mine read a", "false")?;
    guard.check()?;

    peer.expect("force read a", "true")?;
    ensure!(testbed.run(guard.lost()) == LossReason::Revoked);
    Ok(())
}

/// Redisson's readers renew the whole lock for their own timeout.
#[test]
fn fixed_lease_above_the_watchdog_of_redisson_is_refused() -> Result<()> {
    let redis = Redis::start();
    let testbed = Testbed::at(WORKER, &url(&redis, "&lock=rw&watchdog=10s"))?;
    let reader = || testbed.locks().rwlock("a").shared();
    let long = reader().lease(Duration::from_secs(11)).no_renewal();
    let refused = testbed.run(long.acquire());
    ensure!(refused.is_err_and(|error| error.is_unsupported()));

    let guard = testbed.run(reader().lease(Duration::from_secs(60)).acquire())?;
    ensure!(guard.remaining() <= Duration::from_secs(10));
    let left = redis.command(&["PTTL", "a"]).int();
    ensure!((1..=10_000).contains(&left), "{left} ms are left");
    Ok(testbed.run(guard.release())?)
}

/// A waiter of either side is granted by the other side's message.
#[test]
fn release_wakes_the_writer_of_the_other_side() -> Result<()> {
    let (redis, mut peer, testbed) = both(WATCHDOG, READ_WRITE)?;

    let guard = testbed.run(testbed.locks().rwlock("a").shared().acquire())?;
    peer.send("lock write a")?;
    subscribed(&redis, "redisson_rwlock:{a}")?;
    let released = Instant::now();
    testbed.run(guard.release())?;
    peer.reply()?;
    in_time("Redisson", released)?;

    let waiting = waiting(testbed.locks().rwlock("a").exclusive());
    subscribed(&redis, "redisson_rwlock:{a}")?;
    let released = Instant::now();
    peer.request("unlock write a")?;
    let guard = waiting.join().expect("it does not panic")?;
    in_time("leasehold", released)?;
    Ok(guard.release()?)
}

#[test]
fn release_wakes_the_waiter_for_a_permit() -> Result<()> {
    let (redis, mut peer, testbed) = both(WATCHDOG, SEMAPHORE)?;
    let slot = || testbed.locks().semaphore("a", 2).permits(2);

    let guard = testbed.run(slot().acquire())?;
    peer.expect("permit-counts a", "0/2")?;
    peer.send("permit-take a 1 30000")?;
    subscribed(&redis, "redisson_sc:{a}")?;
    let released = Instant::now();
    testbed.run(guard.release())?;
    let id = peer.reply()?;
    in_time("Redisson", released)?;

    let lock_state = testbed.inspect("a")?;
    let label = &lock_state.entries.first().context("it holds")?.info.label;
    ensure!(*label == format!("permit {id}"), "{label}");
    let waiting = waiting(slot());
    subscribed(&redis, "redisson_sc:{a}")?;
    let released = Instant::now();
    peer.expect(&format!("permit-give a {id}"), "1")?;
    let guard = waiting.join().expect("it does not panic")?;
    in_time("leasehold", released)?;
    ensure!(testbed.inspect("a")?.entries.len() == 1);
    Ok(guard.release()?)
}

/// Another size, and a semaphore without owners, are refused, and stay as they are.
#[test]
fn semaphore_of_another_size_or_without_owners_is_refused() -> Result<()> {
    let (redis, mut peer, testbed) = both(WATCHDOG, SEMAPHORE)?;
    peer.expect("permit-size a 5", "true")?;
    redis.command(&["SET", "plain", "3"]);
    peer.expect("permit-plain plain", "true")?;

    for (name, size) in [("a", "5 slots"), ("plain", "2 slots")] {
        let refused = testbed.run(testbed.locks().semaphore(name, 3).try_acquire());
        let error = refused.err().with_context(|| format!("{name} was taken"))?;
        let text = error.to_string();
        ensure!(error.is_mismatch() && text.contains(size), "{text}");
    }
    peer.expect("permit-counts a", "5/5")?;
    ensure!(redis.command(&["GET", "plain"]).text() == "2");
    Ok(())
}

/// A permit of a killed holder of either side is free when its lease has ended.
#[test]
fn killed_holder_frees_its_permit_at_the_end_of_its_lease() -> Result<()> {
    let (_redis, mut peer, testbed) = both(WATCHDOG, "&lock=semaphore&watchdog=3s")?;
    let kind = LockKind::Slots {
        permits: 1,
        slots: 1,
    };
    let killed = kill_holder(&testbed, kind)?;
    peer.request("permit-take a 1 3000")?;
    ensure!(killed.elapsed() < SHORT + BY_MESSAGE);

    peer.kill()?;
    let killed = Instant::now();
    let guard = testbed.run(testbed.locks().semaphore("a", 1).acquire())?;
    ensure!(killed.elapsed() < SHORT + BY_MESSAGE);
    Ok(testbed.run(guard.release())?)
}

/// A killed reader of either side lets a writer in when its lease has ended.
#[test]
fn killed_reader_lets_a_writer_in_at_the_end_of_its_lease() -> Result<()> {
    let (_redis, mut peer, testbed) = both(SHORT, "&lock=rw&watchdog=3s")?;
    let killed = kill_holder(&testbed, LockKind::Reader)?;
    peer.request("lock write a")?;
    ensure!(killed.elapsed() < SHORT + BY_MESSAGE);
    peer.request("unlock write a")?;

    peer.request("lock read a")?;
    let writer = testbed.locks().rwlock("a").exclusive();
    // The watchdog renews: the reader outlives its lease.
    ensure!(testbed.run(writer.try_acquire_for(SHORT * 3 / 2))?.is_err());
    peer.kill()?;
    let killed = Instant::now();
    let guard = testbed.run(writer.acquire())?;
    ensure!(killed.elapsed() < SHORT + BY_MESSAGE);
    Ok(testbed.run(guard.release())?)
}

/// A killed reader does not keep the lock when another reader leaves.
#[test]
fn killed_reader_is_not_shown_while_others_hold() -> Result<()> {
    let (redis, mut peer, testbed) = both(SHORT, "&lock=rw&watchdog=3s")?;
    peer.request("lock read a")?;
    kill_holder(&testbed, LockKind::Reader)?;
    until("one reader is left", || {
        let holders = testbed.inspect("a")?.holders().count();
        Ok((holders == 1).then_some(()))
    })?;
    peer.request("unlock read a")?;
    ensure!(redis.command(&["KEYS", "*"]).list().is_empty());
    Ok(())
}

/// The holder and the waiters of an `RFairLock` are shown. A mutex is refused, as a release by
/// leasehold would not wake the waiters. A break wakes the first of them.
#[test]
fn fair_lock_of_redisson_is_shown_and_broken_and_not_taken() -> Result<()> {
    let redis = Redis::start();
    let mut holder = Peer::start(&redis, WATCHDOG, "")?;
    let mut waiter = Peer::start(&redis, WATCHDOG, "")?;
    let testbed = Testbed::at(WORKER, &url(&redis, ""))?;
    holder.request("lock fair a")?;
    waiter.send("lock fair a")?;
    let token = until("the waiter to be shown", || {
        let lock_state = testbed.inspect("a")?;
        let token = lock_state
            .holders()
            .next()
            .and_then(leasehold::Entry::token);
        Ok(lock_state.waiters().next().and(token))
    })?;

    let refused = testbed.run(testbed.locks().mutex("a").try_acquire());
    let error = refused.err().context("it was taken")?;
    ensure!(
        error.is_mismatch() && error.to_string().contains("RFairLock"),
        "{error}"
    );

    let broken_at = Instant::now();
    ensure!(
        testbed
            .run(testbed.locks().break_hold("a", token))?
            .is_some()
    );
    waiter.reply()?;
    in_time("Redisson", broken_at)?;
    waiter.expect("mine fair a", "true")
}

/// Lets a process acquire `a`, and kills it.
fn kill_holder(testbed: &Testbed, kind: LockKind) -> Result<Instant> {
    let mut holder = testbed.start(WorkerConfig {
        names: vec!["a".to_owned()],
        kinds: HashMap::from([("a".to_owned(), kind)]),
        cycles: 1,
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    holder.kill()?;
    Ok(Instant::now())
}

/// Redisson and a process of leasehold acquire one lock in turn.
fn share(kind: LockKind, theirs: &str, share: Share) -> Result<()> {
    let redis = Redis::start();
    let cycles = cycles()?;
    contend_for(&url(&redis, READ_WRITE), ("a", kind), share, cycles, || {
        let peer = Peer::start(&redis, WATCHDOG, "")?;
        Ok(cycling(peer, format!("cycle {theirs} a {cycles}"), cycles))
    })?;
    let keys = redis.command(&["KEYS", "*"]);
    ensure!(keys.list().is_empty(), "{keys:?}");
    Ok(())
}

fn waiting(lock: Lock) -> thread::JoinHandle<leasehold::Result<blocking::Guard>> {
    let lock = blocking::Lock::from(lock);
    thread::spawn(move || lock.acquire())
}

/// Waits until a client has subscribed to a channel.
fn subscribed(redis: &Redis, channel: &str) -> Result<()> {
    until("a waiter to subscribe", || {
        let counted = redis.command(&["PUBSUB", "NUMSUB", channel]);
        Ok((counted.list()[1].int() > 0).then_some(()))
    })
}

fn in_time(waiter: &str, released: Instant) -> Result<()> {
    let took = released.elapsed();
    println!("{waiter} is granted {took:?} after the release");
    ensure!(took < BY_MESSAGE, "granted only after {took:?}");
    Ok(())
}
