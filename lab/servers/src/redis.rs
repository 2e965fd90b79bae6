//! A real `redis-server`.

mod raw;
mod release;
mod reply;
mod setup;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use tempfile::TempDir;

use crate::child::{Environment, ServerProcess};
use crate::clock::Clock;
use crate::port::Port;
use crate::until;

use raw::TIMEOUT;
pub use raw::{Raw, request};
pub use release::Release;
pub use reply::Reply;
pub use setup::Setup;

const CONFIGURATION: &str = "redis.conf";
const LOG: &str = "redis.log";

/// A `redis-server` of its own, in a temporary folder, on a free loopback port and a Unix socket. Dropping it kills it.
#[derive(Debug)]
pub struct Redis {
    // Before the folder and the ports: it is killed first.
    child: ServerProcess,
    spec: LaunchSpec,
}

/// What stays when the server is killed and started again.
#[derive(Debug)]
struct LaunchSpec {
    folder: TempDir,
    port: Port,
    tls_port: Option<Port>,
    password: Option<String>,
    cpu: Option<usize>,
    release: Release,
    clock: Option<Clock>,
}

impl Redis {
    /// Starts one that keeps nothing on disk.
    #[must_use]
    pub fn start() -> Self {
        Self::setup().start()
    }

    /// As [`start`](Self::start), with more lines in its `redis.conf`.
    #[must_use]
    pub fn configured(lines: &[(&str, &str)]) -> Self {
        lines
            .iter()
            .fold(Self::setup(), |setup, (key, value)| {
                setup.config(key, value)
            })
            .start()
    }

    /// A server to be set up before it is started.
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// Where clients find it: `redis://127.0.0.1:PORT`, without the password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Where clients find it by TLS: `rediss://localhost:PORT`, another port than [`port`](Self::port).
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port())
    }

    /// `127.0.0.1:PORT`, without TLS.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Its port for clients without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.spec.port.number()
    }

    /// Its port for clients with TLS, which [`Setup::tls`] opened.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.spec
            .tls_port
            .as_ref()
            .expect("it was set up with TLS")
            .number()
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.folder().join("socket")
    }

    /// Its temporary folder, with its configuration, its log and what it keeps.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.spec.folder.path()
    }

    /// The authority that signed its certificate, as PEM.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder().join("ca.crt")
    }

    /// An authority that did not sign its certificate, as PEM: who trusts only this one must refuse the server.
    #[must_use]
    pub fn other_ca_file(&self) -> PathBuf {
        self.folder().join("other.crt")
    }

    /// The number of its process, another one after each [`restart`](Self::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// All it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.spec.log()
    }

    /// Kills it as `kill -9` does, unless it is dead. Its port stays its own, and refuses who connects.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Asks it to end, by SIGTERM, and waits until it did.
    pub fn shutdown(&mut self) {
        self.child.terminate();
    }

    /// Starts it again at the same place, killing it first if it lives, and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        self.child = self.spec.start();
    }

    /// Stops it, as `kill -STOP` does: the kernel still takes connections for it, and nothing is answered.
    pub fn pause(&self) {
        self.child.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.child.resume();
    }

    /// Its wall clock, which [`Setup::own_clock`] gave it.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.spec
            .clock
            .as_ref()
            .expect("it was set up with a clock of its own")
    }

    /// Sets its clock ahead of the machine's by so many seconds, or behind.
    pub fn set_clock(&self, ahead: i64) {
        self.clock().set(ahead);
    }

    /// What it takes for the time of day, in microseconds.
    #[must_use]
    pub fn time(&self) -> i64 {
        let printed = self.command(&["TIME"]);
        let [seconds, micros] =
            [0, 1].map(|at| printed.texts()[at].parse::<i64>().expect("a number"));
        seconds * 1_000_000 + micros
    }

    /// Asks it one thing over a connection of its own.
    #[must_use = "an error is a reply too"]
    pub fn request(&self, words: &[&str]) -> Reply {
        self.try_request(words)
            .unwrap_or_else(|e| panic!("redis-server does not answer {words:?}: {e}"))
    }

    /// As [`request`](Self::request), of a server that may be dead.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn try_request(&self, words: &[&str]) -> io::Result<Reply> {
        self.spec.connect()?.request(words)
    }

    /// As [`request`](Self::request), and panics if it refuses.
    #[expect(
        clippy::must_use_candidate,
        reason = "what it does is often all that is wanted"
    )]
    pub fn command(&self, words: &[&str]) -> Reply {
        let reply = self.request(words);
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
        reply
    }

    /// A connection one can keep, with the password given if there is one.
    #[must_use]
    pub fn connection(&self) -> Raw {
        self.spec
            .connect()
            .expect("a living server takes connections")
    }

    /// As [`connection`](Self::connection), through its Unix socket.
    #[must_use]
    pub fn socket_connection(&self) -> Raw<UnixStream> {
        let stream =
            UnixStream::connect(self.socket_path()).expect("a living server takes connections");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a minute is something");
        self.spec
            .admitted(Raw::new(stream))
            .expect("a living server answers")
    }

    /// A section of `INFO`.
    #[must_use]
    pub fn info(&self, section: &str) -> String {
        self.command(&["INFO", section]).text().to_owned()
    }

    /// The time of a CPU it has used since it was started.
    #[must_use]
    pub fn cpu_used(&self) -> Duration {
        let printed = self.info("cpu");
        ["used_cpu_user:", "used_cpu_sys:"]
            .iter()
            .map(|key| Duration::from_secs_f64(number(&printed, key)))
            .sum()
    }

    /// Waits until this replica follows its master and has all that the master had written when this was asked.
    pub fn in_step_with(&self, master: &Self) {
        let written: f64 = number(&master.info("replication"), "master_repl_offset:");
        until("a replica to be in step", || {
            let printed = self.info("replication");
            let follows = printed.contains("master_link_status:up");
            Ok((follows && number(&printed, "slave_repl_offset:") >= written).then_some(()))
        })
        .expect("a replica follows a living master");
    }
}

impl LaunchSpec {
    /// Starts the server and waits until it answers.
    fn start(&self) -> ServerProcess {
        let configuration = self.folder.path().join(CONFIGURATION);
        let configuration = configuration
            .to_str()
            .expect("a temporary folder has a plain name");
        let around = Environment {
            cpu: self.cpu,
            clock: self.clock.as_ref(),
        };
        let log = self.folder.path().join(LOG);
        let mut child =
            ServerProcess::start(&self.release.program(), &[configuration], &around, &log);
        let started = until("redis-server to answer", || {
            ensure!(child.ended().is_none(), "it ended instead");
            Ok(self.answers().then_some(()))
        });
        started.unwrap_or_else(|e| panic!("redis-server does not start: {e}\n{}", self.log()));
        child
    }

    /// Any answer is one, also that a password is wanted, but not that it is still reading its files.
    fn answers(&self) -> bool {
        let reply = Raw::connect(self.address()).and_then(|mut raw| raw.request(&["PING"]));
        reply.is_ok_and(|reply| {
            !reply
                .error()
                .is_some_and(|error| error.starts_with("LOADING"))
        })
    }

    fn connect(&self) -> io::Result<Raw> {
        self.admitted(Raw::connect(self.address())?)
    }

    fn admitted<S: io::Read + io::Write>(&self, mut raw: Raw<S>) -> io::Result<Raw<S>> {
        if let Some(password) = &self.password {
            let reply = raw.request(&["AUTH", password])?;
            assert!(
                !reply.is_error(),
                "the password it was set up with: {reply:?}"
            );
        }
        Ok(raw)
    }

    fn address(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::LOCALHOST, self.port.number())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG))
            .unwrap_or_else(|e| format!("(no log: {e})"))
    }
}

/// The number after a key of `INFO`.
fn number(printed: &str, key: &str) -> f64 {
    let value = printed.lines().find_map(|line| line.strip_prefix(key));
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {key} in {printed}"))
}
