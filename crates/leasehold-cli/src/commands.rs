//! The arguments: one table for the parser, `--help`, the man pages and the completions.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::fmt::friendly::SpanParser;
use leasehold::Token;

use crate::exit::{self, Exit};

/// Hold a lock while a command runs, on one machine or many.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100, after_long_help = exit::tables())]
pub(crate) struct Command {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Hold NAME while COMMAND runs
    ///
    /// Queues for the lock NAME, runs COMMAND while holding it, and exits with COMMAND's exit code.
    /// COMMAND finds the lock's name, the fencing token of the grant, the id of the claim and the
    /// store's URL in LEASEHOLD_NAME, LEASEHOLD_TOKEN, LEASEHOLD_CLAIM and LEASEHOLD_STORE. A
    /// resource that checks tokens compares both the token and the claim id. COMMAND inherits
    /// standard input and output; leasehold prints its own messages on standard error. For programs
    /// that use the library, NAME is a mutex; with --shared, the read side of a read-write lock;
    /// with --slots, a semaphore.
    ///
    /// COMMAND runs in a process group of its own. leasehold forwards the signals INT, TERM, HUP,
    /// QUIT, USR1 and USR2 to that group. While leasehold still waits for the lock, these signals
    /// make it leave the queue. If a signal ends COMMAND or the wait, leasehold ends by the same
    /// signal, so that Ctrl-C ends a script, a loop or make, too.
    ///
    /// The lock is released when COMMAND ends; --until-all-end says otherwise. When the lock is
    /// lost, leasehold first ends all processes that COMMAND has started, in other sessions too. If
    /// leasehold is stopped (SIGSTOP) until the hold ends, a watchdog process kills them.
    ///
    /// If leasehold is killed, the kernel kills COMMAND too. On the file store, the lock stays held
    /// until the processes that COMMAND started have ended. On a network store, the watchdog kills
    /// COMMAND's process group.
    #[command(after_long_help = exit::tables())]
    Run(Box<Run>),

    /// List the locks that are held or waited for
    ///
    /// With --json, prints an array of objects, each as `show --json` prints it. Lists at most
    /// 10,000 locks, and prints a message on standard error if there are more. A lock that this
    /// user may not read is named on standard error, and the exit code stays 0.
    Ls {
        /// List only names that begin with PREFIX
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        #[command(flatten)]
        store: Store,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Show the holders and waiters of NAME
    ///
    /// A lock without holders and waiters is free, which is not an error.
    ///
    /// With --json, prints one object:
    ///   name              the lock's name
    ///   state             "free" or "in_use"
    ///   last_token        the token of the last grant, null if the store has none; a file store
    ///                     forgets it when the lock is free
    ///   holders           array: token, share, weight, capacity, since, host, pid, program, label
    ///   waiters           array in queue order: position (1 is next), then the fields of a
    ///                     holder except token
    ///   external_holders  array of the processes that hold the lock by flock(1): pid, program
    ///   servers           array, only on a store of several servers: server, state ("free",
    ///                     "held" or "unknown"), token (null unless held), last_token,
    ///                     remaining_ms, error (null if there is none)
    /// Tokens are strings of digits, because many JSON parsers round 64-bit numbers. Times are in
    /// the format of RFC 3339.
    #[command(verbatim_doc_comment)]
    Show {
        /// The lock's name
        name: String,
        #[command(flatten)]
        store: Store,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Print NAME each time its state changes, until Ctrl-C
    ///
    /// Polls the store four times a second, so shorter changes may be missed. Ctrl-C ends it with
    /// exit code 130. With --json, prints one line per change: an object as `show --json` prints
    /// it, without servers, but with `at`, the time of the poll.
    Watch {
        /// The lock's name
        name: String,
        #[command(flatten)]
        store: Store,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Revoke the hold of NAME that has this token
    ///
    /// The holder is notified that it has lost the lock. This alone does not stop the holder's
    /// work. A holder under `leasehold run` then does with its command what its --on-lost says.
    Break {
        /// The lock's name
        name: String,
        /// The token of the hold, as `show` prints it
        #[arg(long)]
        token: Token,
        #[command(flatten)]
        store: Store,
    },

    /// Remove the files that free locks have left
    ///
    /// A process removes the files of a lock about a second after it left the lock free. A crashed
    /// process leaves them, and so does a process that may not remove the files of another user.
    /// Run it daily, as root or as the owner of the folder. It may run while locks are used.
    /// Files that cannot be removed are named on standard error, and the exit code stays 0.
    /// Only the file store has such files.
    Gc {
        #[command(flatten)]
        store: Store,
    },

    /// Make the folder of system:, as root
    ///
    /// The users of a group share the locks in /var/lib/leasehold. The command makes the folder
    /// with the mode 3770, and the group if it is missing. It may be repeated.
    SetupSystem {
        /// The group whose members use the folder
        #[arg(long, value_name = "NAME", default_value = "leasehold")]
        group: String,
    },

    /// Print a man page
    Man {
        /// The subcommand to print the page of, instead of leasehold's own page
        #[arg(value_name = "COMMAND")]
        subcommand: Option<String>,
    },

    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store that keeps the locks
    ///
    /// Pass a URL that contains a password in LEASEHOLD_STORE, because other users can read the
    /// arguments of a process. Or keep the password in a file, with `?password-file=/path`.
    ///   file:/some/folder               a folder on this machine
    ///   file:/some/folder?mode=0660     the same, with files for the members of its group
    ///   file:                           leasehold in $XDG_STATE_HOME or ~/.local/state
    ///   system:                         /var/lib/leasehold, for the group leasehold
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

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(override_usage = "leasehold run [OPTIONS] NAME -- COMMAND…")]
pub(crate) struct Run {
    /// The lock's name: any text of 1 to 512 bytes
    ///
    /// Put a name that begins with a hyphen behind `--`: `leasehold run -- -name COMMAND…`.
    pub(crate) name: String,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) store: Store,

    /// Wait at most this long; 0 does not wait [default: wait forever]
    ///
    /// Write a duration as 500ms, 30s, 5m or 1h 30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// How long the store keeps the lock after the last renewal
    ///
    /// leasehold renews the lease while COMMAND runs. The file store does not need a lease: the
    /// kernel reports the end of a process. A network store may grant the lock to the next waiter
    /// before the lease ends: Redis after the crash grace without a connection, ZooKeeper when the
    /// session expires. Both last 10s, unless the URL sets `?crash-grace=30s`, `?crash-grace=off`
    /// or `?session=30s`. leasehold stops COMMAND before the first of these times is over.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,

    /// Do not renew the lease: the lock is lost when --lease is over
    #[arg(long)]
    pub(crate) no_renewal: bool,

    /// Hold the lock at most this long; COMMAND is stopped before this time is over
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Hold the lock at least this long, even if COMMAND ends sooner
    ///
    /// For a job that several machines start at the same time by clocks that differ. A machine
    /// whose clock is late then still finds the lock held. INT, TERM, HUP, QUIT, USR1 and USR2 end
    /// this wait, and INT and QUIT then end leasehold.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Share the lock with other --shared runs; exclude all other runs
    #[arg(long, conflicts_with = "slots")]
    pub(crate) shared: bool,

    /// Let up to N runs hold the lock at once; all runs of NAME must give the same N
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// Take K of the N slots instead of one
    #[arg(long, value_name = "K", requires = "slots")]
    pub(crate) permits: Option<u32>,

    /// What to do with COMMAND when the lock is lost
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// Time between TERM and KILL [default: 5s, or a tenth of the shortest limit below]
    ///
    /// Must fit into half of the shortest of these limits: the crash grace, half of the session,
    /// --lease and --max-hold. leasehold sends TERM early enough to send KILL before the hold can
    /// end. With a shorter --kill-after, COMMAND survives a longer outage of the store.
    #[arg(long, short, value_name = "DURATION", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,

    /// The former name of --kill-after, which only prints that name
    #[arg(long, hide = true, value_name = "DURATION", value_parser = renamed_to_kill_after)]
    grace: Option<Duration>,

    /// Hold the lock until all processes that COMMAND has started have ended, too
    ///
    /// Without this option, the lock is released when COMMAND ends. Processes that it leaves in the
    /// background then run without the lock.
    #[arg(long)]
    pub(crate) until_all_end: bool,

    /// The label in show and ls, at most 64 bytes [default: COMMAND's file name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Inside a run of the same NAME, run COMMAND under the outer hold
    ///
    /// Without this option, leasehold refuses such a nested run, because it would wait for itself
    /// forever. COMMAND replaces leasehold, and only the options of the outer run apply.
    #[arg(long)]
    pub(crate) reentrant: bool,

    /// Print errors only, not the progress of the wait
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Send TERM, then KILL after --kill-after
    Term,
    /// Send KILL
    Kill,
    /// Print a message and let COMMAND run on without the lock
    Ignore,
}

/// Parses the arguments. Prints help, the version or a usage error, and then returns an exit code.
pub(crate) fn parse() -> Result<Command, Exit> {
    Command::try_parse().map(drop_separator).map_err(|error| {
        // Where the message cannot be printed, the exit code still reports the outcome.
        let _ = error.print();

        if error.use_stderr() {
            Exit::USAGE
        } else {
            Exit::DONE
        }
    })
}

/// Drops the second `--` of `run -- -name -- command`, which only separates the command.
fn drop_separator(mut command: Command) -> Command {
    if let Action::Run(run) = &mut command.action
        && run.command.len() > 1
        && run.command[0] == "--"
    {
        run.command.remove(0);
    }
    command
}

fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }

    SpanParser::new()
        .parse_unsigned_duration(text)
        .map_err(|_| format!("{text:?} is not a duration; write it as 500ms, 30s, 5m or 1h 30m"))
}

fn renamed_to_kill_after(_: &str) -> Result<Duration, &'static str> {
    Err("this option is called --kill-after (-k) now")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn argument_definitions_are_valid() {
        Command::command().debug_assert();
    }

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
