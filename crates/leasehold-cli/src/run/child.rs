//! COMMAND's process group.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use super::exec_shim;
use crate::exit::Exit;

/// The running command, and the process group that it leads.
#[derive(Debug)]
pub(crate) struct Child {
    /// The id of the process and of its group.
    pid: Pid,
    changes: tokio::signal::unix::Signal,
}

/// A change of the command's state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Ended(Exit),
    Stopped(Signal),
}

impl Child {
    /// Starts the command. Must be called from the main thread, because the command is killed when
    /// the calling thread ends.
    ///
    /// The command and its descendants inherit `inheritable_fds`. If leasehold is killed, the lock
    /// stays held until the last of them has ended.
    pub(crate) fn spawn(
        command: &[OsString],
        environment: impl IntoIterator<Item = (&'static str, String)>,
        inheritable_fds: &[OwnedFd],
        foreground: bool,
    ) -> io::Result<Self> {
        let changes = signal(SignalKind::child())?;
        for fd in inheritable_fds {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }

        let process = exec_shim::start(command, foreground)
            .envs(environment)
            .spawn()?;
        let pid = i32::try_from(process.id()).expect("the kernel numbers processes with 22 bits");
        Ok(Self {
            pid: Pid::from_raw(pid),
            changes,
        })
    }

    /// The process group.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Waits until the command ends or is stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call returns a change that a dropped call has not returned.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            let status = waitpid(
                self.pid,
                Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED),
            );

            match status {
                Ok(WaitStatus::Exited(_, code)) => return Ok(Change::Ended(Exit::by_code(code))),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return Ok(Change::Ended(Exit::by_signal(signal)));
                }
                Ok(WaitStatus::Stopped(_, signal)) => return Ok(Change::Stopped(signal)),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }

            self.changes.recv().await;
        }
    }

    /// Returns whether a process of the group still runs.
    ///
    /// A zombie counts as ended. Its parent, which may be the first process of a container, may
    /// never reap it.
    pub(crate) fn group_is_running(&self) -> bool {
        if !self.signal(None) {
            return false;
        }

        let Ok(processes) = std::fs::read_dir("/proc") else {
            return true;
        };
        let stats = processes
            .flatten()
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        stats
            .filter_map(|stat| state_and_group(&stat))
            .any(|(state, group)| {
                let has_ended = matches!(state, 'Z' | 'X');
                group == self.pid.as_raw() && !has_ended
            })
    }

    /// Signals the whole group. Returns `false` if the group has no process left.
    pub(crate) fn signal(&self, signal: impl Into<Option<Signal>>) -> bool {
        killpg(self.pid, signal).is_ok()
    }
}

/// Reads the state and the process group from `/proc/PID/stat`.
///
/// Its format is `PID (NAME) STATE PARENT GROUP …`. NAME may contain any text, `) ` included.
fn state_and_group(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some((state, group))
}
