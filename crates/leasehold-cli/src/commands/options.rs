//! The options that several subcommands share.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

use crate::exit::Exit;

/// The headings of the options, in the order in which the help has them.
pub(crate) mod heading {
    pub(crate) const WAITING: &str = "Waiting";
    pub(crate) const KIND: &str = "Kind of lock";
    pub(crate) const LOSS: &str = "Loss";
    pub(crate) const OUTPUT: &str = "Output";
    pub(crate) const STORE: &str = "Store";
    pub(crate) const RARE: &str = "Rarely needed";
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct BusyExit {
    /// The exit code if --wait is over [default: 75]
    #[arg(
        help_heading = heading::WAITING,
        short = 'E',
        long = "busy-exit-code",
        alias = "conflict-exit-code",
        value_name = "N"
    )]
    code: Option<u8>,
}

impl BusyExit {
    /// How leasehold ends if the lock is not granted, or not free, in time.
    pub(crate) fn exit(self) -> Exit {
        self.code.map_or(Exit::NOT_IN_TIME, Exit::Code)
    }
}

/// What leasehold reports of its work.
#[derive(Debug, Args)]
pub(crate) struct LogOptions {
    /// Print what happens to locks and the store
    ///
    /// Such as: granted, released, lost, unreachable. Means LEASEHOLD_LOG=leasehold=info, unless
    /// LEASEHOLD_LOG is set.
    #[arg(help_heading = heading::OUTPUT, short, long, global = true)]
    pub(crate) verbose: bool,

    /// The format of the log: one JSON object per line, or text
    #[arg(
        help_heading = heading::RARE,
        hide_short_help = true,
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// How a lock is acquired, and for how long it may be held.
#[derive(Debug, Default, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct LockOptions {
    /// Wait at most this long; 0 does not wait [default: wait forever]
    ///
    /// While it waits, leasehold also retries a network store that is unavailable, and prints one
    /// line for each change. With 0 an unavailable store is an error at once. With 0, or a time
    /// shorter than the crash grace, the lock of a crashed holder on Redis is granted to a later
    /// run of this user on this machine, once the crash grace has passed since a run was refused.
    /// Otherwise it is granted when the lease is over.
    ///
    /// Write a duration as 500ms, 30s, 5m, 1h 30m or 1d. A plain number means seconds.
    #[arg(
        help_heading = heading::WAITING,
        short,
        long,
        alias = "timeout",
        value_name = "DURATION",
        value_parser = duration,
        overrides_with = "nonblock"
    )]
    pub(crate) wait: Option<Duration>,

    /// Do not wait, as with --wait 0; of both options, the last one counts
    #[arg(help_heading = heading::WAITING, short, long, alias = "nb", overrides_with = "wait")]
    pub(super) nonblock: bool,

    /// Share the lock with other --shared holders; exclude all others
    #[arg(
        help_heading = heading::KIND,
        short,
        long,
        conflicts_with = "slots",
        overrides_with = "exclusive"
    )]
    pub(crate) shared: bool,

    /// Exclude all others, which is the default: flock(1) has the option
    #[arg(
        hide = true,
        short = 'x',
        short_alias = 'e',
        long,
        overrides_with = "shared"
    )]
    pub(super) exclusive: bool,

    /// Let holders take up to N slots at once
    ///
    /// All clients of NAME must give the same N.
    #[arg(help_heading = heading::KIND, long, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// Take K of the N slots instead of one
    #[arg(help_heading = heading::KIND, long, value_name = "K", requires = "slots")]
    pub(crate) permits: Option<u32>,

    /// How long the store keeps the lock after a renewal
    ///
    /// leasehold renews the lease while it holds the lock. The file store does not need a lease:
    /// the kernel reports the end of a process. A network store may grant the lock to the next
    /// waiter before the lease ends: Redis after the crash grace, which is 10s unless the URL sets
    /// `?crash-grace=30s`, and ZooKeeper when the session expires, which lasts 10s unless the URL
    /// sets `?session=30s`. A command under `leasehold run` is stopped before the first of these
    /// times is over: on Redis after 8.7s without a reply of the server.
    #[arg(help_heading = heading::LOSS, long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,

    /// Hold the lock at most this long
    ///
    /// COMMAND of `leasehold run` and the owner of `leasehold acquire` are ended before this time
    /// is over.
    #[arg(help_heading = heading::LOSS, long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// The label of a candidate of an election, in place of --label.
    #[arg(skip)]
    pub(crate) address: Option<String>,

    /// Print errors only, not the progress of the wait
    #[arg(help_heading = heading::OUTPUT, short, long)]
    pub(crate) quiet: bool,

    /// The label in show and ls, at most 255 bytes (64 in a folder)
    ///
    /// Under `leasehold run` it is the file name of COMMAND by default.
    #[arg(help_heading = heading::OUTPUT, long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

impl LockOptions {
    /// Whether the lock is an election.
    pub(crate) fn is_candidate(&self) -> bool {
        self.address.is_some()
    }

    /// Gives --nonblock the meaning that it has: a wait of zero.
    pub(super) fn normalize(&mut self) {
        if self.nonblock {
            self.wait = Some(Duration::ZERO);
        }
    }
}

/// The longest duration, a century. An instant can be that far from now on every machine.
const DURATION_MAX: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// Parses a duration. A plain number means seconds, as for flock(1) and timeout(1). A longer one
/// than the longest means the longest.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let parsed = if is_plain {
        text.parse()
            .ok()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    } else {
        with_units(text)
    };
    let limited = parsed.map(|duration| duration.min(DURATION_MAX));
    limited.ok_or_else(|| {
        // The parser repeats the text, without the password of a URL.
        "this is not a duration; write it as 30 or 30s, 500ms, 5m, 1h 30m or 1d".to_owned()
    })
}

/// Parses a number with units, in which a day has 24 hours.
fn with_units(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text).ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    duration.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_or_refused() {
        let ok = |text: &str, millis: u64| {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        };
        ok("0", 0);
        ok("0s", 0);
        ok("500ms", 500);
        ok("30s", 30_000);
        ok("1.5s", 1_500);
        ok("1h 30m", 5_400_000);
        ok("1h30m", 5_400_000);
        ok("2 hours", 7_200_000);
        ok("30", 30_000);
        ok("0.5", 500);
        ok("1d", 86_400_000);
        ok("1d 12h", 129_600_000);
        ok("9300000000000000000", 3_155_760_000_000);
        for text in [
            "",
            ".",
            "1.2.3",
            "1 month",
            "-1s",
            "soon",
            "1x",
            "1s ago",
            "99999999999999999999h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
