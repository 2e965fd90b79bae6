//! A real ZooKeeper server, and an ensemble of three.

mod ensemble;
mod release;
mod sessions;
mod setup;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::child::{Environment, Program, ServerProcess};
use crate::clock::Clock;
use crate::port::Port;
use crate::until;

pub use ensemble::Ensemble;
pub use release::ZooKeeperRelease;
pub use setup::ZooKeeperSetup;

const CONFIGURATION: &str = "zoo.cfg";
const LOG: &str = "zookeeper.log";
/// The timeout of a reply from a living server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Options for a small heap and a quick start. Long-term speed does not matter in tests.
const JVM: [&str; 6] = [
    "-Xms32m",
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// A ZooKeeper server in a temporary folder, on a free loopback port. Dropping it kills the server.
///
/// ```
/// use lab_servers::ZooKeeper;
///
/// let mut server = ZooKeeper::start();
/// assert_eq!(server.request("ruok").expect("it lives"), "imok");
/// server.kill();
/// server.restart();
/// assert_eq!(server.count("zk_ephemerals_count"), 0);
/// ```
#[derive(Debug)]
pub struct ZooKeeper {
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
    release: ZooKeeperRelease,
    cpu: Option<usize>,
    properties: Vec<String>,
    clock: Option<Clock>,
}

impl ZooKeeper {
    /// Starts a server with the default settings.
    #[must_use]
    pub fn start() -> Self {
        Self::setup().start()
    }

    /// The server's wall clock, which [`ZooKeeperSetup::own_clock`] requested.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        let clock = self.spec.clock.as_ref();
        clock.expect("the server was set up with its own clock")
    }

    /// Returns a builder that configures a server before its start.
    pub fn setup() -> ZooKeeperSetup {
        ZooKeeperSetup::default()
    }

    /// The URL for clients: `zookeeper://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// The URL for clients with TLS: `zookeeper+tls://localhost:PORT`.
    #[must_use]
    pub fn tls_url(&self) -> String {
        let port = self
            .spec
            .tls_port
            .as_ref()
            .expect("the server was set up with TLS")
            .number();
        format!("zookeeper+tls://localhost:{port}")
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

    /// An authority that did not sign the server's certificate, as a PEM file.
    #[must_use]
    pub fn other_ca_file(&self) -> PathBuf {
        self.folder().join("other.crt")
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

    /// Restarts the server on the same ports and waits until it serves. A server that still runs is
    /// killed first.
    pub fn restart(&mut self) {
        self.start_after_kill();
        self.serves();
    }

    /// Restarts the server as [`restart`](Self::restart) does, without waiting until it serves. In
    /// an ensemble the server may need the others to serve.
    pub fn start_after_kill(&mut self) {
        self.kill();
        self.child = self.spec.start();
    }

    /// Restarts the server with other child counters, by path. A counter is the number that the
    /// next sequential child of the node gets.
    ///
    /// # Panics
    /// Panics if a node does not exist.
    pub fn restart_with_child_counters(&mut self, counters: &[(&str, i32)]) {
        self.kill();
        self.spec.set_child_counters(counters);
        self.restart();
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

    /// Sends a four-letter word and returns the reply.
    ///
    /// # Errors
    /// Fails if the server does not reply.
    pub fn request(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(word.as_bytes())?;
        let mut printed = String::new();
        stream.read_to_string(&mut printed)?;
        Ok(printed)
    }

    /// Returns one of the counts in the reply to `mntr`.
    #[must_use]
    pub fn count(&self, key: &str) -> u64 {
        let printed = self.request("mntr").expect("a living server replies");
        let found = printed.lines().find_map(|line| {
            line.strip_prefix(key)?
                .trim()
                .split('.')
                .next()?
                .parse()
                .ok()
        });
        found.unwrap_or_else(|| panic!("no {key} in:\n{printed}"))
    }

    /// Returns `leader`, `follower` or `standalone`, once the server serves.
    #[must_use]
    pub fn mode(&self) -> Option<String> {
        let printed = self.request("srvr").ok()?;
        Some(
            printed
                .lines()
                .find_map(|line| line.strip_prefix("Mode: "))?
                .to_owned(),
        )
    }

    /// Waits until the server serves.
    pub fn serves(&self) {
        let served = until("a ZooKeeper server to serve", || Ok(self.mode()));
        served.unwrap_or_else(|e| panic!("{e}:\n{}", self.log()));

        // The server opens the TLS port a little later.
        let Some(port) = &self.spec.tls_port else {
            return;
        };
        let connect = || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port.number())).ok());
        until("a ZooKeeper server to serve with TLS", connect)
            .unwrap_or_else(|e| panic!("{e}:\n{}", self.log()));
    }
}

impl LaunchSpec {
    fn start(&self) -> ServerProcess {
        let program = Program::installed("java", "default-jre-headless");
        let configuration = self.folder.path().join(CONFIGURATION).display().to_string();
        let jars = self.release.jars();
        let main = [
            "-cp",
            &jars,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &configuration,
        ];

        let properties = self.properties.iter().map(String::as_str);
        let args: Vec<&str> = JVM.into_iter().chain(properties).chain(main).collect();
        let around = Environment {
            cpu: self.cpu,
            clock: self.clock.as_ref(),
        };
        ServerProcess::start(&program, &args, &around, &self.folder.path().join(LOG))
    }

    fn set_child_counters(&self, counters: &[(&str, i32)]) {
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/zookeeper/ChildCounter.java"
        );
        let mut java = Command::new("java");
        java.args(["-cp", &self.release.jars(), program])
            .arg(self.folder.path());
        for (path, number) in counters {
            java.args([path, &*number.to_string()]);
        }

        let output = java
            .output()
            .expect("java is missing: `apt-get install default-jdk-headless`");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }
}
