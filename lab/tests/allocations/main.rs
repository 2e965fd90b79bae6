//! How many allocations an acquire and a release take together.
//!
//! The counts include those of tokio. The program has one test, because the allocations of another
//! thread would be counted too.

// The test counts what a process allocates, and all threads of the program count.
// xtask: alone 1

#![forbid(unsafe_code)]

use std::alloc::System;

use anyhow::{Result, ensure};
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

fn allocations(store: &str) -> Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;

    runtime.block_on(async {
        let locks = leasehold::open(store).await?;
        pairs(&locks).await?;

        let region = Region::new(MEMORY);
        pairs(&locks).await?;
        let counted = region.change();
        Ok((counted.allocations + counted.reallocations) / PAIRS)
    })
}

async fn pairs(locks: &Locks) -> Result<()> {
    let lock = locks.mutex("a");
    for _ in 0..PAIRS {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}
