//! `leasehold run`: hold a lock while a command runs.

mod child;
mod nested;
mod signals;
mod stopping;
mod supervision;
mod terminal;
pub(crate) mod trampoline;
mod waiting;

use anyhow::{Context, Result};
use leasehold::{Guard, Lock, Locks, Note};
use nix::sys::signal::{Signal, raise};
use tokio::time::Instant;

use crate::commands::Run;
use crate::exit::{Exit, say};
use child::Child;
use nested::Hold;
use signals::Signals;
use stopping::Stopping;
use terminal::Terminal;
use waiting::Waited;

pub(crate) async fn run(terms: Run) -> Result<Exit> {
    let locks = terms.store.open().await?;
    let stopping = Stopping::fitting(&terms, &locks.promises())?;
    let lock = lock(&locks, &terms);
    if let Some(outer) = nested::outer(&locks, &terms.name).await? {
        return nested::join(&outer, &locks, &terms);
    }
    let mut signals = Signals::listen()?;
    match waiting::wait(&lock, &locks, &terms, &mut signals).await? {
        Waited::Granted(guard) => hold(guard, &locks, &terms, stopping, signals).await,
        Waited::TooLate => Ok(Exit::NOT_IN_TIME),
        Waited::Called(signal) => Ok(Exit::by_signal(signal)),
    }
}

/// Without --slots or --shared it is what the library calls a mutex.
fn lock(locks: &Locks, terms: &Run) -> Lock {
    let lock = match (terms.slots, terms.shared) {
        (Some(slots), _) => locks.semaphore(&terms.name, slots).take(terms.take.unwrap_or(1)),
        (None, true) => locks.rwlock(&terms.name).shared(),
        (None, false) => locks.mutex(&terms.name),
    };
    let lock = lock.lease(terms.lease).label(&label(terms));
    let lock = if terms.fixed { lock.fixed() } else { lock };
    match terms.max_hold {
        Some(longest) => lock.max_hold(longest),
        None => lock,
    }
}

/// What was asked for, or the program's name: its arguments may be secret.
fn label(terms: &Run) -> String {
    if let Some(label) = &terms.label {
        return label.clone();
    }
    let program = std::path::Path::new(&terms.command[0]).file_name().unwrap_or_default().to_string_lossy();
    let end = (0..=Note::LABEL_MAX.min(program.len())).rev().find(|&at| program.is_char_boundary(at));
    program[..end.unwrap_or(0)].to_owned()
}

/// From the grant to the release. The guard lives until the command is gone: a store may keep others out for as long.
async fn hold(guard: Guard, locks: &Locks, terms: &Run, stopping: Stopping, mut signals: Signals) -> Result<Exit> {
    let granted = Instant::now();
    signals.listen_to_stop()?;
    let terminal = Terminal::controlling();
    let environment = nested::environment(&Hold::new(locks.place(), &guard), &terms.store.url);
    let foreground = terminal.as_ref().is_some_and(Terminal::is_for_us_alone);
    let spawned = Child::spawn(&terms.command, environment, &guard.anchors()?, foreground);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            guard.release().await?;
            return Err(error).context("cannot start another process");
        }
    };
    let ended = supervision::supervise(&mut child, &guard, &mut signals, &stopping, locks.place(), terminal).await?;
    if let Some(shortest) = terms.hold_at_least {
        hold_on(&guard, granted + shortest, &mut signals).await?;
    }
    let exit = if ended.stopped { Exit::LOST } else { ended.exit };
    Ok(release(guard).await.map_or(Exit::LOST, |()| exit))
}

/// Keeps the lock after the command has ended, until `until`, a signal or its loss.
async fn hold_on(guard: &Guard, until: Instant, signals: &mut Signals) -> Result<()> {
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(until) => return Ok(()),
            _ = guard.lost() => return Ok(()),
            signal = signals.next() => match signal {
                Signal::SIGTSTP => raise(Signal::SIGSTOP)?,
                _ => return Ok(()),
            },
        }
    }
}

/// Says what went wrong; fails only if the lock was lost before.
async fn release(guard: Guard) -> leasehold::Result<()> {
    match guard.release().await {
        Ok(()) => Ok(()),
        Err(error) => {
            say(&error);
            if error.is_lost() { Err(error) } else { Ok(()) }
        }
    }
}
