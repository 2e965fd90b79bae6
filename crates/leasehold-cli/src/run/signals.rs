//! The signals that leasehold hears.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// What the command is meant to hear.
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
    /// What whoever started leasehold wants to be ignored, as nohup does; one bit per signal.
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

    /// From here on the terminal's stop signal is heard too, instead of stopping leasehold.
    pub(crate) fn install_stop(&mut self) -> io::Result<()> {
        self.deliver(Signal::SIGTSTP)
    }

    /// The next one.
    ///
    /// *Cancel safety*: none is lost, but several of one kind may become one, as always with signals.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut came = self.streams.iter_mut().filter_map(|(number, streams)| {
                match streams.poll_recv(context) {
                    Poll::Ready(_) => Some(*number),
                    Poll::Pending => None,
                }
            });
            came.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn deliver(&mut self, number: Signal) -> io::Result<()> {
        if self.ignored & 1 << (number as i32 - 1) == 0 {
            self.streams
                .push((number, signal(SignalKind::from_raw(number as i32))?));
        }
        Ok(())
    }
}

/// The kernel's word, as the C library tells it only to unsafe code.
fn ignored() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.ok_or_else(|| io::Error::other("/proc/self/status does not say which signals are ignored"))
}
