//! The builder of a Redis server.

use std::fs;
use std::io;

use tempfile::TempDir;

use super::{CONFIGURATION, LaunchSpec, Redis, Release};
use crate::certificates::{self, Certificates};
use crate::clock::Clock;
use crate::port::Port;

/// A Redis server that is configured and not started yet.
///
/// ```
/// use lab_servers::Redis;
///
/// let redis = Redis::setup().acl("app on >secret ~leasehold:* +@all").password("admin").start();
/// assert!(redis.connection().request(&["AUTH", "app", "wrong"])?.is_error());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "the server is not started yet"]
pub struct Setup {
    lines: Vec<String>,
    password: Option<String>,
    tls: bool,
    certificates: Option<Certificates>,
    cpu: Option<usize>,
    release: Release,
    own_clock: bool,
    kind: Kind,
}

impl Setup {
    /// Adds a line to `redis.conf`. `value` is written as it is, so it includes quotes where Redis
    /// requires them.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key} {value}"));
        self
    }

    /// Saves all writes in an append-only file, which is synced `always`, `everysec` or `no`.
    pub fn append_only(self, synced: &str) -> Self {
        self.config("appendonly", "yes")
            .config("appendfsync", synced)
    }

    /// Requires this password from the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.config("requirepass", &quoted(password))
    }

    /// Adds a user, with the name and the rules in the syntax of `ACL SETUSER`.
    pub fn acl(self, user: &str) -> Self {
        self.config("user", user.strip_prefix("user ").unwrap_or(user))
    }

    /// Opens an additional port with TLS. The certificate is valid for `localhost` and `127.0.0.1`.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Opens a TLS port as [`tls`](Self::tls) does, with certificates that other servers share.
    pub fn tls_of(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self.tls()
    }

    /// Opens a TLS port as [`tls`](Self::tls) does, and accepts only clients with a certificate of
    /// the authority.
    pub fn client_certificates(self) -> Self {
        self.tls().config("tls-auth-clients", "yes")
    }

    /// Makes the server a replica of a master, which must be running.
    pub fn replica_of(self, master: &Redis) -> Self {
        let follows = self.config("replicaof", &format!("127.0.0.1 {}", master.port()));
        match &master.spec.password {
            Some(password) => follows.config("masterauth", &quoted(password)),
            None => follows,
        }
    }

    /// Runs the server as a sentinel. Its lines name the masters that it watches.
    pub(super) fn sentinel(mut self) -> Self {
        self.kind = Kind::Sentinel;
        self
    }

    /// Makes the server a node of a cluster.
    pub(super) fn cluster_node(mut self) -> Self {
        self.kind = Kind::ClusterNode;
        let node = self.config("cluster-enabled", "yes");
        if node.tls {
            node.config("tls-cluster", "yes")
                .config("tls-replication", "yes")
        } else {
            node
        }
    }

    /// Selects the release of the server.
    pub fn release(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Gives the server a separate wall clock, for [`Redis::clock`].
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Runs the server on one CPU only.
    pub fn pinned(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Starts the server and waits for its first reply.
    #[must_use]
    pub fn start(self) -> Redis {
        let spec = self.spec().expect("a temporary folder is writable");
        Redis {
            child: spec.start(),
            spec,
        }
    }

    fn spec(self) -> io::Result<LaunchSpec> {
        let folder = tempfile::Builder::new().prefix("redis-").tempdir()?;
        // The nodes of a cluster with TLS meet at their ports with TLS.
        let reserve = |is_tls: bool| match self.kind {
            Kind::ClusterNode if is_tls == self.tls => {
                Port::reserve_with_second(CLUSTER_BUS_DISTANCE)
            }
            _ => Port::reserve(),
        };
        let port = reserve(false);
        let tls_port = self.tls.then(|| reserve(true));
        match &self.certificates {
            Some(certificates) => certificates.copy_to(folder.path()),
            None if self.tls => certificates::make(folder.path()),
            None => {}
        }

        fs::write(
            folder.path().join(CONFIGURATION),
            self.configuration(&folder, &port, tls_port.as_ref()),
        )?;

        let clock = self.own_clock.then(|| Clock::make(folder.path()));
        Ok(LaunchSpec {
            folder,
            port,
            tls_port,
            password: self.password,
            cpu: self.cpu,
            release: self.release,
            clock,
            kind: self.kind,
        })
    }

    fn configuration(&self, folder: &TempDir, port: &Port, tls_port: Option<&Port>) -> String {
        let folder = folder.path().display();
        let places = format!(
            "dir {folder}\nunixsocket {folder}/socket\nport {}\n",
            port.number()
        );
        let tls = tls_port.map(|port| {
            format!(
                "tls-port {}\ntls-cert-file {folder}/server.crt\ntls-key-file {folder}/server.key\n\
                 tls-client-cert-file {folder}/client.crt\n\
                 tls-client-key-file {folder}/client.key\n\
                 tls-ca-cert-file {folder}/ca.crt\ntls-auth-clients no\n",
                port.number()
            )
        });

        [
            &self.release.base(),
            &places,
            &tls.unwrap_or_default(),
            &self.lines.join("\n"),
            "\n",
        ]
        .concat()
    }
}

/// How `redis-server` runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Server,
    Sentinel,
    ClusterNode,
}

/// A node of a cluster listens on a second port, which is higher by this number.
const CLUSTER_BUS_DISTANCE: u16 = 10_000;

/// Quotes a value for `redis.conf`. The value may contain any character.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
