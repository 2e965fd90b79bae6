//! The builder of a ZooKeeper server.

use std::fmt::Write;
use std::fs;

use super::{CONFIGURATION, LaunchSpec, ZooKeeper, ZooKeeperRelease};
use crate::certificates;
use crate::clock::Clock;
use crate::port::Port;

/// A ZooKeeper server that is configured and not started yet.
///
/// ```
/// use lab_servers::ZooKeeper;
///
/// let server = ZooKeeper::setup().tick(200).config("maxSessionTimeout", "4000").start();
/// assert_eq!(server.mode().as_deref(), Some("standalone"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "the server is not started yet"]
pub struct ZooKeeperSetup {
    tick_millis: u32,
    lines: Vec<String>,
    properties: Vec<String>,
    release: ZooKeeperRelease,
    tls: bool,
    cpu: Option<usize>,
    own_clock: bool,
}

impl Default for ZooKeeperSetup {
    fn default() -> Self {
        Self {
            tick_millis: 500,
            lines: Vec::new(),
            properties: Vec::new(),
            release: ZooKeeperRelease::default(),
            tls: false,
            cpu: None,
            own_clock: false,
        }
    }
}

impl ZooKeeperSetup {
    /// Sets the length of a tick in milliseconds. The default is 500. A session lasts from two to
    /// twenty ticks.
    pub fn tick(mut self, millis: u32) -> Self {
        self.tick_millis = millis;
        self
    }

    /// Selects the release of the server. The default is Debian's release.
    pub fn release(mut self, release: ZooKeeperRelease) -> Self {
        self.release = release;
        self
    }

    /// Adds a line to `zoo.cfg`.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key}={value}"));
        self
    }

    /// Sets a property of the server's Java virtual machine.
    pub fn property(mut self, key: &str, value: &str) -> Self {
        self.properties.push(format!("-D{key}={value}"));
        self
    }

    /// Opens an additional port with TLS. The certificate is valid for `localhost` and `127.0.0.1`.
    /// The server does not request certificates from clients.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self.property(
            "zookeeper.serverCnxnFactory",
            "org.apache.zookeeper.server.NettyServerCnxnFactory",
        )
    }

    /// Opens a TLS port as [`tls`](Self::tls) does, and accepts only clients with a certificate of
    /// the server's authority.
    pub fn client_certificates(self) -> Self {
        self.tls().config("ssl.clientAuth", "need")
    }

    /// Runs the server on one CPU only.
    pub fn pinned(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Gives the server a separate wall clock, for [`ZooKeeper::clock`].
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Starts the server and waits until it serves.
    #[must_use]
    pub fn start(self) -> ZooKeeper {
        let server = self.launch(Port::reserve(), None);
        server.serves();
        server
    }

    /// Starts the server. `number` is its id in an ensemble, if it is part of one.
    pub(super) fn launch(self, port: Port, number: Option<usize>) -> ZooKeeper {
        let spec = self.spec(port, number);
        ZooKeeper {
            child: spec.start(),
            spec,
        }
    }

    fn spec(self, port: Port, number: Option<usize>) -> LaunchSpec {
        let folder = tempfile::Builder::new()
            .prefix("zookeeper-")
            .tempdir()
            .expect("a temporary folder can be made");
        let tls_port = self.tls.then(Port::reserve);
        if self.tls {
            certificates::make(folder.path());
            let pem = |name: &str| {
                fs::read_to_string(folder.path().join(name)).expect("the file was just made")
            };
            // A Java key store has the key and its certificate in one file.
            let both = [pem("server.key"), pem("server.crt")].concat();
            fs::write(folder.path().join("server.pem"), both)
                .expect("a temporary folder can be written");
            fs::write(folder.path().join("authority.pem"), pem("ca.crt"))
                .expect("a temporary folder can be written");
        }

        if let Some(number) = number {
            fs::write(folder.path().join("myid"), number.to_string())
                .expect("a temporary folder can be written");
        }

        let text = self.configuration(
            &folder.path().display().to_string(),
            &port,
            tls_port.as_ref(),
        );
        fs::write(folder.path().join(CONFIGURATION), text)
            .expect("a temporary folder can be written");

        LaunchSpec {
            clock: self.own_clock.then(|| Clock::make(folder.path())),
            folder,
            port,
            tls_port,
            release: self.release,
            cpu: self.cpu,
            properties: self.properties,
        }
    }

    fn configuration(&self, folder: &str, port: &Port, tls_port: Option<&Port>) -> String {
        let tick = self.tick_millis;
        let port = port.number();
        let mut text = format!(
            "tickTime={tick}\ninitLimit=10\ndataDir={folder}\nclientPortAddress=127.0.0.1\n\
             clientPort={port}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\npreAllocSize=1024\nskipACL=no\n"
        );
        if let Some(port) = tls_port {
            let port = port.number();
            let line = format!(
                "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
                 ssl.keyStore.location={folder}/server.pem\n\
                 ssl.trustStore.location={folder}/authority.pem\n"
            );
            text.push_str(&line);
        }

        for (key, value) in [("syncLimit", "5"), ("ssl.clientAuth", "none")] {
            if !self
                .lines
                .iter()
                .any(|line| line.starts_with(&format!("{key}=")))
            {
                writeln!(text, "{key}={value}").expect("a string takes all");
            }
        }

        for line in &self.lines {
            writeln!(text, "{line}").expect("a string takes all");
        }

        text
    }
}
