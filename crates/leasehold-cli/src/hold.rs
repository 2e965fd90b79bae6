//! `leasehold hold`: holds a lock without a command, until its owner ends.

pub(crate) mod background;
pub(crate) mod control;
pub(crate) mod owner;

use std::io::{self, Write};

use anyhow::{Result, anyhow};
use leasehold::FencingToken;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::commands::{HeldLock, Hold, Store};
use crate::exit::{Exit, print_error};
use crate::format::Escaped;
use crate::guards::{Guards, LossReport};
use crate::locking::{self, Request, SlotNumbers};
use crate::run::child::reap_as_init;
use crate::run::nested;
use crate::run::retry::Retry;
use crate::run::signals::Signals;
use crate::run::waiting::Acquired;
use control::{Control, Outcome, ReleaseRequest};
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
///    │                    ├────── release request ─► released, 0
///    │                    ├────── signal ──────────► released, death by the signal
///    │                    └────── loss ────────────► 76
///    ├── the owner ends, or --wait is over ──► 75
///    └── signal ──► death by the signal
/// ```
#[derive(Clone, Copy, Debug)]
struct Holding<'a> {
    lock: &'a HeldLock,
    label: &'a str,
}

/// Why a hold ends.
enum End {
    OwnerEnded,
    Requested(ReleaseRequest),
    Signalled(Signal),
    Lost(leasehold::LossReason),
}

impl Holding<'_> {
    async fn run(self, owner: Owner, mut reader: Reader, mut signals: Signals) -> Result<Exit> {
        let options = &self.lock.options;
        let store = &self.lock.store;
        let mut retry = Retry::within(options.wait, store);
        let acquired = tokio::select! {
            biased;
            () = owner.ended() => return Ok(self.owner_ended_early().await),
            () = reader.closed() => return Ok(self.owner_ended_early().await),
            acquired = self.open_and_acquire(store, &mut retry, &mut signals) => acquired?,
        };
        let guards = match acquired {
            Acquired::Granted(guards) => guards,
            Acquired::TimedOut => return Ok(self.lock.busy.exit()),
            Acquired::Interrupted(signal) => return Ok(Exit::by_signal(signal)),
        };

        let first = guards.first();
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

        let end = until_end(&guards, &owner, &mut signals, &control).await?;
        Ok(self.end(guards, end).await)
    }

    async fn open_and_acquire(
        self,
        store: &Store,
        retry: &mut Retry,
        signals: &mut Signals,
    ) -> Result<Acquired> {
        let opened = retry.until_available(|| store.open());
        let locks = signals.during(opened).await??;
        signals
            .during(nested::check_not_enclosed(&locks, &self.lock.name))
            .await??;
        signals.install()?;

        let request = Request {
            names: std::slice::from_ref(&self.lock.name),
            options: &self.lock.options,
            label: self.label,
            slot_numbers: SlotNumbers::Unneeded,
            origin: store.origin,
        };
        locking::acquire(&locks, request, retry, signals).await
    }

    /// Reports that the owner ended before the grant, after the claim has left the queue.
    async fn owner_ended_early(self) -> Exit {
        locking::leave_queues().await;

        if !self.lock.options.quiet {
            let name = Escaped(&self.lock.name);
            print_error(format_args!(
                "{name} was not granted before the process that waits for it ended"
            ));
        }
        Exit::NOT_IN_TIME
    }

    async fn end(self, guards: Guards, end: End) -> Exit {
        let exit = match end {
            End::OwnerEnded => Exit::DONE,
            End::Signalled(signal) => Exit::by_signal(signal),
            End::Requested(request) => {
                let released = guards.release().await;
                request.reply(Outcome::of(&released)).await;
                return Exit::DONE;
            }
            End::Lost(reason) => {
                print_error(format_args!("lost {}: {reason}", Escaped(&self.lock.name)));
                return Exit::LOST;
            }
        };

        let released = guards.release_and_report(LossReport::Due).await;
        released.map_or(Exit::LOST, |()| exit)
    }
}

/// Accepts release requests first, and then reports the grant. So a lock that was reported can
/// always be released.
async fn report(token: FencingToken, reader: Reader) -> Result<Control> {
    let control = Control::listen(token)?;
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

async fn until_end(
    guards: &Guards,
    owner: &Owner,
    signals: &mut Signals,
    control: &Control,
) -> Result<End> {
    let end = tokio::select! {
        biased;
        reason = guards.lost() => End::Lost(reason),
        request = control.release_request() => End::Requested(request),
        signal = signals.next_to_end() => End::Signalled(signal?),
        () = owner.ended() => End::OwnerEnded,
        never = reap_as_init() => match never? {},
    };
    Ok(end)
}
