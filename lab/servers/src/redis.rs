//! A real `redis-server`.

mod cluster;
mod raw;
mod release;
mod reply;
mod sentinels;
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
use setup::Kind;

pub use cluster::Cluster;
pub use raw::{Raw, request};
pub use release::Release;
pub use reply::Reply;
pub use sentinels::Sentinels;
pub use setup::Setup;

const CONFIGURATION: &str = "redis.conf";
const LOG: &str = "redis.log";

/// A `redis-server` in a temporary folder, with a free loopback port and a Unix socket. Dropping it
/// kills the server.
#[derive(Debug)]
pub struct Redis {
    // Declared before the folder and the ports, so that the server is killed first.
    child: ServerProcess,
    spec: LaunchSpec,
}

/// The settings and resources that a restart of the server keeps.
#[derive(Debug)]
struct LaunchSpec {
    folder: TempDir,
    port: Port,
    tls_port: Option<Port>,
    password: Option<String>,
    cpu: Option<usize>,
    release: Release,
    clock: Option<Clock>,
    kind: Kind,
}

impl Redis {
    /// Starts a server that does not save its data on disk.
    #[must_use]
    pub fn start() -> Self {
        Self::setup().start()
    }

    /// Starts a server as [`start`](Self::start) does, with more lines in its `redis.conf`.
    #[must_use]
    pub fn configured(lines: &[(&str, &str)]) -> Self {
        lines
            .iter()
            .fold(Self::setup(), |setup, (key, value)| {
                setup.config(key, value)
            })
            .start()
    }

    /// Returns a builder that configures a server before its start.
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// The URL for clients: `redis://127.0.0.1:PORT`, without the password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The URL for clients with TLS: `rediss://localhost:PORT`. The port is not
    /// [`port`](Self::port).
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port())
    }

    /// The address `127.0.0.1:PORT` of the port without TLS.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The port for clients without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.spec.port.number()
    }

    /// The port for clients with TLS, which [`Setup::tls`] opened.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.spec
            .tls_port
            .as_ref()
            .expect("the server was set up with TLS")
            .number()
    }

    /// The port at which the nodes of a cluster meet and name each other.
    fn announced_port(&self) -> u16 {
        let tls_port = self.spec.tls_port.as_ref();
        tls_port.map_or_else(|| self.port(), Port::number)
    }

    /// The path of the server's Unix socket.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.folder().join("socket")
    }

    /// The temporary folder of the server, which contains its configuration, log and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.spec.folder.path()
    }

    /// The authority that signed the server's certificate, as a PEM file.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder().join("ca.crt")
    }

    /// An authority that did not sign the server's certificate, as a PEM file. A client that trusts
    /// only this authority must refuse the server.
    #[must_use]
    pub fn other_ca_file(&self) -> PathBuf {
        self.folder().join("other.crt")
    }

    /// The id of the server's process. Each [`restart`](Self::restart) changes it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The whole log of the server.
    #[must_use]
    pub fn log(&self) -> String {
        self.spec.log()
    }

    /// Kills the server as `kill -9` does, unless it is dead. The port stays reserved and refuses
    /// connections.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Restarts the server on the same ports and waits for its first reply. A server that still
    /// runs is killed first.
    pub fn restart(&mut self) {
        self.kill();
        self.child = self.spec.start();
    }

    /// Pauses the server, as `kill -STOP` does. The kernel still accepts connections, and the
    /// server does not send replies.
    pub fn pause(&self) {
        self.child.pause();
    }

    /// Resumes the server after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.child.resume();
    }

    /// The server's wall clock, which [`Setup::own_clock`] requested.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.spec
            .clock
            .as_ref()
            .expect("the server was set up with its own clock")
    }

    /// Sets the server's clock `ahead` seconds ahead of the machine's clock, or behind it if
    /// negative.
    pub fn set_clock(&self, ahead: i64) {
        self.clock().set(ahead);
    }

    /// The time of day on the server, in microseconds since 1970.
    #[must_use]
    pub fn time(&self) -> i64 {
        let printed = self.command(&["TIME"]);
        let [seconds, micros] =
            [0, 1].map(|at| printed.texts()[at].parse::<i64>().expect("a number"));
        seconds * 1_000_000 + micros
    }

    /// Sends one request over a new connection and returns the reply.
    #[must_use = "the reply may be an error"]
    pub fn request(&self, words: &[&str]) -> Reply {
        self.try_request(words)
            .unwrap_or_else(|e| panic!("redis-server did not reply to {words:?}: {e}"))
    }

    /// Sends one request as [`request`](Self::request) does, to a server that may be dead.
    ///
    /// # Errors
    /// Fails if the server does not reply.
    pub fn try_request(&self, words: &[&str]) -> io::Result<Reply> {
        self.spec.connect()?.request(words)
    }

    /// Sends one request as [`request`](Self::request) does, and panics if the reply is an error.
    #[expect(
        clippy::must_use_candidate,
        reason = "many tests need only the effect of the command"
    )]
    pub fn command(&self, words: &[&str]) -> Reply {
        let reply = self.request(words);
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
        reply
    }

    /// Opens a connection. If the server has a password, the connection is authenticated.
    #[must_use]
    pub fn connection(&self) -> Raw {
        self.spec
            .connect()
            .expect("a living server accepts connections")
    }

    /// Opens a connection as [`connection`](Self::connection) does, through the Unix socket.
    #[must_use]
    pub fn socket_connection(&self) -> Raw<UnixStream> {
        let stream =
            UnixStream::connect(self.socket_path()).expect("a living server accepts connections");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("the timeout is not zero");
        self.spec
            .admitted(Raw::new(stream))
            .expect("a living server replies")
    }

    /// Returns one section of `INFO`.
    #[must_use]
    pub fn info(&self, section: &str) -> String {
        self.command(&["INFO", section]).text().to_owned()
    }

    /// The CPU time that the server has used since its start.
    #[must_use]
    pub fn cpu_used(&self) -> Duration {
        let printed = self.info("cpu");
        ["used_cpu_user:", "used_cpu_sys:"]
            .iter()
            .map(|key| Duration::from_secs_f64(number(&printed, key)))
            .sum()
    }

    /// Changes a setting of the running server, and of the server after each restart.
    fn set(&self, key: &str, value: &str) {
        self.command(&["CONFIG", "SET", key, value]);
        self.spec.add_line(&format!("{key} {value}"));
    }

    /// Waits until this replica follows its master and has all earlier writes of the master.
    /// Earlier means before this call.
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
    /// Starts the server and waits for its first reply.
    fn start(&self) -> ServerProcess {
        let path = self.folder.path().join(CONFIGURATION);
        let configuration = path.to_str().expect("a temporary folder has a plain name");
        let around = Environment {
            cpu: self.cpu,
            clock: self.clock.as_ref(),
        };

        let log = self.folder.path().join(LOG);
        let mut arguments = vec![configuration];
        arguments.extend((self.kind == Kind::Sentinel).then_some("--sentinel"));
        let mut child = ServerProcess::start(&self.release.program(), &arguments, &around, &log);
        let started = until("a reply from redis-server", || {
            ensure!(child.ended().is_none(), "the server ended instead");
            Ok(self.answers().then_some(()))
        });
        started.unwrap_or_else(|e| panic!("redis-server does not start: {e}\n{}", self.log()));
        child
    }

    /// Whether the server replies to `PING`. An error that demands a password counts as a reply.
    /// `LOADING` does not count, because the server is still reading its files.
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

    fn add_line(&self, line: &str) {
        let path = self.folder.path().join(CONFIGURATION);
        let text = fs::read_to_string(&path).expect("the configuration is readable");
        fs::write(path, format!("{text}{line}\n")).expect("the configuration is writable");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG))
            .unwrap_or_else(|e| format!("(no log: {e})"))
    }
}

/// Parses the number after a key of `INFO`.
fn number(printed: &str, key: &str) -> f64 {
    let value = printed.lines().find_map(|line| line.strip_prefix(key));
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {key} in {printed}"))
}
