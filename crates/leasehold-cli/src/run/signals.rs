//! The signals that leasehold receives.

use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{Pid, getpid};
use signal_hook::{flag, low_level};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

/// The signals that leasehold forwards to the command.
const FORWARDED: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Receives signals. Until [`install`](Self::install), it receives the terminal's stop signal only.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, tokio::signal::unix::Signal)>,
    stop: Option<StopSignal>,
    masks: Masks,
}

/// The processes that a signal is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// leasehold alone.
    Own,
    /// The whole job, including the script or the pipeline that leasehold is part of.
    Job,
}

impl Signals {
    /// Must be called before the process starts its first thread, because each thread has its own
    /// signal mask.
    pub(crate) fn new() -> io::Result<Self> {
        let masks = Masks::read()?;

        Ok(Self {
            streams: Vec::new(),
            stop: masks
                .lets(Signal::SIGTSTP)
                .then(StopSignal::block)
                .transpose()?,
            masks,
        })
    }

    pub(crate) fn install(&mut self) -> io::Result<()> {
        for number in FORWARDED {
            if !self.masks.ignores(number) {
                let stream = signal(SignalKind::from_raw(number as i32))?;
                self.streams.push((number, stream));
            }
        }
        HAVE_DEFAULT_ACTIONS.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no signal is lost. Several signals of one kind may become one, as always with
    /// signals.
    pub(crate) async fn next(&mut self) -> Signal {
        let streams = &mut self.streams;
        let forwarded = poll_fn(|context| {
            let mut received =
                streams
                    .iter_mut()
                    .filter_map(|(number, stream)| match stream.poll_recv(context) {
                        Poll::Ready(_) => Some(*number),
                        Poll::Pending => None,
                    });
            received.next().map_or(Poll::Pending, Poll::Ready)
        });

        tokio::select! {
            signal = forwarded => signal,
            () = stop_received(self.stop.as_ref()) => Signal::SIGTSTP,
        }
    }

    /// Waits for the next signal that ends leasehold, and stops leasehold at the stop signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`next`](Self::next) is.
    pub(crate) async fn next_to_end(&mut self) -> io::Result<Signal> {
        loop {
            match self.next().await {
                Signal::SIGTSTP => self.stop(Signal::SIGTSTP, Reach::Own)?,
                signal => return Ok(signal),
            }
        }
    }

    /// Waits for the next signal that requests the end, as [`next_to_end`](Self::next_to_end) does,
    /// and ignores USR1 and USR2.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`next`](Self::next) is.
    pub(crate) async fn next_end_request(&mut self) -> io::Result<Signal> {
        loop {
            let signal = self.next_to_end().await?;
            if requests_end(signal) {
                return Ok(signal);
            }
        }
    }

    /// Runs `work`, and stops leasehold at the stop signal meanwhile.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            stopped = self.next_to_end() => {
                stopped?;
                unreachable!("no signal ends leasehold before they are installed")
            }
        }
    }

    /// Stops this process with the default action of a stop signal. Returns when it is continued.
    ///
    /// A shell then reports the signal that stopped the job. The kernel discards the signal if no
    /// shell could continue the job.
    pub(crate) fn stop(&self, signal: Signal, reach: Reach) -> io::Result<()> {
        match reach {
            Reach::Own => raise(signal)?,
            Reach::Job => kill(Pid::from_raw(0), signal)?,
        }

        if self.stop.is_some() {
            StopSignal::deliver();
        }
        Ok(())
    }

    /// Returns the signal that stops a job for its use of the terminal. A parent, such as tmux, may
    /// have set the usual one to be ignored.
    pub(crate) fn for_use_of_terminal(&self) -> Signal {
        if self.masks.ignores(Signal::SIGTTIN) {
            Signal::SIGSTOP
        } else {
            Signal::SIGTTIN
        }
    }

    /// Returns the signals that were blocked when this process started.
    pub(crate) fn blocked_at_start(&self) -> u64 {
        self.masks.blocked
    }
}

/// Whether a signal requests an end. Programs use USR1 and USR2 for other requests.
pub(crate) fn requests_end(signal: Signal) -> bool {
    let others = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTSTP];
    !others.contains(&signal)
}

/// Receives SIGTSTP through a descriptor. The signal stays blocked and keeps its default action.
#[derive(Debug)]
struct StopSignal(pipe::Receiver);

impl StopSignal {
    fn block() -> io::Result<Self> {
        let set = Self::set();
        set.thread_block()?;

        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let descriptor = OwnedFd::from(SignalFd::with_flags(&set, flags)?);
        // tokio has no other safe type for a descriptor that is read in whole messages.
        pipe::Receiver::from_owned_fd_unchecked(descriptor).map(Self)
    }

    fn set() -> SigSet {
        SigSet::from_iter([Signal::SIGTSTP])
    }

    async fn received(&self) -> io::Result<()> {
        loop {
            self.0.readable().await?;

            let mut message = [0; size_of::<siginfo>()];
            match self.0.try_read(&mut message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(drop),
            }
        }
    }

    /// Delivers a pending signal, which stops this process until it is continued.
    fn deliver() {
        unblock_stop();
        // Cannot fail with arguments that the first call has accepted.
        let _ = Self::set().thread_block();
    }
}

impl Drop for StopSignal {
    fn drop(&mut self) {
        unblock_stop();
    }
}

fn unblock_stop() {
    // Cannot fail with arguments that blocking has accepted.
    let _ = StopSignal::set().thread_unblock();
}

/// All signals except the real-time signals, which leasehold neither blocks nor handles.
pub(crate) fn standard_signals() -> SigSet {
    Signal::iterator().collect()
}

/// Ends this process by the signal that has ended the watchdog, if that is a real-time signal: its
/// sender meant leasehold.
pub(crate) fn end_by_real_time(signal: Option<i32>) {
    if let Some(number) = signal
        && Signal::try_from(number).is_err()
    {
        // Fails for an invalid number only.
        let _ = low_level::raise(number);
    }
}

/// Lets a write fail beyond the limit on the size of files, which would end this process: into a
/// log, for example. COMMAND gets the default action again, because the handler ends at exec.
pub(crate) fn survive_file_size_limit() {
    if Masks::read().is_ok_and(|masks| !masks.ignores(Signal::SIGXFSZ)) {
        // Without a handler, the signal ends this process as before.
        let _ = flag::register(Signal::SIGXFSZ as i32, Arc::default());
    }
}

/// Lets the end of COMMAND be noticed if the parent of this process has blocked SIGCHLD, as some that
/// read signals from a descriptor do. COMMAND then begins without the block too.
pub(crate) fn notice_ends_of_children() {
    // Cannot fail with arguments that are constant.
    let _ = SigSet::from_iter([Signal::SIGCHLD]).thread_unblock();
}

/// Whether the signals that leasehold forwards still have the actions of [`end_first_process`].
static HAVE_DEFAULT_ACTIONS: LazyLock<Arc<AtomicBool>> =
    LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// Lets signals end leasehold as process 1 of a container too, until [`Signals::install`]: the
/// kernel discards those of its signals that have no handler.
pub(crate) fn end_first_process() {
    if getpid().as_raw() != 1 {
        return;
    }

    for signal in FORWARDED {
        if Masks::read().is_ok_and(|masks| !masks.ignores(signal)) {
            let number = signal as i32;
            let condition = Arc::clone(&HAVE_DEFAULT_ACTIONS);
            // Without a handler, the signal is discarded as before.
            let _ = flag::register_conditional_shutdown(number, 128 + number, condition);
        }
    }
}

/// Lets COMMAND be stopped when it reads from the terminal in the background, as a shell does with
/// its jobs. tmux ignores TTIN, the read would fail, and leasehold would not give the terminal.
pub(crate) fn be_stopped_for_the_terminal() {
    // The handler ends at exec, and the action is then the default. If it cannot be set, COMMAND
    // ignores the signal as before.
    let _ = flag::register(Signal::SIGTTIN as i32, Arc::default());
}

/// Blocks the signals in `blocked` and no others. Spares the real-time signals.
pub(crate) fn restore_mask(blocked: u64) {
    let is_blocked = |signal: &Signal| blocked & bit(*signal) != 0;
    let to_block: SigSet = Signal::iterator().filter(is_blocked).collect();
    let to_unblock: SigSet = Signal::iterator()
        .filter(|signal| !is_blocked(signal))
        .collect();

    // Neither call can fail with arguments that are constant.
    let _ = to_block.thread_block();
    let _ = to_unblock.thread_unblock();
}

async fn stop_received(stop: Option<&StopSignal>) {
    let Some(stop) = stop else {
        return pending().await;
    };

    if let Err(error) = stop.received().await {
        tracing::warn!(%error, "the stop signal cannot be read");
        pending::<()>().await;
    }
}

/// The signals that leasehold's parent has set to be ignored, as nohup does, or has blocked.
///
/// The C library returns the actions to `unsafe` code only, so this reads them from the kernel.
#[derive(Clone, Copy, Debug)]
struct Masks {
    ignored: u64,
    blocked: u64,
}

impl Masks {
    fn read() -> io::Result<Self> {
        let status = std::fs::read("/proc/self/status").map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return error;
            }
            io::Error::other(format!(
                "cannot read /proc/self/status: {error}; mount /proc"
            ))
        })?;
        // The first line has the name of the program, which the kernel may cut inside a character.
        let status = String::from_utf8_lossy(&status);
        let mask = |name: &str| {
            let mut lines = status.lines();
            let mask = lines.find_map(|line| line.strip_prefix(name));
            mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
                .ok_or_else(|| io::Error::other(format!("/proc/self/status has no line {name}")))
        };

        Ok(Self {
            ignored: mask("SigIgn:")?,
            blocked: mask("SigBlk:")?,
        })
    }

    fn ignores(self, signal: Signal) -> bool {
        self.ignored & bit(signal) != 0
    }

    fn lets(self, signal: Signal) -> bool {
        (self.ignored | self.blocked) & bit(signal) == 0
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}
