//! The shim: a process that arranges to be killed when its parent ends, then executes COMMAND. The
//! parent is leasehold, or its watchdog.
//!
//! These steps must run in the new process before COMMAND does. Rust can run code between fork and
//! exec only with `unsafe`. So leasehold starts its own program once more, and that process
//! executes COMMAND.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

use super::signals::{be_stopped_for_the_terminal, restore_mask};
use super::terminal::Terminal;
use crate::commands::is_shell_line;
use crate::exit::{Exit, print_error};
use crate::format::Escaped;
use crate::own_program::{arguments_as, start_as};

/// The argument that starts leasehold as the shim. No subcommand has this name.
const SHIM_ARGUMENT: &str = "__child";

/// The settings of the start of a command.
pub(crate) struct Spawn<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The descriptors that the command and its descendants inherit. If leasehold is killed, the
    /// lock stays held until the last of these processes has ended.
    pub(crate) inheritable_fds: &'a [OwnedFd],
    /// How many of the holds in the environment are those of this run.
    pub(crate) hold_count: usize,
    pub(crate) preparation: Preparation,
}

/// How the shim prepares its process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preparation {
    /// Whether the command begins with the terminal.
    pub(crate) foreground: bool,
    /// The signals that were blocked when leasehold started. It blocks the stop signal, and the
    /// watchdog blocks more.
    ///
    /// A process that is stopped before it executes the shim would keep its parent in vfork(2).
    pub(crate) blocked: u64,
}

impl Preparation {
    /// Returns the arguments of [`start`].
    pub(crate) fn arguments(self, command: &[OsString]) -> Vec<OsString> {
        let own = [
            getpid().to_string().into(),
            self.foreground.to_string().into(),
            self.blocked.to_string().into(),
        ];
        [&own, command].concat()
    }
}

/// Builds the start of the shim, which executes the command in a process group of its own.
pub(crate) fn start(arguments: impl IntoIterator<Item = OsString>) -> Command {
    let mut start = start_as(SHIM_ARGUMENT);
    start
        .arg(getpid().to_string())
        .args(arguments)
        .process_group(0);
    start
}

/// Executes the command if this process was started as the shim.
///
/// Returns `None` in any other process, and the exit code if the command cannot be executed.
pub(crate) fn run_if_shim() -> Option<Exit> {
    let mut arguments = arguments_as(SHIM_ARGUMENT)?;
    let parent = arguments.next()?;
    let leasehold = arguments.next()?;
    let foreground = arguments.next()?;
    let blocked = arguments.next()?;
    let program = arguments.next()?;

    if let Err(error) = die_with(&parent) {
        print_error(format_args!(
            "cannot start the command: cannot tie it to the leasehold process: {error}"
        ));
        return Some(Exit::INTERNAL);
    }

    if foreground == "true"
        && let Some(terminal) = Terminal::controlling()
    {
        terminal.hand_to(getpid());
    }
    if let Some(blocked) = blocked.to_str().and_then(|text| text.parse().ok()) {
        restore_mask(blocked);
    }
    be_stopped_for_the_terminal();

    let mut command = Command::new(program);
    command.args(arguments);
    name_for_systemd(&mut command, &leasehold);
    Some(become_command(&mut command))
}

/// Names the command in the variables in which systemd has named leasehold. A program ignores them
/// if they name another process.
fn name_for_systemd(command: &mut Command, leasehold: &OsStr) {
    let names = |variable| std::env::var_os(variable).as_deref() == Some(leasehold);
    let own = getpid().to_string();

    if names("LISTEN_PID") {
        // The second one is the inode of leasehold's pidfd.
        command.env("LISTEN_PID", &own).env_remove("LISTEN_PIDFDID");
    }
    if names("WATCHDOG_PID") {
        command.env("WATCHDOG_PID", &own);
    }
}

/// Requests that the kernel kills this process when the parent's main thread ends. That thread
/// started it.
fn die_with(parent: &OsStr) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;

    let parent = parent
        .to_str()
        .and_then(|text| text.parse().ok())
        .map(Pid::from_raw);
    // The parent may have ended before the kernel was set to watch it.
    if parent == Some(getppid()) {
        Ok(())
    } else {
        Err(io::Error::other("that process has ended"))
    }
}

/// What to do about a program that the kernel has not found. It may also miss the interpreter that
/// the first line of a script names.
fn hint_for_missing(program: &str) -> String {
    if is_shell_line(program) {
        return "; to run a line in a shell, write -c in place of --".to_owned();
    }

    match interpreter(program) {
        Some(interpreter) => format!("; its interpreter is {}", Escaped(&interpreter)),
        None => String::new(),
    }
}

/// The interpreter of a script: `/bin/sh` for the first line `#!/bin/sh -e`. None for a name that
/// was searched in PATH.
fn interpreter(script: &str) -> Option<String> {
    script.contains('/').then_some(())?;
    let mut start = [0; 256];
    let len = File::open(script).ok()?.read(&mut start).ok()?;

    let text = String::from_utf8_lossy(&start[..len]);
    let line = text.lines().next()?.strip_prefix("#!")?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Executes the command. Returns only if this fails, after printing the reason.
pub(crate) fn become_command(command: &mut Command) -> Exit {
    let mut error = command.exec();
    // It is also the error if a folder of PATH may not be searched.
    if error.kind() == io::ErrorKind::PermissionDenied && !exists(command.get_program()) {
        error = Errno::ENOENT.into();
    }

    let program = command.get_program().to_string_lossy();
    let hint = match error.kind() {
        io::ErrorKind::NotFound => hint_for_missing(&program),
        _ => String::new(),
    };
    print_error(format_args!(
        "cannot execute {}: {error}{hint}",
        Escaped(&program)
    ));

    match error.kind() {
        io::ErrorKind::NotFound => Exit::NO_SUCH_COMMAND,
        _ => Exit::CANNOT_EXECUTE,
    }
}

/// Whether a program that the kernel has refused to execute exists, by its path or in PATH.
fn exists(program: &OsStr) -> bool {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let folders = std::env::var_os("PATH").unwrap_or_default();
    is_path || std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}
