//! The arguments of the subcommands that hold a lock without a command: hold, acquire, release.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use clap::Args;
use leasehold::Token;

use super::options::{BusyExit, LockOptions};
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
