//! What can be typed: the one table behind the parser, `--help`, the man pages and the completions.
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
    /// Waits in line for the lock NAME, runs COMMAND while holding it, and ends as COMMAND does. COMMAND finds the
    /// lock's name, the token of this grant, the id of its claim and the store in LEASEHOLD_NAME, LEASEHOLD_TOKEN,
    /// LEASEHOLD_CLAIM and LEASEHOLD_STORE. A resource that checks tokens compares token and claim id.
    /// Standard input and output are COMMAND's own; leasehold says what it has to say on standard error. To programs that
    /// use the library, NAME is a mutex, with --shared a reader's lock, with --slots a semaphore.
    ///
    /// COMMAND runs in a process group of its own. Signals that leasehold receives (INT, TERM, HUP, QUIT, USR1, USR2)
    /// are passed on to that group; while it still waits, they make it leave the line. If leasehold is killed, COMMAND
    /// itself is killed with it; processes that COMMAND started are not, and on the file store the lock stays held until
    /// they have ended.
    #[command(after_long_help = exit::tables())]
    Run(Box<Run>),

    /// List the locks that somebody holds or waits for
    ///
    /// With --json, prints one array of objects as `show --json` does. Lists at most 10,000 locks, and says so on
    /// standard error if there are more.
    Ls {
        /// Only names that begin with this
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        #[command(flatten)]
        store: Store,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Show who holds NAME and who waits for it
    ///
    /// A lock that nobody holds or waits for is free, which is no error. With --json, prints one object:
    ///   name        the lock's name
    ///   last_token  the token of the last grant, null if the store knows of none
    ///   holders     array: token, share, weight, capacity, since, host, pid, program, label
    ///   waiters     array in the order of their turn: position (1 is next), and all the same but token
    ///   strangers   array: pid, program of those who hold it by flock(1)
    ///   servers     where several keep it together, array: server, token (null unless held), last_token, left_ms, trouble
    /// Times are RFC 3339.
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

    /// Show NAME whenever that changes, until Ctrl-C
    ///
    /// Looks four times a second, so what comes and goes faster may be missed. Ends by Ctrl-C with exit code 130. With
    /// --json, prints one line per change: an object as `show --json` prints it, and `at`, the time of the look.
    Watch {
        /// The lock's name
        name: String,
        #[command(flatten)]
        store: Store,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// End the hold of NAME that has this token
    ///
    /// The holder hears that its lock is lost; work under way is not stopped by that alone. A holder under `leasehold
    /// run` does with its command what its --on-lost says.
    Break {
        /// The lock's name
        name: String,
        /// The token of the hold, as `show` prints it
        #[arg(long)]
        token: Token,
        #[command(flatten)]
        store: Store,
    },

    /// Print a man page
    Man {
        /// The page of this command instead of leasehold's own
        #[arg(value_name = "COMMAND")]
        of: Option<String>,
    },

    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Store {
    /// Where the locks are kept
    ///
    /// Give a URL that has a password in LEASEHOLD_STORE, where nobody else sees it, or put
    /// `?password-file=/path` behind it.
    ///   file:/some/folder               a folder on this machine
    ///   file:                           leasehold in $XDG_STATE_HOME or ~/.local/state
    ///   redis://host:6379               a Redis server
    ///   rediss://host                   the same with TLS
    ///   redis+unix:///path              the same by its socket
    ///   redis://host?dialect=plain      the same in the format of redis-py and others
    ///   redlock://host1,host2,host3     several Redis masters of which a minority may fail
    ///   redlocks://host1,host2,host3    the same with TLS
    ///   redlock://…?dialect=classic     the same in the format of redsync and others
    ///   zookeeper://host1,host2/folder  ZooKeeper, in the format of Curator
    ///   zookeeper+tls://host1,host2     the same with TLS
    ///   zookeeper://…?dialect=kazoo     the same in the format of kazoo
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
    /// One that begins with a hyphen goes behind the `--`: `leasehold run -- -name COMMAND…`.
    pub(crate) name: String,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) store: Store,

    /// Wait at most this long; 0 does not wait [default: for ever]
    ///
    /// Durations are written as 500ms, 30s, 5m, 1h 30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// How long the store keeps the lock without hearing of leasehold
    ///
    /// It is renewed for as long as COMMAND runs. The file store needs no lease: it knows when a process ends. A Redis
    /// server gives the lock to the next already after the crash grace, and ZooKeeper after the session, if leasehold
    /// is not heard of for as long: both last 10s unless the URL says `?crash-grace=30s`, `?crash-grace=off` or
    /// `?session=30s`. So COMMAND is stopped before that, whatever the lease.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,

    /// Do not renew: the lock is over when its lease is
    #[arg(long)]
    pub(crate) no_renewal: bool,

    /// Hold no longer than this; COMMAND is stopped in time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Hold at least this long, even if COMMAND ends sooner
    ///
    /// For jobs that several machines start by clocks that differ: the late ones then find the lock taken. INT, TERM
    /// and the like end this wait.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Hold together with others that say --shared, but with nobody else
    #[arg(long, conflicts_with = "slots")]
    pub(crate) shared: bool,

    /// Let as many as N hold at once; all must say the same N
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// Take K of the slots instead of one
    #[arg(long, value_name = "K", requires = "slots")]
    pub(crate) permits: Option<u32>,

    /// What to do with COMMAND when the lock is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// Time between TERM and KILL [default: 5s, or a tenth of what bounds the hold if that is less]
    ///
    /// The bound is the crash grace, half of the session, --lease or --max-hold, whichever is shortest. TERM is sent
    /// early enough for the KILL to come before it can end. So this is at most half of it. The shorter it is, the longer
    /// a store may be silent before COMMAND is stopped.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) grace: Option<Duration>,

    /// What others read of this in show and ls: at most 64 bytes [default: the name of COMMAND's program]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Inside a run of the same NAME, run COMMAND under that one's hold
    ///
    /// Without it, that is refused, as it would wait for itself for ever. COMMAND then replaces leasehold, and the terms
    /// of the outer run hold.
    #[arg(long)]
    pub(crate) reentrant: bool,

    /// Say nothing of waiting, only what went wrong
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Send TERM, and KILL after --grace
    Term,
    /// Send KILL
    Kill,
    /// Say so and let it run on without the lock
    Ignore,
}

/// What was typed, or how to end when that is said already: help, version, wrong usage.
pub(crate) fn parse() -> Result<Command, Exit> {
    Command::try_parse()
        .map(split_environment)
        .map_err(|error| {
            // If it cannot be printed, the exit code still says it.
            let _ = error.print();
            if error.use_stderr() {
                Exit::USAGE
            } else {
                Exit::DONE
            }
        })
}

/// `run -- -name -- command`: the second pair of hyphens only sets the command apart.
fn split_environment(mut command: Command) -> Command {
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
        .map_err(|_| format!("{text:?} is not a duration such as 500ms, 30s, 5m or 1h 30m"))
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
