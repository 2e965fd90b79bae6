//! The arguments: one table for the parser, `--help`, the man pages and the completions.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

mod dialect;
mod elect;
mod front_options;
mod hold;
mod inspection;
mod mistakes;
mod options;
mod parse;
mod run;
#[cfg(feature = "console")]
mod serve;
mod store;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use leasehold::Token;

use crate::help;

pub(crate) use dialect::{Inspected, InspectedStore, in_this_format};
pub(crate) use elect::Elect;
pub(crate) use hold::{Acquire, Check, HeldLock, Hold, Release};
pub(crate) use inspection::{Ls, Show, Wait, Watch};
pub(crate) use mistakes::is_shell_line;
pub(crate) use options::{BusyExit, LockOptions, LogFormat, LogOptions};
pub(crate) use parse::parse;
pub(crate) use run::{OnLost, Run};
#[cfg(feature = "console")]
pub(crate) use serve::Serve;
pub(crate) use store::{Origin, Store};

/// Hold a lock while a command runs, on one machine or many.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    max_term_width = 100,
    after_help = "`leasehold help stores` lists the URLs of stores."
)]
pub(crate) struct Command {
    #[command(subcommand)]
    pub(crate) action: Action,

    #[command(flatten)]
    pub(crate) log: LogOptions,
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
    /// With several names, LEASEHOLD_NAME, LEASEHOLD_TOKEN and LEASEHOLD_CLAIM belong to the first
    /// one. LEASEHOLD_TOKENS has the tokens of all names in the order of the arguments, separated
    /// by spaces. With --slots, LEASEHOLD_SLOT has the number of the slot, from 0 to N-1, which no
    /// other run of NAME has at the same time; with --permits, it has K numbers.
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
    /// If leasehold is killed, COMMAND is killed too. On the file store, the lock stays held until
    /// the processes that COMMAND started have ended. On a network store, the watchdog kills all of
    /// them. There the watchdog is the parent of COMMAND ($PPID). A signal to it does what the same
    /// signal to leasehold does, and without it all processes of COMMAND are killed.
    Run(Box<Run>),

    /// Run COMMAND whenever this candidate leads NAME
    ///
    /// Campaigns in the election NAME, and runs COMMAND while it leads. One candidate leads at a
    /// time, and the others wait in the order of their arrival. `leasehold show` and programs that
    /// use the library find the leader's ADDRESS as the label of the holder. When COMMAND ends, or
    /// the leadership is lost, another candidate leads, and this one campaigns again after a
    /// second. COMMAND receives the same environment variables and signals as under
    /// `leasehold run`, and is stopped in the same way when the leadership is lost.
    ///
    /// INT, TERM, HUP and QUIT end the candidature: leasehold forwards them to COMMAND, resigns
    /// when COMMAND has ended, and exits as `leasehold run` does. USR1 and USR2 have no effect
    /// without COMMAND. Once COMMAND has read from the terminal, Ctrl-C reaches only COMMAND. If
    /// COMMAND cannot be started, or exits with 126 or 127 as a shell does then, leasehold exits
    /// with that code.
    ///
    /// Elections need tokens. Redis with `dialect=plain` has none without `tokens=on`, and Redlock
    /// with `dialect=classic` has none. Both are refused.
    Elect(Box<Elect>),

    /// Hold NAME until standard input ends
    ///
    /// Queues for the lock NAME, prints the token of the grant as the first line of standard
    /// output, and holds the lock until standard input ends. Then it releases the lock and exits
    /// with 0. With --while-pid, it holds until that process ends. INT, TERM, HUP, QUIT, USR1 and
    /// USR2 release the lock and end leasehold. If the lock is lost, leasehold prints why and exits
    /// with 76. If standard input or the process ends before the grant, it leaves the queue and
    /// exits with 75. `leasehold release` ends it too.
    Hold(Box<Hold>),

    /// Hold NAME in the background, and return once it is granted
    ///
    /// Starts a background process that holds the lock as `leasehold hold` does, and prints the
    /// token of the grant. The background process runs in a session of its own, without the
    /// standard streams and the other open files of the caller. It ends, and releases the lock,
    /// when the process that --while-pid names ends. With --detach it does not depend on a process.
    /// `leasehold release` ends it before.
    ///
    /// When the lock is lost, the background process ends that process and its descendants, as
    /// `leasehold run` ends COMMAND; --on-lost ignore leaves them alone. They get no message:
    /// `leasehold check` says why. With --detach it ends no process: call `leasehold check` between
    /// two steps.
    Acquire(Box<Acquire>),

    /// Check that NAME is still held with this token
    ///
    /// Exits with 0 if it is, and with 76 if it is not, for instance because the lock was lost; the
    /// message says when and why, if the holder ran here as the same user. A holder of `acquire` or
    /// `hold` is asked too, because it may have lost the lock before the store shows it. If none
    /// replies and the holder's connection to the server is missing, the lock counts as lost. The
    /// hold may end right after the check: a resource that must never accept a late write compares
    /// the token.
    Check(Check),

    /// Release a lock that `acquire` or `hold` holds
    ///
    /// Works for holders of the same user on the same machine, in the same network namespace. The
    /// lock is free when `release` exits with 0. It exits with 1 if no such process holds NAME with
    /// this token; the message says when and why the lock was lost, if it was. To end another hold,
    /// use `leasehold break`.
    Release(Release),

    /// Wait until NAME is free, without holding it
    ///
    /// NAME is free when it is neither held nor waited for. A waiter whose connection to the server
    /// is missing does not count, because a grant passes over it. The store pushes the change; a
    /// PostgreSQL server, a Redlock store and a Redis server with a dialect are polled four times a
    /// second. Another client may acquire NAME before the next command runs.
    Wait(Wait),

    /// List the locks that are held or waited for
    ///
    /// The column HELD has the slots in use of a semaphore and their number, as `2 of 4`. AGE is
    /// the time since the grant of the first holder, by the clocks of its machine and of this one.
    ///
    /// With --json, prints an array of objects, each as `show --json` prints it. Lists at most
    /// 10,000 locks, and prints a message on standard error if there are more. A lock that this
    /// user may not read is named on standard error, and the exit code stays 0.
    ///
    /// With --all, the column FORMAT has the value of --dialect with which the other commands find
    /// the lock, or `leasehold`.
    Ls(Ls),

    /// Show the holders and waiters of NAME
    ///
    /// A lock without holders and waiters is free, which is not an error. On Redis and PostgreSQL,
    /// a claim whose client has crashed is marked: its connection is missing. Waiters without a
    /// connection are passed over, so a lock that has no other claims is free.
    ///
    /// With --json, prints one object:
    ///   name              the lock's name
    ///   state             "free" or "in_use"
    ///   kind              "mutex", "election", "rwlock" or "semaphore", null if the lock is
    ///                     free
    ///   held              the sum of the holders' weights
    ///   capacity          the slots of a semaphore, 1 for a mutex, null for other locks
    ///   last_token        the largest token of the last grant, null if the store has none; a file
    ///                     store forgets it when the lock is free
    ///   ended             only on Redis and PostgreSQL, for a day: the last hold that nobody
    ///                     released or broke: token, reason
    ///   last_success      the last completion of `run --once`: id (null with --once-per), by,
    ///                     token, started, ended, age_seconds, by the store's clock; absent if
    ///                     there is none or the user may not read it, and in ls, watch and serve
    ///   last_failure      the same of the last failure
    ///   holders           array: token, share, weight, capacity, since, age_seconds, host, pid,
    ///                     program, label, candidate (only in an election: true; the label is its
    ///                     address), connected (only on Redis and PostgreSQL: false if the
    ///                     client's connection is missing), stopped (true if it is a stopped
    ///                     process of this machine), command_stopped (true if the command of a
    ///                     `leasehold run` of this machine is);
    ///                     capacity is null for a rwlock; a process that passes its hold on (a
    ///                     cohort) has first_token and last_token in place of token;
    ///                     a holder on files whose pid is not its process here has process: state
    ///                     ("ended", "other_namespace" or "unseen"), and processes, an array of
    ///                     those that hold: pid, program; a holder in a database whose grant a
    ///                     transaction pins has pins, an array: pid or gid, overdue_ms (null
    ///                     while it holds), missing_right (null if this role may end it)
    ///   waiters           array in queue order: position (1 is next), then the fields of a
    ///                     holder except token
    ///   external_holders  array of the processes that hold the lock by flock(1): pid, program
    ///   servers           array, only on a store of several servers: server, state ("free",
    ///                     "held" or "unknown"), token (null unless held), last_token,
    ///                     remaining_ms, error (null if there is none)
    /// A holder on PostgreSQL has lease_left_ms too, and so has one in the format of another
    /// library, if its lease has an end. The latter has no meaningful since and age_seconds.
    /// With --all, prints an array of such objects, one for each format in which NAME is in use,
    /// with the field format first.
    /// Tokens are strings of digits, because many JSON parsers round 64-bit numbers. Times are in
    /// the format of RFC 3339.
    #[command(verbatim_doc_comment)]
    Show(Show),

    /// Print the state of each NAME when it changes, until Ctrl-C
    ///
    /// The store pushes changes. A PostgreSQL server, a Redlock store and a Redis server with a
    /// dialect are polled four times a second. Of several changes in a short time, only the last
    /// one may be printed. If nobody released or broke a hold, Redis and PostgreSQL know why it
    /// ended, and so does the next holder. Ctrl-C ends it with exit code 130. With --json,
    /// prints one line per change: an object as `show --json` prints it, without servers, but with
    /// `at`, the time at which it was read.
    Watch(Watch),

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
        store: InspectedStore,
    },

    /// Examine risks to locks in the store
    ///
    /// Connects, reads the settings of the servers, and tries the requests that locks need. Prints
    /// each finding with its remedy. It does not change any lock, and takes about a second.
    ///
    /// Exits with 0 without a finding, with 1 if there are only warnings, with 2 if there is a
    /// danger, and with 69 if the store cannot be reached.
    ///
    /// With --json, prints one object:
    ///   store     the store's URL without its password
    ///   findings  array, the dangers first: severity ("danger" or "warning"), code, server,
    ///             message, remedy
    ///   servers   array: server, version, round_trip_p50_us, round_trip_p99_us, clock_ahead_ms;
    ///             null where unknown
    ///   unknown   array of texts: the parts that could not be examined, and why
    #[command(verbatim_doc_comment)]
    Doctor {
        #[command(flatten)]
        store: Store,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Show the locks of the store on a web page, and to Prometheus
    ///
    /// Prints its address and serves until Ctrl-C or TERM:
    ///   /         a page that shows who holds and who waits, and follows the changes
    ///   /locks    the same as JSON: an object with `store`, `at` (the time at which the locks
    ///             were read), `complete` (false if there are more than 10,000 locks), `error`
    ///             (null, or why the store could not be read; `locks` is then older), `skipped`
    ///             (texts: the locks that this user may not read) and `locks`, an array of objects
    ///             as `show --json` prints them; ?prefix=TEXT selects names. With the header
    ///             `Accept: text/event-stream`, sends an event `locks` and then an event `change`
    ///             for each change, with `changed` and `removed` in place of `locks`
    ///   /metrics  metrics in the text format of Prometheus, each with its description
    ///   /healthz  200 if the store can be read, 503 if not; needs no token
    ///
    /// The store is read when a client needs it, four times a second at most. The page changes no
    /// lock. With --allow-break it has a button for each hold, and the user confirms with the
    /// token. The connection is not encrypted: a proxy with TLS belongs in front of any address
    /// but a loopback address.
    #[cfg(feature = "console")]
    #[command(verbatim_doc_comment)]
    Serve(Box<Serve>),

    /// Remove the files that free locks have left
    ///
    /// A process removes the files of a lock about a second after it left the lock free. A crashed
    /// process leaves them, and so does a process that may not remove the files of another user.
    /// Run it daily, as the owner of the folder; a folder that users share may belong to root. It
    /// may run while locks are used.
    /// Files that cannot be removed are named on standard error, and the exit code stays 0.
    /// Only the file store has such files. On ZooKeeper, this removes old records of jobs.
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

    /// Make the schema of a PostgreSQL store, as its owner
    ///
    /// A client makes the schema by itself if its role may. This command makes it, or upgrades it,
    /// with another role, and lets roles use it. It may be repeated. With --print it connects to
    /// nothing, and prints the statements for a tool that migrates databases.
    SetupPostgres {
        #[command(flatten)]
        store: Store,
        /// A role that may use the locks; repeat it for several roles
        #[arg(long = "grant", value_name = "ROLE")]
        roles: Vec<String>,
        /// Print the statements instead
        #[arg(long)]
        print: bool,
    },

    /// Print a man page
    Man {
        /// The subcommand to print the page of, instead of leasehold's own page
        #[arg(value_name = "COMMAND", value_parser = PossibleValuesParser::new(SUBCOMMANDS))]
        subcommand: Option<String>,
        /// Write the pages of leasehold and of all its subcommands into the folder DIR
        #[arg(long, value_name = "DIR", conflicts_with = "subcommand")]
        all: Option<PathBuf>,
    },

    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Action {
    /// The names of the locks that a subcommand acquires or waits for, and whether it is --quiet.
    fn acquired(&self) -> (Vec<&String>, bool) {
        match self {
            Self::Run(run) => {
                let names = run.names.iter().chain(&run.more_names);
                (names.collect(), run.lock.quiet)
            }
            Self::Elect(elect) => (vec![&elect.name], elect.quiet),
            Self::Hold(hold) => (vec![&hold.lock.name], hold.lock.options.quiet),
            Self::Acquire(acquire) => (vec![&acquire.lock.name], acquire.lock.options.quiet),
            Self::Wait(wait) => (vec![&wait.name], wait.quiet),
            _ => (Vec::new(), true),
        }
    }

    /// The store of a subcommand that has one.
    fn store_mut(&mut self) -> Option<&mut Store> {
        match self {
            Self::Run(run) => Some(&mut run.store),
            Self::Elect(elect) => Some(&mut elect.store),
            Self::Hold(hold) => Some(&mut hold.lock.store),
            Self::Acquire(acquire) => Some(&mut acquire.lock.store),
            Self::Check(check) => Some(&mut check.store),
            Self::Release(release) => Some(&mut release.store),
            Self::Wait(wait) => Some(&mut wait.store),
            Self::Ls(ls) => Some(&mut ls.store.own.store),
            Self::Show(show) => Some(&mut show.store.own.store),
            Self::Watch(watch) => Some(&mut watch.store.own.store),
            Self::Break { store, .. } => Some(&mut store.own.store),
            #[cfg(feature = "console")]
            Self::Serve(serve) => Some(&mut serve.store.store),
            Self::Doctor { store, .. } | Self::Gc { store } | Self::SetupPostgres { store, .. } => {
                Some(store)
            }
            Self::SetupSystem { .. } | Self::Man { .. } | Self::Completions { .. } => None,
        }
    }
}

/// The subcommands that have a man page, for `man` and its completions.
const SUBCOMMANDS: &[&str] = &[
    "run",
    "elect",
    "hold",
    "acquire",
    "check",
    "release",
    "wait",
    "ls",
    "show",
    "watch",
    "break",
    "doctor",
    #[cfg(feature = "console")]
    "serve",
    "gc",
    "setup-system",
    "setup-postgres",
    "man",
    "completions",
];

/// Returns the definition of all arguments, with the examples of each subcommand.
///
/// It is the one source of the parser, `--help`, the man pages and the completions.
pub(crate) fn definition() -> clap::Command {
    let definition = Command::command()
        // Aliases of a shell set options that the command line may set again.
        .args_override_self(true)
        .mut_subcommands(help::with_examples);
    help::with_examples(definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_definitions_are_valid() {
        definition().debug_assert();
    }

    #[test]
    fn every_subcommand_has_a_man_page() {
        let definition = definition();
        let names: Vec<_> = definition
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        assert_eq!(names, SUBCOMMANDS);
    }
}
