//! `leasehold run`: hold a lock while a command runs.

mod child;
pub(crate) mod exec_shim;
mod nested;
mod signals;
mod stopping;
mod supervision;
mod terminal;
mod waiting;

use anyhow::{Context, Result};
use leasehold::{ClaimantInfo, Guard, Lock, Locks};
use nix::sys::signal::{Signal, raise};
use tokio::time::Instant;

use crate::commands::Run;
use crate::exit::{Exit, print_error};
use child::Child;
use nested::Hold;
use signals::Signals;
use stopping::Stopping;
use terminal::Terminal;
use waiting::WaitOutcome;

pub(crate) async fn run(args: Run) -> Result<Exit> {
    let locks = args.store.open().await?;
    let stopping = Stopping::fitting(&args, &locks.guarantees())?;
    let lock = lock_for(&locks, &args);
    if let Some(outer) = nested::enclosing(&locks, &args.name).await? {
        return nested::join(&outer, &locks, &args);
    }
    let mut signals = Signals::install()?;
    match waiting::wait(&lock, &locks, &args, &mut signals).await? {
        WaitOutcome::Granted(guard) => hold(guard, &locks, &args, stopping, signals).await,
        WaitOutcome::TimedOut => Ok(Exit::NOT_IN_TIME),
        WaitOutcome::Interrupted(signal) => Ok(Exit::by_signal(signal)),
    }
}

/// Without --slots or --shared it is what the library calls a mutex.
fn lock_for(locks: &Locks, args: &Run) -> Lock {
    let lock = match (args.slots, args.shared) {
        (Some(slots), _) => locks
            .semaphore(&args.name, slots)
            .permits(args.permits.unwrap_or(1)),
        (None, true) => locks.rwlock(&args.name).shared(),
        (None, false) => locks.mutex(&args.name),
    };
    let lock = lock.lease(args.lease).label(&label(args));
    let lock = if args.no_renewal {
        lock.no_renewal()
    } else {
        lock
    };
    match args.max_hold {
        Some(longest) => lock.max_hold(longest),
        None => lock,
    }
}

/// What was asked for, or the program's name: its arguments may be secret.
fn label(args: &Run) -> String {
    if let Some(label) = &args.label {
        return label.clone();
    }
    let program = std::path::Path::new(&args.command[0])
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let end = (0..=ClaimantInfo::LABEL_MAX.min(program.len()))
        .rev()
        .find(|&at| program.is_char_boundary(at));
    program[..end.unwrap_or(0)].to_owned()
}

/// From the grant to the release. The guard lives until the command is gone: a store may keep others out for as long.
async fn hold(
    guard: Guard,
    locks: &Locks,
    args: &Run,
    stopping: Stopping,
    mut signals: Signals,
) -> Result<Exit> {
    let granted = Instant::now();
    signals.install_stop()?;
    let terminal = Terminal::controlling();
    let environment = nested::environment(&Hold::new(locks.url(), &guard), &args.store.url);
    let foreground = terminal.as_ref().is_some_and(Terminal::is_foreground);
    let spawned = Child::spawn(
        &args.command,
        environment,
        &guard.inheritable_fds()?,
        foreground,
    );
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            guard.release().await?;
            return Err(error).context("cannot start another process");
        }
    };
    let ended = supervision::supervise(
        &mut child,
        &guard,
        &mut signals,
        &stopping,
        locks.url(),
        terminal,
    )
    .await?;
    if let Some(shortest) = args.hold_at_least {
        hold_at_least(&guard, granted + shortest, &mut signals).await?;
    }
    let exit = if ended.stopped {
        Exit::LOST
    } else {
        ended.exit
    };
    Ok(release(guard).await.map_or(Exit::LOST, |()| exit))
}

/// Keeps the lock after the command has ended, until `until`, a signal or its loss.
async fn hold_at_least(guard: &Guard, until: Instant, signals: &mut Signals) -> Result<()> {
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
            print_error(&error);
            if error.is_lost() { Err(error) } else { Ok(()) }
        }
    }
}
