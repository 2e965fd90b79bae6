//! What the watchdog's own process does: it starts COMMAND, and kills it if leasehold cannot. After
//! leasehold was killed, it releases the locks.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, dup2_stdout, getppid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, wait, waitid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::children::{Children, has_child_in};
use super::exec_shim;
use super::releasing;
use super::signals::standard_signals;
use super::stopping::{KILLED_MAX, still_run};
use super::supervision::KILL_FIRST;
use super::watchdog::{Message, boot_time};
use crate::exit::{Exit, print_error};
use crate::own_program::{WATCHDOG_ARGUMENT, arguments_as, close_inherited};

/// Watches if this process was started as the watchdog. Returns `None` in any other process.
pub(crate) fn run_if_watchdog() -> Option<Exit> {
    let arguments = arguments_as(WATCHDOG_ARGUMENT)?;
    match start(arguments).and_then(WatchdogProcess::run) {
        Ok(()) => Some(Exit::DONE),
        Err(error) => {
            print_error(format_args!("the watchdog of the command failed: {error}"));
            Some(Exit::INTERNAL)
        }
    }
}

struct WatchdogProcess {
    leasehold: Pid,
    socket: UnixStream,
    timer: OwnedFd,
    signals: SignalFd,
    command: Pid,
    children: Children,
    state: State,
    /// The end of the hold, a time of `CLOCK_BOOTTIME`.
    hold_end: Duration,
    /// Whether this process has ended the command, because the hold has ended.
    acts: bool,
    /// How many of the holds in the environment are those of this run.
    hold_count: usize,
}

/// What leasehold knows of the command.
///
/// ```text
/// Runs ── it is stopped ──► Stopped ── Noted ──► Runs
///   └──── it has ended ───► Ended ──── Noted ──► Reaped ── no child is left ──► AllEnded
/// ```
/// The command's id stays its own until leasehold has noted the end, and signals it no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Stopped,
    Ended,
    Reaped,
    AllEnded,
}

/// Starts the command. The first of the `arguments` is the number of holds, and the others are
/// those of the shim.
fn start(mut arguments: impl Iterator<Item = OsString>) -> io::Result<WatchdogProcess> {
    let leasehold = getppid();
    let hold_count = arguments.next();
    let hold_count = hold_count.and_then(|count| count.to_str()?.parse().ok());
    // A signal is read from the descriptor below.
    standard_signals().thread_block()?;
    set_child_subreaper(true)?;
    let (first, stdin) = receive_first()?;

    let spawned = exec_shim::start(arguments).stdin(stdin).spawn();
    // The command alone has its descriptors: the reader of a pipe waits for the last of them.
    // Standard input is the socket, and standard error stays.
    dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    close_inherited()?;

    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let command = match spawned {
        Ok(child) => Pid::from_raw(child.id().cast_signed()),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::EAGAIN as i32);
            socket.write_all(&Message::NotStarted(errno).to_bytes())?;
            return Err(error);
        }
    };

    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let mut watchdog = WatchdogProcess {
        leasehold,
        socket,
        timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?,
        signals: SignalFd::with_flags(&standard_signals(), flags)?,
        command,
        children: Children::open()?,
        state: State::Runs,
        hold_end: Duration::ZERO,
        acts: false,
        hold_count: hold_count.unwrap_or(0),
    };
    watchdog.handle(first)?;
    watchdog.send(Message::Started(command.as_raw()));
    Ok(watchdog)
}

impl WatchdogProcess {
    /// Returns when leasehold was killed, all descendants were killed too, and the locks are
    /// released.
    fn run(mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            if ready.timer {
                self.end_hold()?;
            }
            if ready.signals {
                self.forward_signals()?;
            }
            if ready.socket && !self.receive()? {
                break;
            }
            self.report();
        }

        let left = self.kill_all(KILLED_MAX);
        // The list may miss a process. The kernel knows: as long as one runs, there is a child.
        if reap_all() {
            print_error(format_args!("leasehold was killed; {}", still_run(&left)));
            return Ok(());
        }
        let left = self.hold_end.saturating_sub(boot_time());
        releasing::release(self.hold_count, left);
        Ok(())
    }

    fn wait(&self) -> io::Result<Ready> {
        let mut descriptors = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        poll(&mut descriptors, None)?;

        let [socket, timer, signals] =
            descriptors.map(|descriptor| !descriptor.revents().is_empty());
        Ok(Ready {
            socket,
            // A message that has arrived moves the end.
            timer: timer && !socket,
            signals,
        })
    }

    /// Receives a message. Returns `false` if leasehold has ended.
    fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; Message::LENGTH];
        if self.socket.read_exact(&mut bytes).is_err() {
            return Ok(false);
        }
        self.handle(Message::from_bytes(bytes)?)?;
        Ok(true)
    }

    fn handle(&mut self, message: Message) -> io::Result<()> {
        match (message, self.state) {
            (Message::HoldEnds(end), _) => {
                self.hold_end = end;
                if !self.acts {
                    self.arm(end)?;
                }
            }
            // leasehold reports those that still run, and repeats the message meanwhile.
            (Message::Kill, _) => drop(self.kill_all(KILL_FIRST)),
            (Message::Noted, State::Stopped) => self.state = State::Runs,
            (Message::Noted, State::Ended) => {
                self.waitid(WaitIdOptions::EXITED);
                self.state = State::Reaped;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reports a change of the command, and reaps the orphans.
    fn report(&mut self) {
        if self.state == State::Runs {
            self.report_command();
        }
        match self.state {
            State::Runs | State::Stopped | State::Ended => {
                self.children.reap_except(&[self.command.as_raw()]);
            }
            State::Reaped if !reap_all() => {
                self.state = State::AllEnded;
                self.send(Message::AllEnded);
            }
            State::Reaped | State::AllEnded => {}
        }
    }

    fn report_command(&mut self) {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        if let Some(ended) = self.waitid(peek) {
            self.state = State::Ended;
            self.send(match ended.terminating_signal() {
                Some(signal) => Message::Killed(signal),
                None => Message::Exited(ended.exit_status().unwrap_or_default()),
            });
        } else if let Some(stopped) = self.waitid(WaitIdOptions::STOPPED)
            && let Some(signal) = stopped.stopping_signal()
        {
            self.state = State::Stopped;
            self.send(Message::Stopped(signal));
        }
    }

    fn waitid(&self, options: WaitIdOptions) -> Option<WaitIdStatus> {
        let command = rustix::process::Pid::from_raw(self.command.as_raw())?;
        // Does not fail for a child that has not been reaped.
        waitid(WaitId::Pid(command), options | WaitIdOptions::NOHANG)
            .ok()
            .flatten()
    }

    /// Sends the signals to leasehold that this process has received as the command's parent.
    fn forward_signals(&self) -> io::Result<()> {
        while let Some(received) = self.signals.read_signal()? {
            let signal = Signal::try_from(received.ssi_signo.cast_signed());
            let is_from_leasehold = received.ssi_pid.cast_signed() == self.leasehold.as_raw();
            if let Ok(signal) = signal
                && signal != Signal::SIGCHLD
                && !is_from_leasehold
                && getppid() == self.leasehold
            {
                // Fails if leasehold was killed. The next round notices that.
                let _ = kill(self.leasehold, signal);
            }
        }
        Ok(())
    }

    /// Ends the command, because its hold ends and leasehold has not ended it.
    fn end_hold(&mut self) -> io::Result<()> {
        self.arm(Duration::ZERO)?;
        self.acts = true;
        self.send(Message::Acts);
        // leasehold reports those that still run.
        drop(self.kill_all(KILLED_MAX));

        // Standard error may be stuck, and leasehold waits for the next messages.
        let mut socket = self.socket.try_clone()?;
        let print = move || {
            print_error(
                "the hold ends, and leasehold has not ended the command; sending KILL to it",
            );
            // Fails if leasehold was killed.
            let _ = socket.write_all(&Message::HasPrinted.to_bytes());
        };
        // Without a thread nothing is printed: leasehold does not wait for long.
        let _ = thread::Builder::new().spawn(print);
        Ok(())
    }

    /// Returns the processes that still run.
    fn kill_all(&self, within: Duration) -> Vec<i32> {
        let command = self.command.as_raw();
        let is_reaped = matches!(self.state, State::Reaped | State::AllEnded);
        if !is_reaped || has_child_in(command) {
            // The whole group at once, so no process in it can escape by forking. Fails if all
            // of them have ended.
            let _ = killpg(self.command, Signal::SIGKILL);
        }
        let killed = self.children.kill_descendants(command, &[], within);
        killed.unwrap_or_else(|error| {
            print_error(format_args!("cannot find the command's processes: {error}"));
            Vec::new()
        })
    }

    fn send(&mut self, message: Message) {
        // Fails if leasehold was killed. The next round notices that.
        let _ = self.socket.write_all(&message.to_bytes());
    }

    /// Sets the timer to a time of `CLOCK_BOOTTIME`; zero disarms it.
    fn arm(&self, end: Duration) -> io::Result<()> {
        let time = Itimerspec {
            it_interval: Timespec::default(),
            it_value: end.try_into().expect("a message has at most 584 years"),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time)?;
        Ok(())
    }
}

struct Ready {
    socket: bool,
    timer: bool,
    signals: bool,
}

/// Reaps all children that have ended. Returns whether a child is left.
fn reap_all() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Receives the first message with the standard input of the command.
fn receive_first() -> io::Result<(Message, OwnedFd)> {
    let mut bytes = [0; Message::LENGTH];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        io::stdin(),
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;

    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match rights {
        Some(stdin) if received.bytes == Message::LENGTH => {
            Ok((Message::from_bytes(bytes)?, stdin))
        }
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
