//! `leasehold watch`: prints the state of locks each time it changes.

use std::io::{self, Write};
use std::time::SystemTime;

use anyhow::Result;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::select_all;
use jiff::Timestamp;
use leasehold::{LockState, Locks};
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::Watch;
use crate::exit::{Exit, print_error};
use crate::format::time;
use crate::show::{LockJson, block};

pub(crate) async fn watch(args: &Watch) -> Result<Exit> {
    let locks = args.store.open().await?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    tokio::select! {
        _ = interrupt.recv() => Ok(Exit::by_signal(Signal::SIGINT)),
        ended = print_changes(&locks, &args.names, args.json) => ended.map(|()| Exit::DONE),
    }
}

/// Prints the present state of each lock, and then every change. Returns only on an error.
async fn print_changes(locks: &Locks, names: &[String], json: bool) -> Result<()> {
    let mut observers = try_join_all(names.iter().map(|name| locks.observe(name))).await?;
    for observer in &mut observers {
        print(observer.next().await?, json)?;
    }

    let changes = observers
        .into_iter()
        .map(|observer| Box::pin(observer.into_stream()));
    let mut changes = select_all(changes);
    let mut is_away = false;
    while let Some(lock_state) = changes.next().await {
        match lock_state {
            Ok(lock_state) => {
                is_away = false;
                print(lock_state, json)?;
            }
            // The observer tries again, and reports the state that it finds then.
            Err(error) if error.is_unavailable() => {
                if !is_away {
                    print_error(format_args!("{error}; watching again when it replies"));
                }
                is_away = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn print(mut lock_state: LockState, json: bool) -> Result<()> {
    // The remaining lease on each server differs at every inspection, which is not a change.
    lock_state.servers.clear();
    let at = time(SystemTime::now());
    let mut out = io::stdout().lock();

    if json {
        let change = ChangeJson {
            at,
            lock: (&lock_state).into(),
        };
        writeln!(out, "{}", serde_json::to_string(&change)?)?;
    } else {
        writeln!(out, "{at}\n{}", block(&lock_state))?;
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
