//! `leasehold run`: holds a lock while a command runs.

mod child;
pub(crate) mod exec_shim;
mod nested;
mod signals;
mod stopping;
mod supervision;
mod terminal;
mod waiting;

use anyhow::{Context, Result};
use leasehold::store::Share;
use leasehold::{ClaimantInfo, Guard, Lock, Locks};
use nix::sys::signal::{Signal, raise};
use tokio::time::Instant;

use crate::commands::Run;
use crate::exit::{Exit, print_error};
use child::Child;
use nested::Hold;
use signals::Signals;
use stopping::Stopping;
use supervision::{Stage, Supervision};
use terminal::Terminal;
use waiting::WaitOutcome;

pub(crate) async fn run(args: Run) -> Result<Exit> {
    let locks = args.store.open().await?;
    let stopping = Stopping::new(&args, &locks.guarantees())?;
    let lock = args.lock(&locks);

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

impl Run {
    fn lock(&self, locks: &Locks) -> Lock {
        let lock = match (self.slots, self.shared) {
            (Some(slots), _) => locks
                .semaphore(&self.name, slots)
                .permits(self.permits.unwrap_or(1)),
            (None, true) => locks.rwlock(&self.name).shared(),
            (None, false) => locks.mutex(&self.name),
        };

        let lock = lock.lease(self.lease).label(&self.label());
        let lock = if self.no_renewal {
            lock.no_renewal()
        } else {
            lock
        };
        match self.max_hold {
            Some(longest) => lock.max_hold(longest),
            None => lock,
        }
    }

    /// The share that `lock` requests.
    fn share(&self) -> leasehold::Result<Share> {
        match (self.slots, self.shared) {
            (Some(slots), _) => Share::slots(self.permits.unwrap_or(1), slots),
            (None, true) => Ok(Share::READER),
            (None, false) => Ok(Share::MUTEX),
        }
    }

    /// Returns `--label`, or the program's file name. Its arguments may be secret.
    fn label(&self) -> String {
        if let Some(label) = &self.label {
            return label.clone();
        }

        let program = std::path::Path::new(&self.command[0])
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let end = (0..=ClaimantInfo::LABEL_MAX.min(program.len()))
            .rev()
            .find(|&at| program.is_char_boundary(at));
        program[..end.unwrap_or(0)].to_owned()
    }
}

/// Runs the command from the grant to the release.
///
/// The guard lives until the command has ended. A store may exclude other clients only that long.
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
    let spawned = Child::spawn(
        &args.command,
        environment,
        &guard.inheritable_fds()?,
        terminal.as_ref().is_some_and(Terminal::is_foreground),
    );
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            guard.release().await?;
            return Err(error).context("cannot start another process");
        }
    };

    let supervision = Supervision {
        child: &mut child,
        guard: &guard,
        signals: &mut signals,
        stopping: &stopping,
        store: locks.url(),
        terminal,
        stage: Stage::Held,
    };
    let ended = supervision.run().await?;

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

/// Keeps the lock after the command has ended: until `until`, a signal, or the loss of the lock.
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

/// Releases the lock and prints an error of the release. Fails only if the lock was lost before.
async fn release(guard: Guard) -> leasehold::Result<()> {
    match guard.release().await {
        Ok(()) => Ok(()),
        Err(error) => {
            print_error(&error);
            if error.is_lost() { Err(error) } else { Ok(()) }
        }
    }
}
