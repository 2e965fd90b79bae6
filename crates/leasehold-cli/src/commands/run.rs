//! The arguments of `leasehold run`.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::options::{BusyExit, LockOptions, duration, heading};
use super::store::Store;

#[derive(Debug, Default, Args)]
#[command(override_usage = "leasehold run [OPTIONS] NAME… -- COMMAND…\n       \
                      leasehold run [OPTIONS] NAME… -c LINE")]
pub(crate) struct Run {
    /// The locks' names, each any text of 1 to 512 bytes
    ///
    /// COMMAND runs while all of them are held. leasehold acquires them in the order of their
    /// bytes, so that two runs never wait for each other, and releases all if one is not granted
    /// in time. All options apply to each name. Give a name that begins with a hyphen by --name.
    /// White space at the ends of a name and control characters are refused: a script with CRLF at
    /// the ends of its lines would lock another name.
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<OsString>,

    /// Run LINE in a shell, in place of COMMAND
    ///
    /// The shell is $SHELL, as for flock(1), or /bin/sh without that variable.
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "command"
    )]
    pub(super) shell_line: Option<OsString>,

    #[command(flatten)]
    pub(crate) lock: LockOptions,

    #[command(flatten)]
    pub(crate) busy: BusyExit,

    #[command(flatten)]
    pub(crate) once: OnceOptions,

    /// What to do with COMMAND when the lock is lost
    #[arg(help_heading = heading::LOSS, long, value_name = "ACTION", value_enum, default_value_t)]
    pub(crate) on_lost: OnLost,

    /// Time between TERM and KILL [default: 5s with file:, 1s with redis:]
    ///
    /// A hold has the limits crash grace (10s with redis:), half of the session (5s with
    /// zookeeper:), --lease (30s with redlock:) and --max-hold. The default is 5s, or a tenth of
    /// the shortest limit if that is less, and the time must fit into half of that limit. leasehold
    /// sends TERM early enough to send KILL before the hold can end. With a shorter --kill-after,
    /// COMMAND survives a longer outage of the store.
    #[arg(help_heading = heading::LOSS, long, short, value_name = "DURATION", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,

    #[command(flatten)]
    pub(crate) store: Store,

    /// Hold the lock at least this long, even if COMMAND ends sooner
    ///
    /// For a pause between two runs. A job that several machines start by clocks that differ needs
    /// --once, which knows whether the job succeeded. INT, TERM, HUP, QUIT, USR1 and USR2 end
    /// this wait, and INT and QUIT then end leasehold.
    #[arg(
        help_heading = heading::RARE,
        long,
        value_name = "DURATION",
        value_parser = duration,
        hide_short_help = true
    )]
    pub(crate) hold_at_least: Option<Duration>,

    /// Hold the lock until all processes that COMMAND has started have ended, too
    ///
    /// Without this option, the lock is released when COMMAND ends. Processes that it leaves in the
    /// background then run without the lock.
    #[arg(help_heading = heading::RARE, hide_short_help = true, long)]
    pub(crate) until_all_end: bool,

    /// Inside a run of the same NAME, run COMMAND under the outer hold
    ///
    /// Without this option, leasehold refuses such a nested run, because it would wait for itself
    /// forever. COMMAND replaces leasehold, and only the options of the outer run apply. If the
    /// outer hold is lost, or the connection of its holder is missing, leasehold exits with 76.
    #[arg(help_heading = heading::RARE, hide_short_help = true, long)]
    pub(crate) reentrant: bool,

    /// One more name; for names that begin with a hyphen: --name=-x
    #[arg(
        help_heading = heading::RARE,
        hide_short_help = true,
        long = "name",
        value_name = "NAME"
    )]
    pub(super) more_names: Vec<String>,

    /// Hold NAME in this store too, while programs move from one store to another
    ///
    /// COMMAND runs while both stores have granted NAME. The loss of either is a loss, and both are
    /// released. leasehold acquires the stores in the order of the bytes of their URLs, so spell
    /// both URLs alike everywhere. LEASEHOLD_STORE and LEASEHOLD_TOKEN are those of --store, and
    /// LEASEHOLD_SLOT is not set. Pass a URL that contains a password in LEASEHOLD_ALSO_STORE.
    #[arg(
        help_heading = heading::RARE,
        hide_short_help = true,
        long,
        value_name = "URL",
        env = "LEASEHOLD_ALSO_STORE",
        hide_env_values = true
    )]
    pub(crate) also_store: Option<String>,
}

/// A job that runs once, however many machines start it.
#[derive(Debug, Default, Args)]
pub(crate) struct OnceOptions {
    /// Run COMMAND once for this ID, whichever machines try it, and whenever
    ///
    /// ID is a text of 1 to 64 bytes that the schedule or the commit determines: `date -u +%F`,
    /// the name of a Kubernetes Job, $CI_COMMIT_SHA. If COMMAND exits with 0, the store records ID
    /// in the step that releases the lock, and a later run with ID runs nothing, prints by whom and
    /// when it was done, and exits with 0. If COMMAND fails, is killed or loses the lock, or a signal
    /// to leasehold has asked it to end, a waiter or the next run runs it. The store keeps the last 32
    /// ids of NAME, for 40 days after the last use (?records=40d). Redlock and the dialects of Redis
    /// have no records.
    #[arg(help_heading = heading::KIND, long = "once", value_name = "ID", conflicts_with = "period")]
    pub(crate) id: Option<String>,

    /// Run COMMAND once in each period, for a timer without an id
    ///
    /// A success that started less than half a period before this run, or while it waited, is the
    /// one of this period. That is right while all starts lie within half a period of when they are
    /// due. A machine that boots 13 hours late, and catches up on a daily job then, runs it again,
    /// and swallows the next night's: use --once for it.
    #[arg(
        help_heading = heading::KIND,
        id = "period",
        hide_short_help = true,
        long = "once-per",
        value_name = "DURATION",
        value_parser = duration
    )]
    pub(crate) period: Option<Duration>,

    /// The exit code if the job is done already [default: 0]
    #[arg(help_heading = heading::KIND, long = "done-exit-code", value_name = "N", hide_short_help = true)]
    pub(crate) done_exit: Option<u8>,
}

impl Run {
    /// Gives -c and -n the meanings that they have.
    pub(super) fn normalize(&mut self) {
        self.lock.normalize();
        if let Some(line) = self.shell_line.take() {
            self.command = vec![shell(), "-c".into(), line];
        }
    }

    pub(super) fn has_command(&self) -> bool {
        !self.command.is_empty() || self.shell_line.is_some()
    }

    /// Returns the names in the order of the arguments, without repetitions.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.names.iter().chain(&self.more_names) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

fn shell() -> OsString {
    std::env::var_os("SHELL")
        .filter(|shell| !shell.is_empty())
        .unwrap_or_else(|| "/bin/sh".into())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Send TERM, then KILL after --kill-after
    #[default]
    Term,
    /// Send KILL
    Kill,
    /// Let it run on without the lock
    Ignore,
}
