//! Whether this process is a fork of the one that has the background thread.

use std::sync::OnceLock;

use rustix::process::{Pid, getpid};

use crate::{Error, Result};

/// The process that has the background thread.
static STARTED_BY: OnceLock<Pid> = OnceLock::new();

/// Notes that this process starts the background thread.
pub(super) fn thread_starts() {
    STARTED_BY.get_or_init(getpid);
}

/// Whether this process, or the one that it was forked from, has the background thread.
pub(crate) fn is_thread_started() -> bool {
    STARTED_BY.get().is_some()
}

/// Fails in a process that was forked from the one that started the thread.
///
/// A fork has only the thread that forked. In the child nothing renews, departs or fires a timer,
/// and other threads may have held locks of this crate. So a call checks this before all else.
///
/// # Errors
/// [`is_invalid`](Error::is_invalid).
pub(crate) fn check_not_forked() -> Result<()> {
    if !is_forked() {
        return Ok(());
    }
    let message = "this process was forked from one that had opened a store, and has only one of \
                   its threads";
    Err(Error::invalid(message).help("fork before you open a store, or execute a program"))
}

/// Returns the id of this process. A call that has checked for a fork needs no request to the kernel.
pub(crate) fn process_id() -> u32 {
    let started_by = STARTED_BY.get().map(|process| process.as_raw_pid());
    started_by.map_or_else(std::process::id, i32::unsigned_abs)
}

/// Returns whether this process was forked from the one that started the thread.
pub(crate) fn is_forked() -> bool {
    STARTED_BY.get().is_some_and(|process| *process != getpid())
}
