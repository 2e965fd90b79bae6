//! The watchdog: a process that kills COMMAND if leasehold itself cannot.
//!
//! leasehold stops COMMAND before the hold ends. It cannot do so while it is stopped (SIGSTOP), or
//! while it waits for a full pipe. So a second process receives the end of the hold and acts on it.
//!
//! ```text
//! leasehold ── socket: (end of the hold, group of COMMAND) ──► watchdog
//!     the end passes     ──► a byte to leasehold, KILL to all descendants of leasehold
//!     the socket closes  ──► leasehold was killed: KILL to the group
//! ```
//! A hold without an expiry time needs no watchdog: on the file store the kernel keeps the lock as
//! long as the processes exist.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, kill_process_group, waitid,
};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::process_table::ProcessTable;
use crate::exit::{Exit, print_error};

/// The argument that starts leasehold as the watchdog. No subcommand has this name.
const WATCHDOG_ARGUMENT: &str = "__watchdog";

/// How long the watchdog repeats KILL. A process that waits for a dead disk cannot end.
const KILL_MAX: Duration = Duration::from_secs(10);

/// The running watchdog. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    socket: UnixStream,
    pid: Pid,
    group: i32,
    others: Vec<i32>,
}

impl Watchdog {
    /// Starts the watchdog. It ignores the processes in `others`, which COMMAND did not start.
    pub(crate) fn start(others: &[i32]) -> io::Result<Self> {
        let (socket, pid) = Self::spawn(others)?;
        Ok(Self {
            socket,
            pid,
            group: 0,
            others: others.to_vec(),
        })
    }

    /// Starts another watchdog in place of this one, which has ended. Returns its pid.
    pub(crate) fn replace(&mut self) -> io::Result<i32> {
        let (socket, pid) = Self::spawn(&self.others)?;
        self.socket = socket;
        self.pid = pid;
        Ok(self.pid())
    }

    fn spawn(others: &[i32]) -> io::Result<(UnixStream, Pid)> {
        // leasehold's end of the socket must not block: a stopped watchdog does not read.
        let (own, other) = UnixStream::pair()?;
        own.set_nonblocking(true)?;

        // Ctrl-C must not end the watchdog before it is in a group of its own.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let child = Command::new("/proc/self/exe")
            .arg0("leasehold")
            .arg(WATCHDOG_ARGUMENT)
            .args(others.iter().map(i32::to_string))
            .process_group(0)
            .stdin(OwnedFd::from(other))
            .stdout(Stdio::null())
            .spawn();
        mask.thread_set_mask()?;

        let child = child?;
        let pid = i32::try_from(child.id()).expect("the kernel numbers processes with 22 bits");
        let pid = Pid::from_raw(pid).expect("a child has a number above 0");
        Ok((own, pid))
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Sets the group that is killed if leasehold is killed.
    pub(crate) fn set_group(&mut self, group: nix::unistd::Pid) {
        self.group = group.as_raw();
    }

    /// Returns whether the watchdog has killed COMMAND.
    pub(crate) fn has_acted(&self) -> bool {
        let mut byte = [0];
        let has_acted = (&self.socket).read(&mut byte).is_ok_and(|count| count > 0);
        if has_acted {
            // The watchdog sends a second byte after its message, and is killed soon.
            let message_max = Timespec {
                tv_sec: 0,
                tv_nsec: 300_000_000,
            };
            let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN)];
            let _ = poll(&mut descriptors, Some(&message_max));
        }
        has_acted
    }

    /// Sends the end of the hold at intervals. `remaining` returns how long the hold stays valid.
    ///
    /// Returns when the watchdog has ended, at most a second later.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the last end that was sent applies.
    pub(crate) async fn follow(&self, remaining: impl Fn() -> Duration) {
        const LONGEST: Duration = Duration::from_secs(1);
        const SHORTEST: Duration = Duration::from_millis(20);

        loop {
            let left = self.send(&remaining);
            if self.has_ended() {
                return;
            }
            // A renewal that is reported late must not look like the end of the hold.
            tokio::time::sleep((left / 16).clamp(SHORTEST, LONGEST)).await;
        }
    }

    /// Whether the watchdog has closed its end of the socket.
    fn has_ended(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.socket, PollFlags::empty())];
        let polled = poll(&mut descriptors, Some(&Timespec::default()));
        polled.is_ok() && descriptors[0].revents().contains(PollFlags::HUP)
    }

    /// Sends the end of the hold, and returns how long the hold stays valid.
    pub(crate) fn send(&self, remaining: impl Fn() -> Duration) -> Duration {
        // Read before `remaining`: a pause between the two must not make the end late.
        let now = boot_time();
        let left = remaining();
        let message = Message {
            end: now.saturating_add(left),
            group: self.group,
        };

        // The kernel accepts such a short message as a whole or not at all.
        if let Err(error) = (&self.socket).write(&message.to_bytes()) {
            tracing::warn!(%error, "the watchdog does not read");
        }
        left
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // A watchdog that was killed by another process may be reaped already.
        let is_child = waitid(WaitId::Pid(self.pid), peek).is_ok();
        if is_child {
            // Neither call fails for a child that has not been reaped.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED);
        }
    }
}

/// A message from leasehold to the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    /// A time of `CLOCK_BOOTTIME`, which also counts while the machine is suspended.
    end: Duration,
    /// The group of COMMAND, or 0 before its start.
    group: i32,
}

impl Message {
    const LENGTH: usize = 16;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let end = u64::try_from(self.end.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&end.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.group.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let (end, rest) = bytes.split_first_chunk().expect("a message has 16 bytes");
        let (group, _) = rest.split_first_chunk().expect("8 bytes remain");
        Self {
            end: Duration::from_nanos(u64::from_le_bytes(*end)),
            group: i32::from_le_bytes(*group),
        }
    }
}

/// Watches if this process was started as the watchdog. Returns `None` in any other process.
pub(crate) fn run_if_watchdog() -> Option<Exit> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != WATCHDOG_ARGUMENT {
        return None;
    }

    let others = arguments.filter_map(|pid| pid.to_str()?.parse().ok());
    match watch(others.collect()) {
        Ok(()) => Some(Exit::DONE),
        Err(error) => {
            print_error(format_args!("the watchdog of the command failed: {error}"));
            Some(Exit::INTERNAL)
        }
    }
}

/// Whether a process is the watchdog of a `leasehold`.
pub(crate) fn is_watchdog(pid: u32) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut arguments = arguments.split(|byte| *byte == 0);
    arguments.nth(1) == Some(WATCHDOG_ARGUMENT.as_bytes())
}

fn watch(mut others: Vec<i32>) -> io::Result<()> {
    // Signals to all processes of a session or a service are meant for leasehold and COMMAND.
    SigSet::all().thread_block()?;

    let leasehold = getppid().map_or(0, Pid::as_raw_pid);
    others.push(getpid().as_raw_pid());
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut group = 0;

    loop {
        let ready = wait_for(socket.as_fd(), timer.as_fd())?;
        if ready.timer {
            // Fails if leasehold was killed. The next round notices that.
            let _ = socket.write_all(&[1]);
            kill_group(group);
            kill_descendants(leasehold, &others);
            arm(&timer, Duration::ZERO)?;
            // Printed last: standard error may be stuck, and COMMAND must not run on meanwhile.
            print_error("leasehold does not run, and its hold ends; sending KILL to the command");
            let _ = socket.write_all(&[1]);
        }
        if ready.socket {
            let mut bytes = [0; Message::LENGTH];
            if socket.read_exact(&mut bytes).is_err() {
                break;
            }
            let message = Message::from_bytes(bytes);
            group = message.group;
            arm(&timer, message.end)?;
        }
    }

    // leasehold was killed, and the kernel has killed COMMAND. The rest of COMMAND's group still
    // runs.
    kill_group(group);
    Ok(())
}

/// Kills the whole group at once, so no process in it can escape by forking.
fn kill_group(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        // Fails if the whole group has ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

struct Ready {
    socket: bool,
    timer: bool,
}

fn wait_for(socket: BorrowedFd<'_>, timer: BorrowedFd<'_>) -> io::Result<Ready> {
    let mut descriptors = [
        PollFd::from_borrowed_fd(socket, PollFlags::IN),
        PollFd::from_borrowed_fd(timer, PollFlags::IN),
    ];
    match poll(&mut descriptors, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }

    let [socket, timer] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
    // A message that has arrived moves the end.
    Ok(Ready {
        socket,
        timer: timer && !socket,
    })
}

/// Sets the timer to a time of `CLOCK_BOOTTIME`; zero disarms it.
fn arm(timer: &OwnedFd, end: Duration) -> io::Result<()> {
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let end = Timespec {
        // The largest number of seconds that the kernel accepts. It is longer than any machine
        // runs.
        tv_sec: i64::try_from(end.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: end.subsec_nanos().into(),
    };

    let time = Itimerspec {
        it_interval: zero,
        it_value: end,
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &time)?;
    Ok(())
}

/// Kills the descendants of leasehold until none runs.
fn kill_descendants(leasehold: i32, others: &[i32]) {
    const ROUND: Duration = Duration::from_millis(5);

    let deadline = Instant::now() + KILL_MAX;
    while Instant::now() < deadline {
        let found = ProcessTable::read().map(|table| table.descendants(leasehold, others));
        match found {
            Ok(found) if found.is_empty() => return,
            Ok(found) => found
                .into_iter()
                .for_each(|process| process.signal(Signal::KILL, leasehold)),
            Err(error) => {
                print_error(format_args!("cannot find the command's processes: {error}"));
                return;
            }
        }
        sleep(ROUND);
    }
}

fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::try_from(now).expect("the time since the boot is not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_survives_its_bytes() {
        let message = Message {
            end: Duration::new(1_234_567, 89),
            group: 4_194_304,
        };
        assert_eq!(Message::from_bytes(message.to_bytes()), message);
    }
}
