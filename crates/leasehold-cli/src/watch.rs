//! `leasehold watch`: prints the state of locks each time it changes.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use leasehold::{LockState, Locks};
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::commands::Watch;
use crate::exit::Exit;
use crate::format::time;
use crate::show::{LockJson, block};

/// The time between two polls: short enough for a user who watches, and long enough to be a small
/// load for any store.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) async fn watch(args: &Watch) -> Result<Exit> {
    let locks = args.store.open().await?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    tokio::select! {
        _ = interrupt.recv() => Ok(Exit::by_signal(Signal::SIGINT)),
        ended = print_changes(&locks, &args.names, args.json) => ended.map(|()| Exit::DONE),
    }
}

/// Prints every change. Returns only on an error.
async fn print_changes(locks: &Locks, names: &[String], json: bool) -> Result<()> {
    let mut next = interval(POLL_INTERVAL);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut printed = vec![None; names.len()];

    loop {
        next.tick().await;
        let polled = try_join_all(names.iter().map(|name| locks.inspect(name))).await?;

        for (mut lock_state, printed) in polled.into_iter().zip(&mut printed) {
            // The remaining lease on each server differs at every poll, which is not a change.
            lock_state.servers.clear();

            if printed.as_ref() != Some(&lock_state) {
                print(&lock_state, json)?;
                *printed = Some(lock_state);
            }
        }
    }
}

fn print(lock_state: &LockState, json: bool) -> Result<()> {
    let at = time(SystemTime::now());
    let mut out = io::stdout().lock();

    if json {
        let change = ChangeJson {
            at,
            lock: lock_state.into(),
        };
        writeln!(out, "{}", serde_json::to_string(&change)?)?;
    } else {
        writeln!(out, "{at}\n{}", block(lock_state))?;
    }
    Ok(out.flush()?)
}

/// A change as `watch --help` documents it.
#[derive(Serialize)]
struct ChangeJson<'a> {
    at: Timestamp,
    #[serde(flatten)]
    lock: LockJson<'a>,
}
