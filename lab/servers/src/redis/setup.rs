//! How a Redis server is to be.

use std::fs;
use std::io;

use tempfile::TempDir;

use super::{CONFIGURATION, LaunchSpec, Redis, Release};
use crate::certificates;
use crate::clock::Clock;
use crate::port::Port;

/// A Redis server to be started.
///
/// ```
/// use lab_servers::Redis;
///
/// let redis = Redis::setup().acl("app on >secret ~leasehold:* +@all").password("admin").start();
/// assert!(redis.connection().request(&["AUTH", "app", "wrong"])?.is_error());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it is not started yet"]
pub struct Setup {
    lines: Vec<String>,
    password: Option<String>,
    tls: bool,
    cpu: Option<usize>,
    release: Release,
    own_clock: bool,
}

impl Setup {
    /// A line of `redis.conf`: `value` stands there as it is, with quotes if it needs some.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key} {value}"));
        self
    }

    /// Keeps what is written in an append-only file, synced `always`, `everysec` or `no`.
    pub fn append_only(self, synced: &str) -> Self {
        self.config("appendonly", "yes")
            .config("appendfsync", synced)
    }

    /// Wants this password of the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.config("requirepass", &quoted(password))
    }

    /// Knows a user more: its name and its rules, as after `ACL SETUSER`.
    pub fn acl(self, user: &str) -> Self {
        self.config("user", user.strip_prefix("user ").unwrap_or(user))
    }

    /// Speaks TLS too, on a port of its own, with a certificate for `localhost` and `127.0.0.1`.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Follows a master, which must live.
    pub fn replica_of(self, master: &Redis) -> Self {
        let follows = self.config("replicaof", &format!("127.0.0.1 {}", master.port()));
        match &master.spec.password {
            Some(password) => follows.config("masterauth", &quoted(password)),
            None => follows,
        }
    }

    /// Is of this release.
    pub fn release(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Has a wall clock of its own, for [`Redis::clock`].
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Runs on one CPU only.
    pub fn pinned(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Starts it, and waits until it answers.
    #[must_use]
    pub fn start(self) -> Redis {
        let spec = self.spec().expect("a temporary folder can be written");
        Redis {
            child: spec.start(),
            spec,
        }
    }

    fn spec(self) -> io::Result<LaunchSpec> {
        let folder = tempfile::Builder::new().prefix("redis-").tempdir()?;
        let port = Port::reserve();
        let tls_port = self.tls.then(Port::reserve);
        if self.tls {
            certificates::make(folder.path());
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

/// A value of `redis.conf` that may have anything in it.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
