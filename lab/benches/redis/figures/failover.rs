//! Waiters and a hand-over after a failover of Sentinel.
//!
//! The holder and the waiters live on. The master is killed, and the sentinels promote a replica.
//! The first time begins when a majority of the sentinels names the new master, and ends when it
//! has every waiter in its queue. The second begins with the release of the holder.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{RedissonPeer, until};
use lab_servers::{Redis, Sentinels};
use leasehold::Locks;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::topologies::addresses;
use crate::table::{Goal, Rounds, Table};

const FAILOVERS: usize = 3;
const WAITERS: usize = 4;
/// After this time the replicas have what the master had.
const REPLICATED: Duration = Duration::from_millis(500);

pub(super) fn show() -> Result<()> {
    let [mut back, mut ours, mut theirs]: [Rounds; 3] = Default::default();
    for _ in 0..FAILOVERS {
        let (waiters, hand_over) = leasehold()?;
        back.add(waiters.as_secs_f64() * 1_000.0);
        ours.add(hand_over.as_secs_f64() * 1_000.0);
        theirs.add(redisson()?.as_secs_f64() * 1_000.0);
    }

    let goal = Some(Goal::AtMost(1_000.0));
    let what = "next hand-over after a failover";
    let mut table = Table::new("failover");
    table.add("all waiters in the queue", "leasehold", "ms", &back, goal);
    table.add(what, "leasehold", "ms", &ours, goal);
    table.add(what, "Redisson", "ms", &theirs, None);
    table.finish()
}

/// Returns the time until all waiters are in the queue again, and that of the next hand-over.
fn leasehold() -> Result<(Duration, Duration)> {
    let mut group = start();
    let runtime = Runtime::new()?;
    let url = format!("{}?{}", group.url(), group.settings());
    let holder = runtime.block_on(leasehold::open(&url))?;
    let guard = runtime.block_on(holder.mutex("a").acquire())?;

    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let locks = runtime.block_on(leasehold::open(&url))?;
        let waiting =
            async move { Ok::<_, leasehold::Error>((locks.mutex("a").acquire().await?, locks)) };
        waiters.spawn_on(waiting, runtime.handle());
    }
    until("all to wait", || {
        Ok((waiting(&runtime, &holder)? == WAITERS).then_some(()))
    })?;
    sleep(REPLICATED);

    fail_over(&mut group);
    let named = Instant::now();
    until("all to wait again", || {
        // The client may have to look for the new master.
        let waiting = waiting(&runtime, &holder).unwrap_or(0);
        Ok((waiting == WAITERS).then_some(()))
    })?;
    let back = named.elapsed();

    let released = Instant::now();
    runtime.block_on(guard.release())?;
    let next = runtime.block_on(waiters.join_next());
    let hand_over = released.elapsed();
    let (guard, _locks) = next.context("there are waiters")???;
    runtime.block_on(guard.release())?;
    Ok((back, hand_over))
}

fn waiting(runtime: &Runtime, locks: &Locks) -> Result<usize> {
    Ok(runtime.block_on(locks.inspect("a"))?.waiters().count())
}

/// Returns the time of the next hand-over.
fn redisson() -> Result<Duration> {
    let mut group = start();
    let sentinels = addresses((0..3).map(|number| group.sentinel(number)));
    let mut holder = RedissonPeer::start_optimised(&sentinels, None)?;
    let mut waiter = RedissonPeer::start_optimised(&sentinels, None)?;
    holder.request("lock lock a")?;
    waiter.send("lock lock a")?;
    sleep(REPLICATED);

    fail_over(&mut group);
    // Redisson has no queue that shows when the waiter is ready.
    sleep(2 * REPLICATED);
    let reply = holder.request("release lock a")?;
    let released = holder.time(&reply).with_context(|| reply.clone())?;
    let reply = waiter.reply()?;
    let granted = waiter.time(&reply).with_context(|| reply.clone())?;
    ensure!(released < granted, "two hold at once");
    Ok(Duration::from_nanos(granted - released))
}

fn start() -> Sentinels {
    Sentinels::of(&Redis::setup(), &Redis::setup())
}

/// Kills the master, and waits until the sentinels name another.
fn fail_over(group: &mut Sentinels) {
    let old = group.master();
    group.server_mut(old).kill();

    let _ = group.master_other_than(old);
}
