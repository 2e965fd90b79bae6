//! The options that several subcommands share.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::time::Duration;

use clap::Args;
use jiff::fmt::friendly::SpanParser;

#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store that keeps the locks
    ///
    /// Pass a URL that contains a password in LEASEHOLD_STORE, because other users can read the
    /// arguments of a process. Or keep the password in a file, with `?password-file=/path`.
    ///   file:/some/folder               a folder on this machine
    ///   file:                           leasehold in $XDG_STATE_HOME or ~/.local/state
    ///   redis://host:6379               a Redis server
    ///   rediss://host                   a Redis server, over TLS
    ///   redis+unix:///path              a Redis server, over its Unix socket
    ///   redis://host?dialect=plain      a Redis server, in the format of redis-py and others
    ///   redlock://host1,host2,host3     independent Redis masters, of which a minority may fail
    ///   redlocks://host1,host2,host3    independent Redis masters, over TLS
    ///   redlock://…?dialect=classic     independent Redis masters, in the format of redsync
    ///   zookeeper://host1,host2/folder  ZooKeeper, in the format of Curator
    ///   zookeeper+tls://host1,host2     ZooKeeper, over TLS
    ///   zookeeper://…?dialect=kazoo     ZooKeeper, in the format of kazoo
    #[arg(
        verbatim_doc_comment,
        long = "store",
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        default_value = "file:",
        hide_env_values = true
    )]
    pub(crate) url: String,
}

impl Store {
    pub(crate) async fn open(&self) -> leasehold::Result<leasehold::Locks> {
        leasehold::open(&self.url).await
    }
}

/// How a lock is acquired, and for how long it may be held.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct LockOptions {
    /// Wait at most this long; 0 does not wait [default: wait forever]
    ///
    /// Write a duration as 500ms, 30s, 5m or 1h 30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// How long the store keeps the lock after the last renewal
    ///
    /// leasehold renews the lease while it holds the lock. The file store does not need a lease:
    /// the kernel reports the end of a process. A network store may grant the lock to the next
    /// waiter before the lease ends: Redis after the crash grace without a connection, ZooKeeper
    /// when the session expires. Both last 10s, unless the URL sets `?crash-grace=30s`,
    /// `?crash-grace=off` or `?session=30s`. A command under `leasehold run` is stopped before the
    /// first of these times is over.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,

    /// Do not renew the lease: the lock is lost when --lease is over
    #[arg(long)]
    pub(crate) no_renewal: bool,

    /// Hold the lock at most this long; run stops COMMAND before this time is over
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Share the lock with other --shared holders; exclude all others
    #[arg(long, conflicts_with = "slots")]
    pub(crate) shared: bool,

    /// Let holders take up to N slots at once; all clients of NAME must give the same N
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// Take K of the N slots instead of one
    #[arg(long, value_name = "K", requires = "slots")]
    pub(crate) permits: Option<u32>,

    /// The label in show and ls, at most 64 bytes [default for run: COMMAND's file name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Print errors only, not the progress of the wait
    #[arg(long)]
    pub(crate) quiet: bool,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }

    SpanParser::new()
        .parse_unsigned_duration(text)
        .map_err(|_| format!("{text:?} is not a duration; write it as 500ms, 30s, 5m or 1h 30m"))
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
        for text in [
            "",
            "30",
            "1d",
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
