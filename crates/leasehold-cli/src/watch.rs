//! `leasehold watch`: a lock's line, again whenever it changes.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use jiff::Timestamp;
use leasehold::{LockState, Locks};
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::commands::Store;
use crate::exit::Exit;
use crate::format::time;
use crate::show::{LockJson, block};

/// Often enough for people, and no burden for any store.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) async fn watch(store: &Store, name: &str, json: bool) -> Result<Exit> {
    let locks = store.open().await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = interrupt.recv() => Ok(Exit::by_signal(Signal::SIGINT)),
        ended = print_changes(&locks, name, json) => ended.map(|()| Exit::DONE),
    }
}

/// Ends only by an error.
async fn print_changes(locks: &Locks, name: &str, json: bool) -> Result<()> {
    let mut next = interval(POLL_INTERVAL);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    loop {
        next.tick().await;
        let mut lock_state = locks.inspect(name).await?;
        // What is left of a lease is always another.
        lock_state.servers.clear();
        if seen.as_ref() != Some(&lock_state) {
            print(&lock_state, json)?;
            seen = Some(lock_state);
        }
    }
}

fn print(lock_state: &LockState, json: bool) -> Result<()> {
    let at = time(SystemTime::now());
    let mut out = io::stdout().lock();
    if json {
        writeln!(
            out,
            "{}",
            serde_json::to_string(&Change {
                at,
                lock: lock_state.into()
            })?
        )?;
    } else {
        writeln!(out, "{at}\n{}", block(lock_state))?;
    }
    Ok(out.flush()?)
}

#[derive(Serialize)]
struct Change<'a> {
    at: Timestamp,
    #[serde(flatten)]
    lock: LockJson<'a>,
}
