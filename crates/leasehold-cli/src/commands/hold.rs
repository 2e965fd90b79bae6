//! The arguments of the subcommands that hold a lock without a command: hold, acquire, release.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use clap::Args;
use leasehold::Token;

use super::options::{BusyExit, LockOptions, Store};

#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// The lock's name: any text of 1 to 512 bytes
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) store: Store,

    #[command(flatten)]
    pub(crate) lock: LockOptions,

    #[command(flatten)]
    pub(crate) busy: BusyExit,

    /// Hold until the process PID ends, and do not read standard input
    #[arg(long, value_name = "PID")]
    pub(crate) while_pid: Option<i32>,
}

#[derive(Debug, Args)]
pub(crate) struct Acquire {
    /// The lock's name: any text of 1 to 512 bytes
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) store: Store,

    #[command(flatten)]
    pub(crate) lock: LockOptions,

    #[command(flatten)]
    pub(crate) busy: BusyExit,

    /// Hold until the process PID ends [default: the parent process of leasehold]
    ///
    /// In a script, --while-pid $$ names the script itself, also inside of $(…) and of functions.
    #[arg(long, value_name = "PID", conflicts_with = "detach")]
    pub(crate) while_pid: Option<i32>,

    /// Hold until `leasehold release`, or until the lock is lost
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
