//! Acquires one lock, whose functions `lab/path.sh` traces: `acquire memory`, `acquire file` or
//! `acquire redis`.

use std::env;
use std::hint::black_box;

use anyhow::{Context, Result, bail};
use lab_servers::Redis;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let store = env::args().nth(1).context("name a store")?;
    let folder = tempfile::tempdir()?;
    let mut server = None;
    let url = match store.as_str() {
        "memory" => "memory:".to_owned(),
        "file" => format!("file:{}", folder.path().display()),
        "redis" => server.insert(Redis::start()).url(),
        other => bail!("{other:?} is not traced"),
    };

    let mutex = leasehold::open(&url).await?.mutex("orders/42");
    // The first acquire connects, and makes the files.
    mutex.acquire().await?.release().await?;
    trace_begins();
    let guard = mutex.acquire().await?;
    trace_ends();
    guard.release().await?;
    Ok(())
}

/// The debugger begins to trace here.
#[inline(never)]
fn trace_begins() {
    black_box(());
}

/// The debugger stops here.
#[inline(never)]
fn trace_ends() {
    black_box(());
}
