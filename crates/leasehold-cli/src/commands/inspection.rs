//! The arguments of the subcommands that look at locks: ls, show, watch, wait.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::time::Duration;

use clap::Args;

use super::dialect::InspectedStore;
use super::options::{BusyExit, duration, heading};
use super::store::Store;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// List only names that begin with PREFIX
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    #[command(flatten)]
    pub(crate) store: InspectedStore,

    /// List the records of `run --once` instead, of free names too
    #[arg(long, conflicts_with_all = ["names", "all"])]
    pub(crate) once: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the names alone, for the completions of a shell
    #[arg(long, hide = true)]
    pub(crate) names: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The lock's name
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) store: InspectedStore,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Exit with 1 if the lock is held or waited for
    #[arg(long)]
    pub(crate) exit_code: bool,

    /// Exit with 3 if `run --once` has not completed NAME within this time
    ///
    /// A job that was never completed is missed too, and so is one whose record has expired. A line
    /// on standard error says so.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "all")]
    pub(crate) missed_after: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The locks' names
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,

    #[command(flatten)]
    pub(crate) store: InspectedStore,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The lock's name
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) store: Store,

    /// Wait at most this long; 0 does not wait [default: wait forever]
    ///
    /// Write a duration as 500ms, 30s, 5m, 1h 30m or 1d. A plain number means seconds.
    #[arg(
        help_heading = heading::WAITING,
        short = 'w',
        long = "wait",
        alias = "timeout",
        value_name = "DURATION",
        value_parser = duration,
        overrides_with = "nonblock"
    )]
    pub(crate) limit: Option<Duration>,

    /// Do not wait, as with --wait 0
    #[arg(help_heading = heading::WAITING, short, long, alias = "nb", overrides_with = "limit")]
    nonblock: bool,

    #[command(flatten)]
    pub(crate) busy: BusyExit,

    /// Print errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl Wait {
    /// Gives --nonblock the meaning that it has: a wait of zero.
    pub(super) fn normalize(&mut self) {
        if self.nonblock {
            self.limit = Some(Duration::ZERO);
        }
    }
}
