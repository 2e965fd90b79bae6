//! The cost of many locks: bytes of each hold, each waiting claim and each released name, and what
//! they cost while nothing happens. docs/scale.md draws conclusions from the figures.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use lab_servers::{Redis, Wire};
use leasehold::{Guard, Locks};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

const HELD: usize = 100_000;
const WAITING: usize = 10_000;
const RELEASED: usize = 200_000;
/// How many requests are under way at once.
const AT_ONCE: usize = 64;
/// How many claims begin to wait at once.
const QUEUED_AT_ONCE: usize = 1_000;
/// Every claim is renewed at least once in this time.
const IDLE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let runtime = Runtime::new()?;
    runtime.block_on(released_names())?;
    runtime.block_on(dead_waiters())?;
    runtime.block_on(claims())
}

/// What a name costs the server after its last release, until the server forgets it.
async fn released_names() -> Result<()> {
    let server = Redis::start();
    let locks = leasehold::open(&server.url()).await?;
    let before = server_memory(&server)?;
    let cpu = server.cpu_used();
    let begun = Instant::now();

    let pairs = (0..RELEASED).map(|number| {
        let lock = locks.mutex(format!("name-{number:07}"));
        async move { lock.acquire().await?.release().await }
    });
    let pairs = stream::iter(pairs).buffer_unordered(AT_ONCE);
    pairs.try_collect::<Vec<()>>().await?;

    let took = begun.elapsed().as_secs_f64();
    let cpu = server.cpu_used().saturating_sub(cpu).as_secs_f64();
    let bytes = server_memory(&server)?.saturating_sub(before);
    println!(
        "{RELEASED} names acquired and released: {} bytes and {:.1} µs of the server each, {:.0} \
         pairs/s",
        bytes / RELEASED,
        1e6 * cpu / share(RELEASED),
        share(RELEASED) / took,
    );
    Ok(())
}

/// The cost of scripts while a client that has died has many waiters in the queue.
async fn dead_waiters() -> Result<()> {
    let server = Redis::start();
    let locks = leasehold::open(&server.url()).await?;
    let held = locks.mutex("a").acquire().await?;
    let wire = Wire::to(server.address());
    let dying = leasehold::open(&wire.url_of("redis")).await?;
    let lock = dying.mutex("a").lease(Duration::from_secs(3_600));
    let mut dead = JoinSet::new();
    for number in 1..=WAITING {
        let lock = lock.clone();
        dead.spawn(async move { lock.acquire().await.map(drop) });
        if number % QUEUED_AT_ONCE == 0 {
            while locks.inspect("a").await?.waiters().count() < number {
                sleep(Duration::from_millis(5)).await;
            }
        }
    }

    wire.refuse(true);
    wire.partition();
    server.command(&["CONFIG", "RESETSTAT"]);
    let begun = Instant::now();
    held.release().await?;
    locks.mutex("a").acquire().await?.release().await?;
    let took = begun.elapsed().as_secs_f64();
    let stats = server.info("commandstats");
    let scripts = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    println!("{WAITING} dead waiters: the next client holds after {took:.2} s; scripts:");
    scripts.for_each(|script| println!("  {script}"));
    Ok(())
}

/// The cost of the holds and the waiting claims of one process.
async fn claims() -> Result<()> {
    let server = Redis::start();
    let locks = leasehold::open(&server.url()).await?;

    let before = Usage::read(&server)?;
    let held = hold_all(&locks).await?;
    let holding = Usage::read(&server)?;
    println!("{HELD} holds: {}", holding.since(&before, HELD));
    idle(&server, "holds").await?;

    let mut waiting = JoinSet::new();
    let before = Usage::read(&server)?;
    for number in 0..WAITING {
        let lock = locks.mutex(name(number));
        waiting.spawn(async move { lock.acquire().await.map(drop) });
        // An acquire fails if the server does not reply for ten seconds.
        if number % QUEUED_AT_ONCE == QUEUED_AT_ONCE - 1 {
            wait_until_queued(&locks, &name(number)).await?;
        }
    }
    let both = Usage::read(&server)?;
    println!(
        "{WAITING} waiting claims, each behind another hold: {}",
        both.since(&before, WAITING)
    );
    idle(&server, "holds and waiting claims").await?;

    waiting.abort_all();
    drop(held);
    Ok(())
}

async fn hold_all(locks: &Locks) -> leasehold::Result<Vec<Guard>> {
    let acquires = (0..HELD).map(|number| {
        let lock = locks.mutex(name(number));
        async move { lock.acquire().await }
    });

    let acquires = stream::iter(acquires).buffer_unordered(AT_ONCE);
    acquires.try_collect().await
}

fn name(number: usize) -> String {
    format!("lock-{number:07}")
}

async fn wait_until_queued(locks: &Locks, last: &str) -> leasehold::Result<()> {
    while locks.inspect(last).await?.waiters().count() == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Prints what both processes do while no lock changes.
async fn idle(server: &Redis, what: &str) -> Result<()> {
    let [server_before, client_before] = [server.cpu_used(), client_cpu()?];
    let requests = statistic(server, "stats", "total_commands_processed")?;
    let sent = statistic(server, "stats", "total_net_input_bytes")?;
    let begun = Instant::now();
    sleep(IDLE).await;

    let seconds = begun.elapsed().as_secs_f64();
    let server_cpu = server
        .cpu_used()
        .saturating_sub(server_before)
        .as_secs_f64()
        / seconds;
    let client_cpu = client_cpu()?.saturating_sub(client_before).as_secs_f64() / seconds;
    let requests = statistic(server, "stats", "total_commands_processed")? - requests;
    let sent = statistic(server, "stats", "total_net_input_bytes")? - sent;
    println!(
        "  idle, {what}: server {:.1} % of a core, client {:.1} %, {:.0} commands/s, {:.0} kB/s",
        100.0 * server_cpu,
        100.0 * client_cpu,
        share(requests) / seconds,
        share(sent) / seconds / 1_000.0,
    );
    Ok(())
}

/// The memory of both sides, in bytes.
struct Usage {
    client: usize,
    server: usize,
}

impl Usage {
    fn read(server: &Redis) -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());

        Ok(Self {
            client: 1024 * kibibytes.context("no VmRSS")?.parse::<usize>()?,
            server: server_memory(server)?,
        })
    }

    fn since(&self, before: &Self, claims: usize) -> String {
        let each = |now: usize, before: usize| now.saturating_sub(before) / claims;
        format!(
            "{} bytes each in the client, {} on the server",
            each(self.client, before.client),
            each(self.server, before.server)
        )
    }
}

fn server_memory(server: &Redis) -> Result<usize> {
    statistic(server, "memory", "used_memory")
}

fn statistic(server: &Redis, section: &str, name: &str) -> Result<usize> {
    let info = server.info(section);
    let found = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(found
        .with_context(|| format!("no {name}"))?
        .trim()
        .parse()?)
}

/// The CPU time that all threads of this process have used.
fn client_cpu() -> Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += times
            .split(' ')
            .next()
            .context("schedstat is empty")?
            .parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

#[expect(clippy::cast_precision_loss, reason = "the figures have three digits")]
fn share(count: usize) -> f64 {
    count as f64
}
