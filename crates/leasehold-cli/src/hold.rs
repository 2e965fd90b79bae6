//! `leasehold hold`: holds a lock without a command, until its owner ends.

pub(crate) mod background;
pub(crate) mod control;
mod ending;
pub(crate) mod loss_note;
pub(crate) mod owner;

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use leasehold::{FencingToken, Locks, MultiGuard};
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::commands::{HeldLock, Hold, OnLost, Store};
use crate::exit::{Exit, print_error};
use crate::format::Escaped;
use crate::guards::{LossReport, release_and_report};
use crate::locking::{Request, SlotNumbers};
use crate::run::child::reap_as_init;
use crate::run::nested;
use crate::run::retry::Retry;
use crate::run::signals::Signals;
use crate::run::stopping::{StopOptions, Stopping};
use crate::run::waiting::{self, Acquired};
use control::{Control, Outcome, ReleaseRequest};
use ending::Ending;
use loss_note::LossNote;
use owner::Owner;

pub(crate) async fn hold(args: Hold) -> Result<Exit> {
    nested::check_one_store()?;
    let signals = Signals::new()?;
    let owner = match args.while_pid {
        Some(pid) => Owner::process(owner::open_process(pid)?)?,
        None => Owner::standard_input()?,
    };
    let label = owner::program(args.while_pid.unwrap_or(getppid().as_raw()));

    let holding = Holding {
        lock: &args.lock,
        label: &label,
        on_lost: OnLost::Ignore,
        kill_after: None,
    };
    holding.run(owner, Reader::StandardOutput, signals).await
}

/// The reader of the granted token.
#[derive(Debug)]
enum Reader {
    StandardOutput,
    /// A waiting `leasehold acquire`.
    Caller(background::Caller),
}

/// The lock to hold, and its options.
///
/// ```text
/// waiting ── grant ──► holding ── the owner ends ──► released, 0
///    │                    ├────── release request ─► released, 0; lost by then, 76
///    │                    ├────── signal ──────────► released, death by the signal
///    │                    └────── loss ────────────► 76, after the end of an owner that --on-lost
///    │                                               does not ignore
///    ├── the owner ends, or --wait is over ──► 75
///    └── signal ──► death by the signal
/// ```
#[derive(Clone, Copy, Debug)]
struct Holding<'a> {
    lock: &'a HeldLock,
    label: &'a str,
    on_lost: OnLost,
    kill_after: Option<Duration>,
}

/// How long the note of a loss may take.
const NOTE_MAX: Duration = Duration::from_secs(1);

/// A lock that was granted and reported.
struct ReportedHold<'a> {
    name: &'a str,
    guards: MultiGuard,
    stopping: Stopping,
    owner: Owner,
    control: Control,
    note: LossNote,
}

/// Why a hold ends.
enum End {
    OwnerEnded,
    Requested(ReleaseRequest),
    Signalled(Signal),
    /// It is lost, or so near to its end that the owner must be ended now.
    Lost,
}

impl Holding<'_> {
    async fn run(self, owner: Owner, mut reader: Reader, mut signals: Signals) -> Result<Exit> {
        let options = &self.lock.options;
        let store = &self.lock.store;
        let mut retry = Retry::within(options.wait, store);
        let acquired = tokio::select! {
            biased;
            () = owner.ended() => return Ok(self.ended_early(owner.shown()).await),
            () = reader.closed() => return Ok(self.ended_early(owner::WAITING_PROCESS).await),
            acquired = self.open_and_acquire(store, &mut retry, &mut signals) => acquired?,
        };
        let (locks, stopping, guards) = match acquired {
            Ok(held) => held,
            Err(not_granted) => return Ok(not_granted.exit(self.lock.busy)),
        };

        let first = &guards.guards()[0];
        let token = FencingToken::new(first.token(), first.claim_id());
        let reported = tokio::select! {
            biased;
            reported = report(token, reader) => reported,
            // A caller that is stopped does not print the token.
            () = owner.ended() => Err(anyhow!("the owner has ended before the token was printed")),
        };
        let control = match reported {
            Ok(control) => control,
            Err(error) => {
                guards.release().await?;
                return Err(error);
            }
        };

        let held = ReportedHold {
            name: &self.lock.name,
            guards,
            stopping,
            owner,
            control,
            note: LossNote::of(locks.url(), &self.lock.name, token.token()),
        };
        let end = held.until_end(&mut signals).await?;
        Ok(held.end(end, &mut signals).await)
    }

    async fn open(self, enters: bool) -> leasehold::Result<Locks> {
        let HeldLock {
            name,
            store,
            options,
            ..
        } = self.lock;
        if enters {
            let lock = |locks: &Locks| options.lock(locks, name, self.label);
            store.open_entering(lock, options.wait).await
        } else {
            store.open().await
        }
    }

    async fn open_and_acquire(
        self,
        store: &Store,
        retry: &mut Retry,
        signals: &mut Signals,
    ) -> Result<Acquired<(Locks, Stopping, MultiGuard)>> {
        // Nothing that the opened store shows can refuse the hold.
        let enters_at_start = self.kill_after.is_none() && !nested::is_enclosed();
        if enters_at_start {
            signals.install()?;
        }
        let opened = retry.until_available(|| self.open(enters_at_start));
        let locks = match waiting::open(opened, signals).await? {
            Ok(locks) => locks,
            Err(not_granted) => return Ok(Err(not_granted)),
        };
        let options = StopOptions {
            lock: &self.lock.options,
            on_lost: self.on_lost,
            kill_after: self.kill_after,
        };
        let stopping = Stopping::new(options, [&locks])?;
        signals
            .during(nested::check_not_enclosed(&locks, &self.lock.name))
            .await??;
        if !enters_at_start {
            signals.install()?;
        }

        let request = Request {
            names: std::slice::from_ref(&self.lock.name),
            options: &self.lock.options,
            label: self.label,
            slot_numbers: SlotNumbers::Unneeded,
            store: &locks,
            origin: store.origin,
            also: None,
        };
        let acquired = waiting::acquire(request, retry, signals).await?;
        Ok(acquired.map(|guards| (locks, stopping, guards)))
    }

    /// Reports that the owner ended before the grant, after the claim has left the queue.
    async fn ended_early(self, owner: &str) -> Exit {
        waiting::leave_queues().await;

        if !self.lock.options.quiet {
            let name = Escaped(&self.lock.name);
            print_error(format_args!("{name} was not granted before {owner} ended"));
        }
        Exit::NOT_IN_TIME
    }
}

impl ReportedHold<'_> {
    async fn until_end(&self, signals: &mut Signals) -> Result<End> {
        let is_held = || self.guards.check().is_ok();
        let end = tokio::select! {
            biased;
            () = self.until_loss() => End::Lost,
            request = self.control.release_request(is_held) => End::Requested(request),
            signal = signals.next_to_end() => End::Signalled(signal?),
            () = self.owner.ended() => End::OwnerEnded,
            never = reap_as_init() => match never? {},
        };
        Ok(end)
    }

    /// Waits until the owner must be ended, or until the loss if it is not ended.
    async fn until_loss(&self) {
        match self.stopping.on_lost {
            OnLost::Ignore => {
                self.guards.lost().await;
            }
            OnLost::Term | OnLost::Kill => {
                let margin = self.stopping.stop_margin();
                self.guards.until_remaining(margin).await;
            }
        }
    }

    async fn end(self, end: End, signals: &mut Signals) -> Exit {
        let exit = match end {
            End::OwnerEnded => Exit::DONE,
            End::Signalled(signal) => Exit::by_signal(signal),
            End::Requested(request) => {
                let released = self.guards.release().await;
                let outcome = Outcome::of(&released);
                let reason = "the store no longer had it when it was released";
                if outcome == Outcome::Lost {
                    self.note.leave(reason);
                }
                request.reply(outcome).await;
                if outcome != Outcome::Lost {
                    return Exit::DONE;
                }
                print_error(format_args!("lost {}: {reason}", Escaped(self.name)));
                return Exit::LOST;
            }
            End::Lost => {
                self.lost(signals).await;
                return Exit::LOST;
            }
        };

        let released = release_and_report(self.guards, LossReport::Due).await;
        released.map_or(Exit::LOST, |()| exit)
    }

    /// Ends the owner, and reports the loss.
    async fn lost(mut self, signals: &mut Signals) {
        // Standard error and disks may be slow, so the signals go first.
        let owner = self.owner.as_process();
        let ending = owner
            .filter(|_| self.stopping.on_lost != OnLost::Ignore)
            .map(|owner| Ending::begin(owner, &self.stopping, &self.guards));

        let reason = match self.guards.loss() {
            Some(loss) => loss.to_string(),
            None => self.stopping.cause(&self.guards),
        };
        let name = Escaped(self.name);
        print_error(format_args!("lost {name}: {reason}"));
        let (ended, noted) = oneshot::channel::<()>();
        let mut noted = noted.fuse();
        let note = move || {
            self.note.leave(&reason);
            drop(ended);
        };
        // Without a thread there is no note.
        let _ = thread::Builder::new().spawn(note);

        if let Some(mut ending) = ending {
            let reply_lost = async {
                // Its sender only ends.
                let _ = (&mut noted).await;
                self.control.reply_lost().await
            };
            let all_ended = tokio::select! {
                all_ended = ending.finish(&self.guards, signals) => all_ended,
                never = reply_lost => match never {},
            };
            if all_ended {
                // It was reported, also to the caller by its end.
                let _ = release_and_report(self.guards, LossReport::Printed).await;
            } else {
                // Released, the lock would be granted beside the processes that still run.
                std::mem::forget(self.guards);
            }
        }
        if !noted.is_terminated() {
            // A disk that does not reply must not keep this process.
            let _ = timeout(NOTE_MAX, noted).await;
        }
    }
}

/// Accepts release requests first, and then reports the grant. So a lock that was reported can
/// always be released.
async fn report(token: FencingToken, reader: Reader) -> Result<Control> {
    let control = Control::listen(token.claim())?;
    match reader {
        Reader::StandardOutput => {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", token.token())?;
            out.flush()?;
        }
        Reader::Caller(caller) => caller.report(token.token()).await?,
    }
    Ok(control)
}

impl Reader {
    /// Waits until the caller has ended. Never returns for standard output.
    async fn closed(&mut self) {
        match self {
            Self::StandardOutput => std::future::pending().await,
            Self::Caller(caller) => caller.closed().await,
        }
    }
}
