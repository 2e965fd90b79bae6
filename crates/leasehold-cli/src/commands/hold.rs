//! The arguments of the subcommands that hold a lock without a command: hold, acquire, release.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::time::Duration;

use clap::Args;
use leasehold::Token;

use super::options::{BusyExit, LockOptions, duration, heading};
use super::run::OnLost;
use super::store::Store;

/// The lock of hold and acquire.
#[derive(Debug, Args)]
pub(crate) struct HeldLock {
    /// The lock's name: any text of 1 to 512 bytes
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) store: Store,

    #[command(flatten)]
    pub(crate) options: LockOptions,

    #[command(flatten)]
    pub(crate) busy: BusyExit,
}

#[derive(Debug, Args)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) lock: HeldLock,

    /// Hold until the process PID ends, and do not read standard input
    #[arg(long, value_name = "PID")]
    pub(crate) while_pid: Option<i32>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "leasehold acquire [OPTIONS] --while-pid PID NAME\n       \
                      leasehold acquire [OPTIONS] --detach NAME"
)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) lock: HeldLock,

    /// Hold until the process PID ends; in a script, --while-pid $$
    ///
    /// This process is the owner of the lock. Without --detach, an owner must be named, because the
    /// parent process of leasehold is often a subshell, sudo or make's shell, and ends at once. In
    /// a script, $$ is the script itself, also inside of $(…), pipelines and functions. In a
    /// Makefile, $$PPID is make.
    #[arg(long, value_name = "PID", conflicts_with = "detach")]
    pub(crate) while_pid: Option<i32>,

    /// Hold until `leasehold release`, or until the lock is lost; no process is the owner
    #[arg(long)]
    pub(crate) detach: bool,

    /// What to do with the process PID when the lock is lost
    ///
    /// leasehold ends the process, and the descendants that it finds at that moment, before the
    /// store can grant the lock to another client. With `ignore` the process runs on, and learns
    /// of the loss from `leasehold check` and `leasehold release`.
    #[arg(
        help_heading = heading::LOSS,
        long,
        value_name = "ACTION",
        value_enum,
        default_value_t,
        conflicts_with = "detach"
    )]
    pub(crate) on_lost: OnLost,

    /// Time between TERM and KILL, as for `leasehold run`
    #[arg(
        help_heading = heading::LOSS,
        long,
        short,
        value_name = "DURATION",
        value_parser = duration,
        conflicts_with = "detach"
    )]
    pub(crate) kill_after: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The lock's name
    pub(crate) name: String,

    /// The token of the hold: what `acquire` or `hold` has printed, or $LEASEHOLD_TOKEN of `run`
    #[arg(long)]
    pub(crate) token: Token,

    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The lock's name
    pub(crate) name: String,

    /// The token that `acquire` or `hold` has printed
    #[arg(long)]
    pub(crate) token: Token,

    #[command(flatten)]
    pub(crate) store: Store,
}
