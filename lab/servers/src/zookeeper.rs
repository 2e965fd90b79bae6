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
/// How long one waits for an answer of a living server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A small heap and a quick start matter here, speed in the long run does not.
const JVM: [&str; 6] = [
    "-Xms32m",
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// A ZooKeeper server of its own, in a temporary folder, on a free loopback port. Dropping it kills it.
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
    release: ZooKeeperRelease,
    cpu: Option<usize>,
    properties: Vec<String>,
    clock: Option<Clock>,
}

impl ZooKeeper {
    /// Starts one.
    #[must_use]
    pub fn start() -> Self {
        Self::setup().start()
    }

    /// A server to be set up before it is started.
    pub fn setup() -> ZooKeeperSetup {
        ZooKeeperSetup::default()
    }

    /// Where clients find it: `zookeeper://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// Where clients find it by TLS: `zookeeper+tls://localhost:PORT`.
    #[must_use]
    pub fn tls_url(&self) -> String {
        let port = self
            .spec
            .tls_port
            .as_ref()
            .expect("it was set up with TLS")
            .number();
        format!("zookeeper+tls://localhost:{port}")
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

    /// An authority that did not sign its certificate, as PEM.
    #[must_use]
    pub fn other_ca_file(&self) -> PathBuf {
        self.folder().join("other.crt")
    }

    /// The number of its process, another one after each [`restart`](Self::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Its wall clock, which [`ZooKeeperSetup::own_clock`] gave it.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.spec
            .clock
            .as_ref()
            .expect("it was set up with a clock of its own")
    }

    /// All it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.spec.log()
    }

    /// What it has logged of its data not being those of its leader.
    #[must_use]
    pub fn election_log(&self) -> Vec<String> {
        let marks = [
            "igest mismatch",
            "igests are not matching",
            "next proposal is",
        ];
        let log = self.log();
        log.lines()
            .filter(|line| marks.iter().any(|mark| line.contains(mark)))
            .map(str::to_owned)
            .collect()
    }

    /// Kills it as `kill -9` does, unless it is dead. Its port stays its own, and refuses who connects.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Starts it again at the same place, killing it first if it lives, and waits until it serves.
    pub fn restart(&mut self) {
        self.start_after_kill();
        self.serves();
    }

    /// As [`restart`](Self::restart), without waiting for what it may need others for.
    pub fn start_after_kill(&mut self) {
        self.kill();
        self.child = self.spec.start();
    }

    /// Restarts it with other counters, by path: the number that the next sequential child of the
    /// node gets.
    ///
    /// # Panics If a node is not there.
    pub fn restart_with_child_counters(&mut self, counters: &[(&str, i32)]) {
        self.kill();
        self.spec.set_child_counters(counters);
        self.restart();
    }

    /// Stops it, as `kill -STOP` does: the kernel still takes connections for it, and nothing is answered.
    pub fn pause(&self) {
        self.child.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.child.resume();
    }

    /// What it answers to a word of four letters.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn request(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(word.as_bytes())?;
        let mut printed = String::new();
        stream.read_to_string(&mut printed)?;
        Ok(printed)
    }

    /// One of the counts that `mntr` tells.
    #[must_use]
    pub fn count(&self, key: &str) -> u64 {
        let printed = self.request("mntr").expect("a living server answers");
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

    /// Makes it count from nothing again, for [`count`](Self::count).
    pub fn forget_counts(&self) {
        self.request("srst").expect("a living server answers");
    }

    /// `leader`, `follower` or `standalone`, once it serves.
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

    /// Waits until it serves.
    pub fn serves(&self) {
        let served = until("a ZooKeeper server to serve", || Ok(self.mode()));
        served.unwrap_or_else(|e| panic!("{e}:\n{}", self.log()));

        // It listens there a little later.
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
