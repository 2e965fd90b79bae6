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
/// The user that runs the server if the test runs as root, because the server refuses to run as
/// root. The number of this user is the same on every machine.
const UNPRIVILEGED: u32 = 65534;
const LOG: &str = "postgres.log";
/// The last line of the output of one statement.
const DONE: &str = "--done--";

/// A PostgreSQL server in a temporary folder. Clients reach it through a Unix socket only. Dropping
/// it ends the server.
///
/// ```
/// use lab_servers::Postgres;
///
/// let postgres = Postgres::start();
/// assert_eq!(postgres.session().run("SELECT 3 + 4"), ["7"]);
/// ```
#[derive(Debug)]
pub struct Postgres {
    // Declared before the folder, so that the server ends before the folder is removed.
    child: ServerProcess,
    folder: TempDir,
}

/// A connection through psql, which executes one statement after another, including transactions.
/// Dropping it closes the connection.
#[derive(Debug)]
pub struct PostgresSession {
    psql: process::Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Postgres {
    /// Starts a server with an empty database. The server does not sync its data, so the database
    /// may not survive a loss of power.
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

        let spec = text(folder.path());
        let data = text(&folder.path().join("data"));
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
        let status =
            until("initdb to end", || Ok(made.ended())).expect("initdb takes about a second");
        assert!(
            status.success(),
            "initdb did not create a database: {}",
            output(&log)
        );

        let settings = [
            "listen_addresses=",
            "fsync=off",
            "max_connections=400",
            &format!("unix_socket_directories={spec}"),
        ];
        let args: Vec<&str> = ["-D", &data]
            .into_iter()
            .chain(settings.iter().flat_map(|setting| ["-c", setting]))
            .collect();
        let server = Self {
            child: run("postgres", &args, &log),
            folder,
        };
        server.serves()
    }

    fn serves(mut self) -> Self {
        let started = until("a reply from postgres", || {
            ensure!(self.child.ended().is_none(), "the server ended instead");
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

    /// The whole log of the server.
    #[must_use]
    pub fn log(&self) -> String {
        output(&self.folder.path().join(LOG))
    }

    /// The folder of the server's Unix socket, which clients use as the host. The user and the
    /// database are both named `postgres`.
    #[must_use]
    pub fn host(&self) -> &Path {
        self.folder.path()
    }

    /// The URL for clients: `postgres://postgres@/postgres?host=FOLDER`.
    #[must_use]
    pub fn url(&self) -> String {
        let folder = self.host().display();
        format!("postgres://postgres@/postgres?host={folder}")
    }

    /// Opens a new connection.
    #[must_use]
    pub fn session(&self) -> PostgresSession {
        let (output, both) = pipe().expect("a pipe can be made");
        let mut psql = self.psql();
        psql.stdin(Stdio::piped())
            .stdout(both.try_clone().expect("a pipe can be shared"))
            .stderr(both);

        let mut child = psql.spawn().expect("psql can be started");
        // Only the child now holds the writing ends of the pipe. So the output ends when the child
        // ends.
        drop(psql);

        let (printed, lines) = channel();
        thread::spawn(move || {
            // The channel has no receiver after the session is dropped.
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| printed.send(line).ok())
        });
        PostgresSession {
            input: child.stdin.take().expect("the stdin of psql is a pipe"),
            psql: child,
            output: lines,
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
        // SIGQUIT ends the server at once. Unlike SIGKILL, it lets the server free its shared
        // memory first.
        if self.child.ended().is_none() {
            self.child.signal(Signal::QUIT);
            // If the server does not end in time, dropping `child` kills it.
            let _ = until("postgres to end", || Ok(self.child.ended()));
        }
    }
}

impl PostgresSession {
    /// Executes a statement and returns its rows and errors as psql prints them.
    ///
    /// # Panics
    /// Panics if psql has ended, or does not print anything for two minutes.
    pub fn run(&mut self, statement: &str) -> Vec<String> {
        self.send(statement);
        self.read_reply()
    }

    /// Sends a statement that may have to wait. [`read_reply`](Self::read_reply) returns its
    /// result.
    ///
    /// # Panics
    /// Panics if psql has ended.
    pub fn send(&mut self, statement: &str) {
        write!(self.input, "{statement};\n\\echo {DONE}\n").expect("psql is running");
    }

    /// Returns the result of the statement that was sent.
    ///
    /// # Panics
    /// Panics if psql has ended, or does not print anything for two minutes.
    #[must_use]
    pub fn read_reply(&mut self) -> Vec<String> {
        let line = || {
            self.output
                .recv_timeout(DEADLINE)
                .expect("psql sends a line")
        };
        std::iter::repeat_with(line)
            .take_while(|line| line != DONE)
            .collect()
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        // Both calls fail only if psql has already ended, which is the aim.
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

/// Starts a PostgreSQL program as a user that may run it.
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
    // A change of user clears the parent's death signal, so a second `setpriv` sets the signal
    // again.
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

/// The path of a program in the newest installed release.
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
    let missing = "PostgreSQL is missing: run `cargo xtask test`, which installs it, \
                   or `apt-get install postgresql`";
    newest.as_deref().map_or_else(|| panic!("{missing}"), text)
}

fn text(path: &Path) -> String {
    path.to_str().expect("the path is UTF-8").to_owned()
}

fn output(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_else(|e| format!("(no log: {e})"))
}
