//! Between leasehold and the command: a process that ties its life to leasehold's, then becomes the command.
//!
//! What it sets up must be set up in the new process before the command runs, and Rust allows no code there without
//! `unsafe`; so leasehold starts itself once more.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

use super::terminal::Terminal;
use crate::exit::{Exit, print_error};
use crate::format::Escaped;

/// No command of a user's is called so.
const SHIM_ARGUMENT: &str = "__child";
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";

/// leasehold started once more, to become `command` in a process group of its own.
pub(crate) fn start(command: &[OsString], foreground: bool) -> Command {
    // The file that runs now, even if another has taken its place meanwhile.
    let mut start = Command::new("/proc/self/exe");
    let position = if foreground { FOREGROUND } else { BACKGROUND };
    start
        .arg0("leasehold")
        .args([SHIM_ARGUMENT, &getpid().to_string(), position])
        .args(command)
        .process_group(0);
    start
}

/// Becomes the command if that is what this process was started for; comes back only if it is not, or cannot.
pub(crate) fn run_if_shim() -> Option<Exit> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != SHIM_ARGUMENT {
        return None;
    }
    let (parent, position, program) = (words.next()?, words.next()?, words.next()?);
    if let Err(error) = die_with(&parent) {
        print_error(format_args!("cannot tie a command to leasehold: {error}"));
        return Some(Exit::INTERNAL);
    }
    if position == FOREGROUND
        && let Some(terminal) = Terminal::controlling()
    {
        terminal.hand_to(getpid());
    }
    Some(become_command(Command::new(program).args(words)))
}

/// The kernel kills this process when leasehold's main thread, which started it, is no more.
fn die_with(parent: &OsStr) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    let parent = parent
        .to_str()
        .and_then(|text| text.parse().ok())
        .map(Pid::from_raw);
    // It may have ended before it was asked for.
    if parent == Some(getppid()) {
        Ok(())
    } else {
        Err(io::Error::other("it has ended"))
    }
}

/// Comes back only if the command cannot be executed, and has then said why.
pub(crate) fn become_command(command: &mut Command) -> Exit {
    let error = command.exec();
    print_error(format_args!(
        "cannot execute {}: {error}",
        Escaped(&command.get_program().to_string_lossy())
    ));
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NO_SUCH_COMMAND,
        _ => Exit::CANNOT_EXECUTE,
    }
}
