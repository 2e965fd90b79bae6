//! How many allocations and system calls an acquire and a release take together.
//!
//! The counts include those of tokio. The tests run one after the other, because the allocations of
//! another thread would be counted too.

// The test counts what a process allocates, and all threads of the program count.
// xtask: alone 1

#![forbid(unsafe_code)]

use std::alloc::System;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use lab_servers::Redis;
use leasehold::Locks;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 500;
/// On Redis, a pair takes one for the claim, one for its process, one each for what the engine and
/// the store know of it, and four for the futures of two requests.
const REDIS_MAX: usize = 8;
/// In a folder, a pair takes 14.
const FILE_MAX: usize = 16;
/// In a folder, a pair locks and unlocks two files, one of them twice (6 calls), inspects them (3),
/// reads and writes the queue (4), and asks for its process (2) and its FIFO (1).
const SYSTEM_CALLS_MAX: usize = 16;
/// Tells the program that strace runs it, and in which folder.
const TRACED: &str = "LEASEHOLD_LAB_TRACED";

#[test]
fn uncontended_pair_takes_few_allocations() -> Result<()> {
    let server = Redis::start();
    let folder = tempfile::tempdir()?;

    for (store, most) in [
        (server.url(), REDIS_MAX),
        (format!("file:{}", folder.path().display()), FILE_MAX),
    ] {
        let count = allocations(&store)?;
        println!("{count} allocations per pair on {store}");
        ensure!(count <= most, "{count} allocations per pair on {store}");
    }
    Ok(())
}

#[test]
fn uncontended_pair_takes_few_system_calls() -> Result<()> {
    if let Ok(traced) = env::var(TRACED) {
        let (repeats, store) = traced
            .split_once(' ')
            .context("the repeats and the store")?;
        return run(async {
            let locks = leasehold::open(store).await?;
            for _ in 0..repeats.parse()? {
                pairs(&locks).await?;
            }
            Ok(())
        });
    }

    let (few, many) = (system_calls(1)?, system_calls(3)?);
    let count = (many - few) / (2 * PAIRS);
    ensure!(
        count <= SYSTEM_CALLS_MAX,
        "{count} system calls per pair in a folder"
    );
    Ok(())
}

/// Counts the system calls of this test in a process of its own.
fn system_calls(repeats: usize) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let report = folder.path().join("report");
    let store = format!("file:{}", folder.path().join("store").display());
    let traced = Command::new("strace")
        .args(["-f", "-c", "-U", "name,calls", "-o"])
        .arg(&report)
        .arg(env::current_exe()?)
        .args(["--exact", "uncontended_pair_takes_few_system_calls"])
        .env(TRACED, format!("{repeats} {store}"))
        .output()
        .context("cannot start strace")?;
    ensure!(traced.status.success(), "{traced:?}");

    let report = fs::read_to_string(report)?;
    let total = report.lines().find_map(|line| line.strip_prefix("total"));
    Ok(total.context("no total")?.trim().parse()?)
}

fn allocations(store: &str) -> Result<usize> {
    run(async {
        let locks = leasehold::open(store).await?;
        pairs(&locks).await?;

        let region = Region::new(MEMORY);
        pairs(&locks).await?;
        let counted = region.change();
        Ok((counted.allocations + counted.reallocations) / PAIRS)
    })
}

fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

async fn pairs(locks: &Locks) -> Result<()> {
    let lock = locks.mutex("a");
    for _ in 0..PAIRS {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}
