//! `leasehold watch`: prints the state of locks each time it changes.

use std::collections::HashMap;
use std::io::{self, Write};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use futures_util::future::try_join_all;
use futures_util::stream::{self, SelectAll};
use futures_util::{Stream, StreamExt};
use jiff::Timestamp;
use leasehold::{EndedHold, LockState, Name, Observer};
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::{Inspected, Watch, in_this_format};
use crate::exit::{Exit, print_error};
use crate::format::time;
use crate::show::{LockJson, block, is_free};

pub(crate) async fn watch(args: &Watch) -> Result<Exit> {
    let opened = args.store.open_all().await?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    tokio::select! {
        _ = interrupt.recv() => Ok(Exit::by_signal(Signal::SIGINT)),
        ended = print_changes(&opened, &args.names, args.json) => ended.map(|()| Exit::DONE),
    }
}

/// Prints the present state of each lock, and then every change. Returns only on an error.
async fn print_changes(opened: &[Inspected], names: &[String], json: bool) -> Result<()> {
    let has_formats = opened.len() > 1;
    let mut changes = SelectAll::new();
    for inspected in opened {
        let format = has_formats.then_some(inspected.format);
        let observing = names.iter().map(|name| inspected.locks.observe(name));
        for observer in try_join_all(observing).await? {
            changes.push(states(observer, format).await?);
        }
    }

    let mut is_away = false;
    let mut ends = Ends::default();
    while let Some((format, lock_state)) = changes.next().await {
        match lock_state {
            Ok(lock_state) => {
                is_away = false;
                let ended = ends.of_change(format, &lock_state);
                print(lock_state, ended.as_ref(), format, json)?;
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

type States = Pin<Box<dyn Stream<Item = (Option<&'static str>, leasehold::Result<LockState>)>>>;

/// Returns the states of a lock. Without several formats, it fails if the first one cannot be read.
///
/// With several formats, a name that another format uses counts as free. If the lock is free, the
/// first state is left out.
async fn states(mut observer: Observer, format: Option<&'static str>) -> Result<States> {
    if format.is_none() {
        let first = stream::iter([Ok(observer.next().await?)]);
        let states = first.chain(observer.into_stream());
        return Ok(Box::pin(states.map(move |state| (format, state))));
    }

    let mut was_free = true;
    let states = observer
        .into_stream()
        .then(async |state| match in_this_format(state) {
            Ok(None) => {
                tokio::time::sleep(FOREIGN_PAUSE).await;
                None
            }
            Ok(Some(state)) => Some(Ok(state)),
            Err(error) => Some(Err(error)),
        });
    let states = states.filter_map(move |state| {
        let is_repeated = matches!(&state, Some(Ok(state)) if was_free && is_free(state));
        was_free = matches!(&state, Some(Ok(state)) if is_free(state));
        let state = state.filter(|_| !is_repeated);
        std::future::ready(state.map(|state| (format, state)))
    });
    Ok(Box::pin(states))
}

/// How long a name that another format uses is left alone.
const FOREIGN_PAUSE: Duration = Duration::from_secs(1);

/// The last end of a hold of each lock, as it was read last.
#[derive(Default)]
struct Ends(HashMap<(Option<&'static str>, Name), Option<EndedHold>>);

impl Ends {
    /// Returns the hold that has ended since the last state, if the store knows why.
    fn of_change(
        &mut self,
        format: Option<&'static str>,
        lock_state: &LockState,
    ) -> Option<EndedHold> {
        let key = (format, lock_state.name.clone());
        let before = self.0.insert(key, lock_state.ended.clone())?;
        lock_state
            .ended
            .clone()
            .filter(|ended| before.as_ref() != Some(ended))
    }
}

fn print(
    mut lock_state: LockState,
    ended: Option<&EndedHold>,
    format: Option<&'static str>,
    json: bool,
) -> Result<()> {
    // The remaining lease on each server differs at every inspection, which is not a change.
    lock_state.servers.clear();
    let at = time(SystemTime::now());
    let mut out = io::stdout().lock();

    if json {
        let change = ChangeJson {
            at,
            lock: LockJson::in_format(format, &lock_state),
        };
        writeln!(out, "{}", serde_json::to_string(&change)?)?;
    } else {
        let format = format.map_or_else(String::new, |format| format!("{format}: "));
        writeln!(out, "{at}\n{format}{}", block(&lock_state))?;
        if let Some(ended) = ended {
            writeln!(out, "  token {} before: {}", ended.token, ended.reason)?;
        }
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
