//! A real PostgreSQL server.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write, pipe};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::ensure;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::Certificates;
use crate::child::{Environment, Program, ServerProcess};
use crate::clock::Clock;
use crate::port::Port;
use crate::{DEADLINE, until};

/// Debian keeps each release in a folder of its own.
const RELEASES: &str = "/usr/lib/postgresql";
/// The folders of another release's programs, as in PATH.
const BIN: &str = "LEASEHOLD_POSTGRES_BIN";
/// The user that runs the server if the test runs as root, because the server refuses to run as
/// root. The number of this user is the same on every machine.
const UNPRIVILEGED: u32 = 65534;
const LOG: &str = "postgres.log";
/// The last line of the output of one statement.
const DONE: &str = "--done--";

/// A PostgreSQL server in a temporary folder, with a Unix socket and a free loopback port. Dropping
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
    // Declared before the folder and the port, so that the server ends before they are free.
    child: ServerProcess,
    folder: TempDir,
    port: Port,
    settings: Vec<String>,
    clock: Option<Clock>,
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
        Self::configured(&[])
    }

    /// Starts a server as [`start`](Self::start) does, with more lines of `postgresql.conf`, such as
    /// `max_connections=8`.
    #[must_use]
    pub fn configured(settings: &[&str]) -> Self {
        Self::initialised(settings, |_| {})
    }

    /// Starts a server with TLS, whose certificate is `server.crt`.
    #[must_use]
    pub fn with_tls(certificates: &Certificates) -> Self {
        // The server reads them from its data.
        Self::initialised(&["ssl=on"], |data| {
            for name in ["server.crt", "server.key"] {
                let file = data.join(name);
                fs::copy(certificates.file(name), &file).expect("the folder is ours");
                fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
                give_to_server(&file);
            }
        })
    }

    /// Starts a server whose data is on a disk of its own, which is empty.
    #[must_use]
    pub fn on_disk(disk: &Path, settings: &[&str]) -> Self {
        let folder = folder_of_server();
        give_to_server(disk);
        symlink(disk, folder.path().join("data")).expect("the folder is empty");
        Self::initialised_in(folder, settings, |_| {})
    }

    /// Starts a server with its own wall clock.
    #[must_use]
    pub fn with_own_clock() -> Self {
        let mut server = Self::start();
        let clock = Clock::make(server.host());
        for (_, file) in clock.environment() {
            give_to_server(file);
        }
        server.clock = Some(clock);
        server.restart();
        server
    }

    /// Starts a server with new data, to which `prepare` may add files.
    fn initialised(settings: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        Self::initialised_in(folder_of_server(), settings, prepare)
    }

    fn initialised_in(folder: TempDir, settings: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        initialise(folder.path());
        prepare(&folder.path().join("data"));
        Self::start_in(folder, settings.iter().map(ToString::to_string).collect())
    }

    /// Starts a server that follows this one, and which can be [promoted](Self::promote). This one
    /// does not wait for it.
    #[must_use]
    pub fn replica(&self) -> Self {
        let folder = self.backup();
        // With -R, a newer program writes options that an older server does not know.
        let primary = format!(
            "primary_conninfo = 'host={} user=postgres'\n",
            text(self.host())
        );
        for (name, line) in [("standby.signal", ""), ("postgresql.auto.conf", &*primary)] {
            let file = folder.path().join("data").join(name);
            let opened = File::options().append(true).create(true).open(&file);
            let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
            written.expect("the folder is ours");
            give_to_server(&file);
        }
        Self::start_in(folder, self.settings.clone())
    }

    /// Copies the data, for [`restart_with`](Self::restart_with).
    #[must_use]
    pub fn backup(&self) -> TempDir {
        let folder = folder_of_server();
        let data = text(&folder.path().join("data"));
        complete(
            "pg_basebackup",
            &[
                "-h",
                &text(self.host()),
                "-U",
                "postgres",
                "-D",
                &data,
                "-X",
                "stream",
                "-c",
                "fast",
                "--no-sync",
            ],
            folder.path(),
        );
        folder
    }

    /// Makes the data of an empty database, for [`restart_with`](Self::restart_with).
    #[must_use]
    pub fn empty_data() -> TempDir {
        let folder = folder_of_server();
        initialise(folder.path());
        folder
    }

    /// Makes a primary of this replica.
    pub fn promote(&self) {
        self.run("SELECT pg_promote()");
    }

    fn start_in(folder: TempDir, settings: Vec<String>) -> Self {
        let port = Port::reserve();
        // Clients find the socket at PostgreSQL's own port.
        let socket = format!(".s.PGSQL.{}", port.number());
        symlink(&socket, folder.path().join(".s.PGSQL.5432")).expect("the folder is empty");
        Self {
            child: launch(folder.path(), port.number(), &settings, None),
            folder,
            port,
            settings,
            clock: None,
        }
        .serves()
    }

    fn serves(mut self) -> Self {
        self.wait_until_ready();
        self
    }

    fn wait_until_ready(&mut self) {
        let started = until("a reply from postgres", || {
            ensure!(self.child.ended().is_none(), "the server ended instead");
            let sent_at = self
                .psql("postgres", "postgres")
                .args(["-c", "SELECT 1"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            Ok(sent_at.success().then_some(()))
        });
        started.unwrap_or_else(|e| panic!("postgres does not start: {e}\n{}", self.log()));
    }

    /// Ends the server and all its connections at once, as `pg_ctl stop -m immediate` does. The port
    /// stays reserved and refuses connections.
    pub fn stop(&mut self) {
        // Unlike SIGKILL, SIGQUIT lets the server free its shared memory.
        if self.child.ended().is_none() {
            self.resume();
            self.child.signal(Signal::QUIT);
            until("postgres to end", || Ok(self.child.ended())).expect("SIGQUIT ends it");
        }
    }

    /// Stops all processes of the server, so that it replies nothing.
    pub fn pause(&self) {
        self.child.pause();
        self.signal_backends(Signal::STOP);
    }

    /// Lets a paused server run again.
    pub fn resume(&self) {
        self.signal_backends(Signal::CONT);
        self.child.resume();
    }

    /// Each process of the server is in a session of its own. A paused server starts none.
    fn signal_backends(&self, signal: Signal) {
        let pid = self.child.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.expect("the server runs").split_whitespace() {
            let child = child
                .parse()
                .ok()
                .and_then(Pid::from_raw)
                .expect("a process id");
            // It may have ended since.
            let _ = kill_process(child, signal);
        }
    }

    /// Restarts the server on the same port and waits for its first reply. A server that still runs
    /// is stopped first.
    pub fn restart(&mut self) {
        self.stop();
        let (folder, port) = (self.folder.path(), self.port.number());
        self.child = launch(folder, port, &self.settings, self.clock.as_ref());
        self.wait_until_ready();
    }

    /// Restarts the server with other data in the place of its own.
    pub fn restart_with(&mut self, other: &TempDir) {
        self.stop();
        let data = self.folder.path().join("data");
        fs::remove_dir_all(&data).expect("the folder is ours");
        fs::rename(other.path().join("data"), &data).expect("both are on one disk");
        self.restart();
    }

    /// Restarts the server as a replica that cannot be written, or as what it was.
    pub fn restart_read_only(&mut self, on: bool) {
        self.stop();
        let signal = self.folder.path().join("data/standby.signal");
        if on {
            fs::write(&signal, "").expect("the folder is ours");
        } else {
            fs::remove_file(&signal).expect("the folder is ours");
        }
        self.restart();
    }

    /// The server's wall clock, which [`with_own_clock`](Self::with_own_clock) requested.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        let clock = self.clock.as_ref();
        clock.expect("the server was started with its own clock")
    }

    /// The time of day on the server, in microseconds since 1970.
    #[must_use]
    pub fn time(&self) -> i64 {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        self.run(now)[0].parse().expect("a number")
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

    /// The address `127.0.0.1:PORT` of the server's port, which needs no password.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Puts a line before all others of `pg_hba.conf`, such as
    /// `host all app 127.0.0.1/32 scram-sha-256`.
    pub fn require(&self, rule: &str) {
        let path = self.folder.path().join("data/pg_hba.conf");
        let rules = fs::read_to_string(&path).expect("initdb wrote it");
        fs::write(&path, format!("{rule}\n{rules}")).expect("the folder is ours");
        self.run("SELECT pg_reload_conf()");
    }

    /// Executes statements as `postgres` in a connection of their own, and returns their rows and
    /// errors as psql prints them.
    #[expect(
        clippy::must_use_candidate,
        reason = "many tests need only the effect of the statements"
    )]
    pub fn run(&self, statements: &str) -> Vec<String> {
        self.session().run(statements)
    }

    /// Returns a dump of a database as `pg_dump` writes it, without a setting that a newer one than the
    /// server writes first.
    #[must_use]
    pub fn dump(&self, database: &str) -> String {
        let dumped = Command::new(program("pg_dump"))
            .args(["-U", "postgres", "-h"])
            .arg(self.host())
            .arg(database)
            .output()
            .expect("pg_dump can be started");
        assert!(dumped.status.success(), "{dumped:?}");
        let dump = String::from_utf8(dumped.stdout).expect("a dump is text");
        dump.replace("SET transaction_timeout = 0;\n", "")
    }

    /// Opens a new connection.
    #[must_use]
    pub fn session(&self) -> PostgresSession {
        self.session_as("postgres", "postgres")
    }

    /// Opens a new connection of a role, which needs no password, to a database.
    #[must_use]
    pub fn session_as(&self, role: &str, database: &str) -> PostgresSession {
        let (output, both) = pipe().expect("a pipe can be made");
        let mut psql = self.psql(role, database);
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

    fn psql(&self, role: &str, database: &str) -> Command {
        let mut psql = Command::new("setpriv");

        psql.args([
            "--pdeathsig",
            "KILL",
            &program("psql"),
            "-XAtq",
            "-U",
            role,
            "-d",
            database,
        ]);
        psql.arg("-h").arg(self.folder.path()).stdin(Stdio::null());
        psql
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
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

/// Makes a folder that belongs to the user of the server.
pub(crate) fn folder_of_server() -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix("postgres-")
        .tempdir()
        .expect("a temporary folder can be made");
    give_to_server(folder.path());
    folder
}

/// Makes the user of the server the owner of a file or folder.
fn give_to_server(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may give it away");
    }
}

/// Starts the server whose data is in a folder.
fn launch(folder: &Path, port: u16, settings: &[String], clock: Option<&Clock>) -> ServerProcess {
    let data = text(&folder.join("data"));
    let own_settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "fsync=off".to_owned(),
        "max_connections=400".to_owned(),
        format!("unix_socket_directories={}", text(folder)),
    ];
    let args: Vec<&str> = ["-D", &data]
        .into_iter()
        .chain(
            own_settings
                .iter()
                .chain(settings)
                .flat_map(|setting| ["-c", setting]),
        )
        .collect();
    let postgres = program("postgres");
    start_unprivileged(&postgres, "postgresql", &args, clock, &folder.join(LOG))
}

/// Makes new data in a folder.
fn initialise(folder: &Path) {
    let data = text(&folder.join("data"));
    complete(
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
        folder,
    );
}

/// Runs a program of PostgreSQL to its end.
fn complete(name: &str, args: &[&str], folder: &Path) {
    let log = folder.join(LOG);
    let mut started = start_unprivileged(&program(name), "postgresql", args, None, &log);
    let status = until(name, || Ok(started.ended())).expect("it takes about a second");
    assert!(status.success(), "{name} has failed: {}", output(&log));
}

/// Starts a program that refuses to run as root.
pub(crate) fn start_unprivileged(
    program: &str,
    package: &'static str,
    args: &[&str],
    clock: Option<&Clock>,
    log: &Path,
) -> ServerProcess {
    let around = Environment { cpu: None, clock };
    if !geteuid().is_root() {
        return ServerProcess::start(&Program::installed(program, package), args, &around, log);
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
        program,
    ];
    let args: Vec<&str> = change.into_iter().chain(args.iter().copied()).collect();
    ServerProcess::start(
        &Program::installed("setpriv", "util-linux"),
        &args,
        &around,
        log,
    )
}

/// The path of a program in the folders of `LEASEHOLD_POSTGRES_BIN`, or else in the newest installed
/// release.
fn program(name: &str) -> String {
    let folders = env::var_os(BIN).unwrap_or_default();
    let mut chosen = env::split_paths(&folders).map(|folder| folder.join(name));
    if let Some(chosen) = chosen.find(|file| file.is_file()) {
        return text(&chosen);
    }

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
