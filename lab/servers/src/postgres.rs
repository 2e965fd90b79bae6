//! A real PostgreSQL server.

use std::fs;
use std::io::{BufRead, BufReader, Write, pipe};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::ensure;
use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::child::{Environment, Program, ServerProcess};
use crate::{DEADLINE, until};

/// Debian keeps each release in a folder of its own.
const RELEASES: &str = "/usr/lib/postgresql";
/// The server refuses to run as root; then it runs as this user, whose number is the same everywhere.
const UNPRIVILEGED: u32 = 65534;
const LOG: &str = "postgres.log";
/// Ends what a session says to one statement.
const DONE: &str = "--done--";

/// A PostgreSQL server of its own, in a temporary folder, reached by a Unix socket only. Dropping it ends it.
///
/// ```
/// use lab_servers::Postgres;
///
/// let postgres = Postgres::start();
/// assert_eq!(postgres.session().run("SELECT 3 + 4"), ["7"]);
/// ```
#[derive(Debug)]
pub struct Postgres {
    // Before the folder: it is ended first.
    child: ServerProcess,
    folder: TempDir,
}

/// A connection, through psql: statements one after another, transactions too. Dropping it closes it.
#[derive(Debug)]
pub struct PostgresSession {
    psql: process::Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Postgres {
    /// Starts one with an empty database that keeps nothing over a loss of power.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("postgres-")
            .tempdir()
            .expect("a temporary folder can be made");
        if geteuid().is_root() {
            chown(folder.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .expect("root may give a folder away");
        }
        let (spec, data) = (text(folder.path()), text(&folder.path().join("data")));
        let log = folder.path().join(LOG);
        let mut made = run(
            "initdb",
            &[
                "-D",
                &data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            &log,
        );
        let status = until("initdb to end", || Ok(made.ended())).expect("it takes a second");
        assert!(
            status.success(),
            "initdb makes no database: {}",
            output(&log)
        );
        let settings = [
            "listen_addresses=",
            "fsync=off",
            "max_connections=50",
            &format!("unix_socket_directories={spec}"),
        ];
        let settings = settings.iter().flat_map(|setting| ["-c", setting]);
        let args: Vec<&str> = ["-D", &data].into_iter().chain(settings).collect();
        let server = Self {
            child: run("postgres", &args, &log),
            folder,
        };
        server.serves()
    }

    fn serves(mut self) -> Self {
        let started = until("postgres to answer", || {
            ensure!(self.child.ended().is_none(), "it ended instead");
            let sent_at = self
                .psql()
                .args(["-c", "SELECT 1"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            Ok(sent_at.success().then_some(()))
        });
        started.unwrap_or_else(|e| panic!("postgres does not start: {e}\n{}", self.log()));
        self
    }

    /// All it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        output(&self.folder.path().join(LOG))
    }

    /// The folder of its Unix socket, which clients take for its host; the user and the database are `postgres`.
    #[must_use]
    pub fn host(&self) -> &Path {
        self.folder.path()
    }

    /// A connection.
    #[must_use]
    pub fn session(&self) -> PostgresSession {
        let (output, both) = pipe().expect("a pipe can be made");
        let mut psql = self.psql();
        psql.stdin(Stdio::piped())
            .stdout(both.try_clone().expect("a pipe can be shared"))
            .stderr(both);
        let mut child = psql.spawn().expect("psql can be started");
        // Its ends of the pipe are its own alone: what it says ends when it does.
        drop(psql);
        let (printed, heard) = channel();
        thread::spawn(move || {
            // Nobody listens any more when the session is dropped.
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| printed.send(line).ok())
        });
        PostgresSession {
            input: child.stdin.take().expect("its stdin is a pipe"),
            psql: child,
            output: heard,
        }
    }

    fn psql(&self) -> Command {
        let mut psql = Command::new("setpriv");
        psql.args([
            "--pdeathsig",
            "KILL",
            &program("psql"),
            "-XAtq",
            "-U",
            "postgres",
            "-d",
            "postgres",
        ]);
        psql.arg("-h").arg(self.folder.path()).stdin(Stdio::null());
        psql
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, but not by SIGKILL: it gives back its shared memory first.
        if self.child.ended().is_none() {
            self.child.signal(Signal::QUIT);
            // If it does not end it is killed.
            let _ = until("postgres to end", || Ok(self.child.ended()));
        }
    }
}

impl PostgresSession {
    /// Has a statement carried out; the rows, and errors, as psql prints them.
    ///
    /// # Panics
    /// If psql has ended, or says nothing for two minutes.
    pub fn run(&mut self, statement: &str) -> Vec<String> {
        self.send(statement);
        self.read_reply()
    }

    /// Sends a statement that may have to wait; [`read_reply`](Self::read_reply) has what became of it.
    ///
    /// # Panics
    /// If psql has ended.
    pub fn send(&mut self, statement: &str) {
        write!(self.input, "{statement};\n\\echo {DONE}\n").expect("psql lives");
    }

    /// What became of the statement that was sent.
    ///
    /// # Panics
    /// If psql has ended, or says nothing for two minutes.
    #[must_use]
    pub fn read_reply(&mut self) -> Vec<String> {
        let line = || self.output.recv_timeout(DEADLINE).expect("psql answers");
        std::iter::repeat_with(line)
            .take_while(|line| line != DONE)
            .collect()
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        // It may be dead and buried already, which is as good.
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

/// Starts one of its programs, as a user that may run it.
fn run(name: &str, args: &[&str], log: &Path) -> ServerProcess {
    let program = program(name);
    let around = Environment {
        cpu: None,
        clock: None,
    };
    if !geteuid().is_root() {
        return ServerProcess::start(
            &Program::installed(&program, "postgresql"),
            args,
            &around,
            log,
        );
    }
    let nobody = UNPRIVILEGED.to_string();
    // A change of user takes the death signal away, so it is given after it.
    let change = [
        "--reuid",
        &nobody,
        "--regid",
        &nobody,
        "--clear-groups",
        "setpriv",
        "--pdeathsig",
        "KILL",
        &program,
    ];
    let args: Vec<&str> = change.into_iter().chain(args.iter().copied()).collect();
    ServerProcess::start(
        &Program::installed("setpriv", "util-linux"),
        &args,
        &around,
        log,
    )
}

/// The newest that is installed.
fn program(name: &str) -> String {
    let releases = fs::read_dir(RELEASES)
        .into_iter()
        .flatten()
        .filter_map(|release| Some(release.ok()?.path()));
    let newest = releases
        .map(|release| release.join("bin").join(name))
        .filter(|file| file.is_file());
    let number = |file: &PathBuf| {
        file.iter()
            .find_map(|part| part.to_str()?.parse::<u32>().ok())
    };
    let newest = newest.max_by_key(number);
    let missing = "PostgreSQL is missing: run `cargo xtask test`, which sees to it, or `apt-get install postgresql`";
    newest.as_deref().map_or_else(|| panic!("{missing}"), text)
}

fn text(path: &Path) -> String {
    path.to_str().expect("its path is text").to_owned()
}

fn output(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_else(|e| format!("(no log: {e})"))
}
