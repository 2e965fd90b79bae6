//! The ZooKeeper store beside what the servers need for the least of it, over the same client library.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use lab::report::{Report, Samples};
use lab::{Orders, Process, Work, until};
use lab_servers::ZooKeeper;
use leasehold::Locks;
use tokio::runtime::Builder;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

const PAIRS: usize = 3_000;
const HAND_OVERS: usize = 1_500;
const CRASHES: usize = 5;
/// Measured in turn, so that a slow moment of the machine meets all alike.
const TURN: usize = 50;
const NODE: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

fn main() -> Result<()> {
    let server = ZooKeeper::setup().tick(2_000).start();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut report = Report::new("zookeeper");
    runtime.block_on(async {
        let (near, far) = (leasehold::open(&server.url()).await?, leasehold::open(&server.url()).await?);
        let (one, other) = (Client::connect(&server.address()).await?, Client::connect(&server.address()).await?);
        one.mkdir("/bare", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        pairs(&mut report, &near, &one).await?;
        hand_overs(&mut report, &near, &far, &one, &other).await
    })?;
    crashes(&mut report)?;
    report.finish()
}

/// Acquire and release when nobody else wants the lock.
async fn pairs(report: &mut Report, locks: &Locks, bare: &Client) -> Result<()> {
    let (mut ours, mut limit) = (Samples::default(), Samples::default());
    let lock = locks.mutex("a");
    for _ in 0..PAIRS / TURN {
        for _ in 0..TURN {
            let begun = Instant::now();
            lock.acquire().await?.release().await?;
            add(&mut ours, begun);
        }
        for _ in 0..TURN {
            let begun = Instant::now();
            let (_, sequence) = bare.create("/bare/n-", b"", &NODE).await?;
            bare.delete(&format!("/bare/n-{sequence}"), None).await?;
            add(&mut limit, begun);
        }
    }
    report.add("acquire and release", &ours, "create + delete", &limit);
    Ok(())
}

/// From the moment a client begins to release until another, in line, knows that it holds.
async fn hand_overs(report: &mut Report, near: &Locks, far: &Locks, one: &Client, other: &Client) -> Result<()> {
    let (mut ours, mut limit) = (Samples::default(), Samples::default());
    for _ in 0..HAND_OVERS / TURN {
        for _ in 0..TURN {
            add_between(&mut ours, hand_over(near, far).await?);
        }
        for _ in 0..TURN {
            add_between(&mut limit, hop(one, other).await?);
        }
    }
    report.add("hand-over", &ours, "delete to a watch's notice", &limit);
    Ok(())
}

async fn hand_over(near: &Locks, far: &Locks) -> Result<Duration> {
    let held = near.mutex("h").acquire().await?;
    let lock = far.mutex("h");
    let waiting = tokio::spawn(async move { lock.acquire().await.map(|guard| (guard, Instant::now())) });
    while near.look("h").await?.waiters().count() == 0 {}
    // The watch is set a moment after the node is there.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let released = Instant::now();
    held.release().await?;
    let (guard, granted) = waiting.await??;
    guard.release().await?;
    Ok(granted - released)
}

async fn hop(one: &Client, other: &Client) -> Result<Duration> {
    let (_, sequence) = one.create("/bare/n-", b"", &NODE).await?;
    let path = format!("/bare/n-{sequence}");
    let (_, _, watcher) = other.get_and_watch_data(&path).await?;
    let noticed = tokio::spawn(async move {
        watcher.changed().await;
        Instant::now()
    });
    tokio::time::sleep(Duration::from_millis(2)).await;
    let deleted = Instant::now();
    one.delete(&path, None).await?;
    Ok(noticed.await? - deleted)
}

/// From `kill -9` until the next holds, beside the session's timeout and a tick.
fn crashes(report: &mut Report) -> Result<()> {
    let server = ZooKeeper::setup().tick(500).start();
    let url = format!("{}?session=2s", server.url());
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let onlooker = runtime.block_on(leasehold::open(&url))?;
    let (mut ours, mut limit) = (Samples::default(), Samples::default());
    for _ in 0..CRASHES {
        let mut holder = start(&url, 0)?;
        holder.hear_granted()?;
        let mut next = start(&url, 1)?;
        until("somebody to wait", || {
            let line = runtime.block_on(onlooker.look("a"))?;
            Ok((line.waiters().count() > 0).then_some(()))
        })?;
        let killed = holder.kill_now()?;
        ours.add(next.hear_granted()?.at - killed);
        limit.add(2_500_000_000);
        next.tell()?;
        next.finish()?;
    }
    report.add("kill -9 to the next holds", &ours, "session of 2 s and a tick", &limit);
    Ok(())
}

fn start(url: &str, first_hand: u32) -> Result<Process> {
    let orders = Orders { store: url.to_owned(), work: Work::Told, first_hand, ..Orders::default() };
    Process::start(Path::new(env!("CARGO_BIN_EXE_taker")), orders)
}

fn add(samples: &mut Samples, begun: Instant) {
    add_between(samples, begun.elapsed());
}

fn add_between(samples: &mut Samples, took: Duration) {
    samples.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}
