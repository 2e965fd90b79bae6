//! `leasehold acquire`: starts a background process that holds the lock.
//!
//! ```text
//! acquire ── starts, with a socket as its standard input ──► background process
//!    │                                                            │ waits for the lock
//!    │ ◄──────────────────────── token ───────────────────────────┤
//!    │ prints the token                                           │
//!    ├───────────────────────── printed ─────────────────────────►│ holds
//!    ▼ exits with 0                                               ▼
//! ```
//!
//! If `acquire` ends before it has printed the token, the socket closes, and the background process
//! releases the lock. So no lock stays held for a caller that does not know its token.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use leasehold::Token;
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::owner::{self, Owner};
use super::{Holding, Reader};
use crate::commands::{Acquire, OnLost, Origin};
use crate::exit::Exit;
use crate::own_program::{arguments_as, close_inherited, runs_as, start_as};
use crate::run::nested;
use crate::run::signals::Signals;

/// The option whose value the background process finds in the variable.
const STORE: &str = "--store";
const VARIABLE: &str = "LEASEHOLD_STORE";

/// The argument that starts leasehold as the background process. No subcommand has this name.
const BACKGROUND_ARGUMENT: &str = "__background";

/// Starts the background process and waits until it holds the lock.
pub(crate) fn acquire(args: &Acquire) -> Result<Exit> {
    nested::check_one_store()?;
    let owner = match args.while_pid {
        Some(pid) => {
            let process = owner::open_process(pid)?;
            if args.on_lost != OnLost::Ignore {
                owner::check_can_be_ended(pid)?;
            }
            Stdio::from(process)
        }
        // The parser accepts no owner only with --detach.
        None => Stdio::null(),
    };
    let (mut ours, theirs) = StdStream::pair().context("cannot make a socket")?;

    // All users can read the arguments of a process, and this one may run for days.
    let stated = (args.lock.store.origin == Origin::Option).then_some(&args.lock.store.url);
    let mut background = start_as(BACKGROUND_ARGUMENT)
        .args(stated.map(|_| STORE))
        .args(arguments_without_store())
        .envs(stated.map(|url| (VARIABLE, url)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(owner)
        .spawn()
        .context("cannot start the background process, which needs /proc/self/exe and /dev/null")?;

    let mut token = [0; 8];
    if ours.read_exact(&mut token).is_err() {
        return Ok(exit_of(background.wait()?));
    }

    let mut out = io::stdout().lock();
    writeln!(out, "{}", u64::from_be_bytes(token))?;
    out.flush()?;
    ours.write_all(&[PRINTED])
        .context("the background process has ended")?;
    Ok(Exit::DONE)
}

/// The arguments of this process without the URL of the store, which may contain a password.
fn arguments_without_store() -> Vec<OsString> {
    let mut arguments = std::env::args_os().skip(1);
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == STORE {
            arguments.next();
        } else if argument == "--" {
            kept.push(argument);
            kept.extend(arguments.by_ref());
        } else if !argument.as_encoded_bytes().starts_with(b"--store=") {
            kept.push(argument);
        }
    }
    kept
}

/// The message that `acquire` sends after it has printed the token.
const PRINTED: u8 = 1;

fn exit_of(status: ExitStatus) -> Exit {
    let signal = status
        .signal()
        .and_then(|number| Signal::try_from(number).ok());
    match (status.code(), signal) {
        (Some(code), _) => Exit::by_code(code),
        (None, Some(signal)) => Exit::by_signal(signal),
        (None, None) => Exit::INTERNAL,
    }
}

/// Returns the arguments of `acquire` if this process was started as its background process.
///
/// Leaves the caller's session and closes the descriptors inherited from the caller. Must be called
/// before this process opens files.
pub(crate) fn detach_if_background() -> Option<Vec<OsString>> {
    let program = std::env::args_os().next()?;
    let mut arguments: Vec<_> = arguments_as(BACKGROUND_ARGUMENT)?.collect();
    if arguments.first().is_some_and(|first| first == STORE) {
        arguments.insert(1, std::env::var_os(VARIABLE)?);
    }

    // It was started as /proc/self/exe, so the kernel calls it `exe`. Users see the name, and other
    // processes compare it with the program of a claim.
    let _ = fs::write("/proc/self/comm", "leasehold");
    // It fails only for the leader of a process group, which a new process is not.
    let _ = setsid();
    // Without /proc, they stay open.
    let _ = close_inherited();
    Some(std::iter::once(program).chain(arguments).collect())
}

/// Returns whether a process is the background process of an `acquire`.
pub(super) fn is_background(pid: i32) -> io::Result<bool> {
    runs_as(pid, BACKGROUND_ARGUMENT)
}

/// Holds the lock in the background process.
pub(crate) async fn hold(args: &Acquire) -> Result<Exit> {
    let signals = Signals::new()?;
    let caller = Caller::from_standard_input()?;
    let (owner, label) = if args.while_pid.is_some() {
        let pidfd = stdout().as_fd().try_clone_to_owned()?;
        let owner = Owner::process(pidfd)?;
        let label = owner.program();
        (owner, label)
    } else {
        (Owner::default(), String::new())
    };

    let holding = Holding {
        lock: &args.lock,
        label: &label,
        // Without an owner, there is no process to end.
        on_lost: if args.detach {
            OnLost::Ignore
        } else {
            args.on_lost
        },
        kill_after: args.kill_after,
    };
    holding.run(owner, Reader::Caller(caller), signals).await
}

/// The waiting `leasehold acquire`.
#[derive(Debug)]
pub(super) struct Caller(UnixStream);

impl Caller {
    fn from_standard_input() -> Result<Self> {
        let socket = StdStream::from(stdin().as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(socket)?))
    }

    /// Waits until the caller has ended. The caller does not send anything before it has the token.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call finds an end that a dropped call has not returned.
    pub(super) async fn closed(&mut self) {
        // Any result but a byte means that the other end is closed.
        let _ = self.0.read(&mut [0]).await;
    }

    /// Detaches from the caller, sends the token, and waits until `acquire` has printed
    /// it.
    pub(super) async fn report(mut self, token: Token) -> Result<()> {
        detach().context("cannot detach from the caller")?;

        self.0.write_u64(token.get()).await?;
        match self.0.read_u8().await {
            Ok(PRINTED) => Ok(()),
            _ => bail!("the caller has ended before it printed the token"),
        }
    }
}

/// Replaces the standard streams, and leaves the working directory of the caller, whose file system
/// could otherwise not be unmounted.
fn detach() -> io::Result<()> {
    std::env::set_current_dir("/")?;

    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}
