//! Processes that run leasehold's own program in another role: the shim, the watchdog, and the
//! background process of `acquire`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::close;

use crate::run::process_table::has_ended;

/// The argument that starts leasehold as the watchdog. No subcommand has this name.
pub(crate) const WATCHDOG_ARGUMENT: &str = "__watchdog";

/// Builds the start of a process in a role: its first argument, which no subcommand has as its
/// name.
pub(crate) fn start_as(role: &str) -> Command {
    // This names the running file, even after an upgrade has replaced it.
    let mut start = Command::new("/proc/self/exe");
    start.arg0("leasehold").arg(role);
    start
}

/// Returns whether a process runs in a role, by its command line.
pub(crate) fn runs_as(pid: i32, role: &str) -> io::Result<bool> {
    match std::fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) => Ok(line.split(|byte| *byte == 0).nth(1) == Some(role.as_bytes())),
        Err(error) if has_ended(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether a process is the watchdog of a `leasehold`.
pub(crate) fn is_watchdog(pid: i32) -> bool {
    runs_as(pid, WATCHDOG_ARGUMENT).unwrap_or(false)
}

/// Returns the arguments behind the role if this process was started in it.
pub(crate) fn arguments_as(role: &str) -> Option<impl Iterator<Item = OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == role).then_some(arguments)
}

/// Closes all descriptors except the standard streams: a lock or a pipe would otherwise stay open
/// until this process ends. Must be called before this process opens files.
pub(crate) fn close_inherited() -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?.flatten();
    let inherited: Vec<i32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();

    for descriptor in inherited {
        // Fails for the list itself, which is closed already.
        let _ = close(descriptor);
    }
    Ok(())
}
