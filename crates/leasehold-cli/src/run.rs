//! `leasehold run`: holds a lock while a command runs.

pub(crate) mod child;
mod children;
pub(crate) mod elect;
pub(crate) mod exec_shim;
mod job_control;
pub(crate) mod nested;
pub(crate) mod own_script;
pub(crate) mod process_table;
mod releasing;
pub(crate) mod retry;
pub(crate) mod signals;
pub(crate) mod stopping;
mod stores;
mod supervision;
mod terminal;
pub(crate) mod waiting;
pub(crate) mod watchdog;
pub(crate) mod watchdog_process;

use std::io;

use anyhow::{Context, Result};
use leasehold::{BootInstant, Error, MultiGuard, StartedJob};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::commands::Run;
use crate::exit::Exit;
use crate::guards::{LossReport, inheritable_fds, release_and_report};
use crate::locking::{Request, SlotNumbers};
use crate::once::{self, Start};
use child::{Child, Unended};
use exec_shim::{Preparation, Spawn};
use job_control::{AtStart, JobControl};
use process_table::ProcessTable;
use retry::Retry;
use signals::Signals;
use stopping::{StopOptions, Stopping};
use stores::Stores;
pub(crate) use supervision::Ended;
use supervision::{Stage, Supervision, Survivors};

pub(crate) async fn run(args: Run) -> Result<Exit> {
    let asked = BootInstant::now();
    let mut signals = Signals::new()?;
    let mut retry =
        Retry::within(args.lock.wait, &args.store).and_store(args.also_store.as_deref());
    stopping::check_hold_at_least(&args)?;
    let enters_at_start = args.enters_at_start();
    if enters_at_start {
        signals.install()?;
    }
    let opened = retry.until_available(|| Stores::open(&args));
    let stores = match waiting::open(opened, &mut signals).await? {
        Ok(stores) => stores,
        Err(not_granted) => return Ok(not_granted.exit(args.busy)),
    };
    let job = args.job(&stores.main)?;
    if let Some(job) = &job {
        let checked = retry.until_available(|| job.check());
        if let Some(done) = signals.during(checked).await?? {
            return Ok(once::already_done(&done, &args));
        }
    }
    let both = [&stores.main].into_iter().chain(&stores.also);
    let stopping = Stopping::new(args.stop_options(), both)?;
    let names = args.names();

    let enclosing = retry.until_available(|| stores.enclosing(&names));
    let outer = signals.during(enclosing).await??;
    if let Some(outer) = outer {
        // The command inherits the signal mask.
        drop(signals);
        return nested::join(outer, &args);
    }

    if !enters_at_start {
        signals.install()?;
    }
    let request = Request {
        names: &names,
        options: &args.lock,
        label: &args.label(),
        slot_numbers: SlotNumbers::Taken,
        store: &stores.main,
        origin: args.store.origin,
        also: stores.also.as_ref(),
    };
    loop {
        let guards = match waiting::acquire(request, &mut retry, &mut signals).await? {
            Ok(guards) => guards,
            Err(not_granted) => return Ok(not_granted.exit(args.busy)),
        };
        let (guards, started) = match &job {
            None => (guards, None),
            Some(job) => {
                let starting = once::start(job, asked, guards, &mut retry, &mut signals);
                match starting.await? {
                    Start::Started(guards, started) => (guards, Some(started)),
                    Start::Done(done) => return Ok(once::already_done(&done, &args)),
                    Start::Interrupted(not_granted) => return Ok(not_granted.exit(args.busy)),
                    Start::Lost => continue,
                }
            }
        };
        let held = hold(guards, started, &args, &stopping, &mut signals).await?;
        return Ok(held.exit);
    }
}

impl Run {
    fn stop_options(&self) -> StopOptions<'_> {
        StopOptions {
            lock: &self.lock,
            on_lost: self.on_lost,
            kill_after: self.kill_after,
        }
    }

    /// Whether the claim of the only lock is entered while the store is opened: nothing that the
    /// opened store shows can refuse this run, or replace its claim.
    fn enters_at_start(&self) -> bool {
        let is_job = self.once.id.is_some() || self.once.period.is_some();
        let is_one = self.names().len() == 1 && self.also_store.is_none();
        let is_refusable = self.kill_after.is_some() || nested::is_enclosed();
        is_one && !is_job && !is_refusable && self.lock.slots.is_none()
    }

    /// Returns the program's file name as the label. Its arguments may be secret.
    fn label(&self) -> String {
        /// Every store keeps a label of this length, in bytes.
        const LABEL_MAX: usize = 64;
        let program = std::path::Path::new(&self.command[0])
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let end = (0..=LABEL_MAX.min(program.len()))
            .rev()
            .find(|&at| program.is_char_boundary(at));
        program[..end.unwrap_or(0)].to_owned()
    }
}

/// Runs the command from the grant to the release.
///
/// Keeps the guards until the command has ended. A store may exclude other clients only while a
/// guard exists.
async fn hold(
    guards: MultiGuard,
    job: Option<StartedJob>,
    args: &Run,
    stopping: &Stopping,
    signals: &mut Signals,
) -> Result<Held> {
    let granted = Instant::now();
    let has_to_note_keys = job.is_some() || args.lock.is_candidate();
    let jobs = JobControl::new(if has_to_note_keys {
        AtStart::Kept
    } else {
        AtStart::Given
    });
    let preparation = Preparation {
        foreground: jobs.is_given(),
        blocked: signals.blocked_at_start(),
    };
    let mut child = match start(&guards, args, stopping, preparation).await {
        Ok(child) => child,
        Err(error) => {
            if Unended::is_in(&error) {
                std::mem::forget(guards);
            } else {
                // It is printed, and the reason why the command was not started is returned.
                let _ = release_and_report(guards, LossReport::Due).await;
            }
            return Err(error).context("cannot start another process");
        }
    };

    let supervision = Supervision {
        child: &mut child,
        guard: &guards,
        signals: &mut *signals,
        stopping,
        jobs,
        until_all_end: args.until_all_end,
        stage: Stage::Held,
        report_at: None,
        survivors: Survivors::Unreported,
        forwarded: Vec::new(),
    };
    let supervised = supervision.run().await;
    let Ok(Some(ended)) = supervised else {
        // Released, the lock would be granted beside the processes that still run. So the store
        // frees it: a folder when they have ended, a server as after a crash.
        std::mem::forget(guards);
        supervised?;
        return Ok(Held {
            exit: Exit::LOST,
            end_requested: true,
        });
    };
    // This ends the watchdog.
    drop(child);

    let mut exit = ended.exit;
    if let Some(shortest) = args.hold_at_least {
        exit = hold_at_least(&guards, granted + shortest, signals)
            .await?
            .unwrap_or(exit);
    }
    if ended.stopped {
        exit = Exit::LOST;
    }
    let loss = if ended.stopped {
        // It was printed when the command was stopped.
        LossReport::Printed
    } else {
        LossReport::Due
    };
    let exit = match job {
        Some(job) if !ended.stopped => once::end(job, guards, ended, signals).await?,
        _ => {
            let released = release_and_report(guards, loss).await;
            released.map_or(Exit::LOST, |()| exit)
        }
    };

    if let Exit::Signal(signal) = exit
        && ended.from_keyboard
    {
        signal_job(signal);
    }
    Ok(Held {
        exit,
        end_requested: ended.end_requested,
    })
}

/// How a hold ended.
struct Held {
    exit: Exit,
    /// Whether a signal has requested the end of leasehold, or it cannot go on.
    end_requested: bool,
}

async fn start(
    guard: &MultiGuard,
    args: &Run,
    stopping: &Stopping,
    preparation: Preparation,
) -> Result<Child> {
    if args.until_all_end {
        // An error here is better than one after the command has ended.
        ProcessTable::read()?;
    }

    let environment = nested::environment(guard, args);
    let holds_len = nested::len_of_holds(&environment);
    let settings = Spawn {
        command: &args.command,
        environment,
        inheritable_fds: &inheritable_fds(guard)?,
        hold_count: guard.guards().len(),
        preparation,
    };

    let child = if stopping.needs_watchdog(guard) {
        Child::spawn_guarded(settings, || stopping.unattended(guard)).await
    } else {
        Child::spawn(settings)
    };
    child.map_err(|error| explain_spawn_error(error, holds_len))
}

/// Explains why the command was not started. `holds_len` is the length of the list of its holds.
fn explain_spawn_error(error: io::Error, holds_len: usize) -> anyhow::Error {
    if error.raw_os_error() != Some(Errno::E2BIG as i32) {
        return error.into();
    }
    let message = format!(
        "the command's arguments or environment are longer than the kernel accepts; \
         the list of its holds in LEASEHOLD_HELD has {holds_len} bytes"
    );
    Error::invalid(message)
        .help("lock fewer names in one run, or pass long arguments in a file")
        .into()
}

/// Sends a keyboard signal to the job that leasehold is part of, such as a script.
///
/// The terminal belonged to the command's group, so no other process has received the signal.
fn signal_job(number: i32) {
    let signal = Signal::try_from(number).expect("the keyboard sends INT and QUIT only");
    // Fails only if the group has no process, and leasehold itself is in it.
    let _ = kill(Pid::from_raw(0), signal);
}

/// Keeps the lock after the command has ended: to the time `until`, a signal, or the loss of the
/// lock.
///
/// Returns a signal that the keyboard may have sent. It ends leasehold as it would have ended the
/// command.
async fn hold_at_least(
    guard: &MultiGuard,
    until: Instant,
    signals: &mut Signals,
) -> Result<Option<Exit>> {
    tokio::select! {
        () = tokio::time::sleep_until(until) => Ok(None),
        _ = guard.lost() => Ok(None),
        signal = signals.next_to_end() => match signal? {
            signal @ (Signal::SIGINT | Signal::SIGQUIT) => Ok(Some(Exit::by_signal(signal))),
            _ => Ok(None),
        },
        never = child::reap_as_init() => match never? {},
    }
}
