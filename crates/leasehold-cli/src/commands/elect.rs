//! The arguments of `leasehold elect`.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::options::{LockOptions, duration};
use super::run::{OnLost, Run};
use super::store::Store;

#[derive(Debug, Args)]
#[command(override_usage = "leasehold elect [OPTIONS] NAME --address ADDRESS -- COMMAND…")]
pub(crate) struct Elect {
    /// The election's name, any text of 1 to 512 bytes
    pub(super) name: String,

    /// Where others reach this candidate while it leads, any text of 1 to 255 bytes (64 in a folder)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: String,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,

    #[command(flatten)]
    pub(super) store: Store,

    /// How long the store keeps the leadership after the last renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    lease: Duration,

    /// What to do with COMMAND when the leadership is lost
    #[arg(long, value_name = "ACTION", value_enum, default_value_t)]
    on_lost: OnLost,

    /// Time between TERM and KILL, as for `leasehold run`
    #[arg(long, short, value_name = "DURATION", value_parser = duration)]
    kill_after: Option<Duration>,

    /// Print errors only, not the progress of the election
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl Elect {
    /// Returns the run of one term: the label of its claim is the address.
    pub(crate) fn into_run(self) -> Run {
        Run {
            names: vec![self.name],
            command: self.command,
            store: self.store,
            lock: LockOptions {
                lease: self.lease,
                address: Some(self.address),
                quiet: self.quiet,
                ..LockOptions::default()
            },
            on_lost: self.on_lost,
            kill_after: self.kill_after,
            ..Run::default()
        }
    }
}
