//! The signals that leasehold receives.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
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

#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, tokio::signal::unix::Signal)>,
    /// The signals that leasehold's parent has set to be ignored, as nohup does; one bit each.
    ignored: u64,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Self> {
        let mut signals = Self {
            streams: Vec::new(),
            ignored: ignored()?,
        };

        FORWARDED
            .into_iter()
            .try_for_each(|signal| signals.deliver(signal))?;
        Ok(signals)
    }

    /// Receives the terminal's stop signal too from now on. Until then that signal stops leasehold.
    pub(crate) fn install_stop(&mut self) -> io::Result<()> {
        self.deliver(Signal::SIGTSTP)
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no signal is lost. Several signals of one kind may become one, as always with
    /// signals.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut received = self
                .streams
                .iter_mut()
                .filter_map(|(number, stream)| match stream.poll_recv(context) {
                    Poll::Ready(_) => Some(*number),
                    Poll::Pending => None,
                });
            received.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn deliver(&mut self, number: Signal) -> io::Result<()> {
        if self.ignored & 1 << (number as i32 - 1) == 0 {
            let stream = signal(SignalKind::from_raw(number as i32))?;
            self.streams.push((number, stream));
        }
        Ok(())
    }
}

/// Reads the ignored signals from the kernel. The C library returns them to `unsafe` code only.
fn ignored() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.ok_or_else(|| io::Error::other("/proc/self/status has no valid line SigIgn"))
}
