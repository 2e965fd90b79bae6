//! A peer that runs in a process of its own, and the CPUs on which servers and peers run.
//!
//! The time of a round trip depends on the CPUs more than on anything else. If the client runs on
//! the server's CPU, the kernel does not need to wake another one.

use std::path::Path;

use anyhow::{Context, Result};
use lab_servers::{Postgres, Redis};

use crate::peers;
use crate::workload::Workload;

/// The server's CPU.
pub(crate) const SERVER: usize = 0;

/// The CPU on which the clients run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cpus {
    /// Another CPU than the server's.
    Split,
    /// The server's CPU.
    Same,
}

/// Starts a server on its CPU. The server does not write its data to disk.
pub(crate) fn server() -> Redis {
    Redis::setup().pinned(SERVER).start()
}

/// Lets the votes of masters count that have just started, because they can have forgotten none.
pub(crate) fn new_masters(url: &str) -> String {
    format!("{url}?quarantine=off")
}

/// Starts a server of PostgreSQL whose commits are durable, and returns its URL too. leasehold's
/// grants are durable, whatever the role says.
pub(crate) fn durable_postgres() -> (Postgres, String) {
    let server = Postgres::configured(&["fsync=on", "synchronous_commit=on"]);
    let url = format!("postgres://postgres@{}/postgres", server.address());
    (server, url)
}

/// Returns the URL of the store in a folder.
pub(crate) fn file_url(folder: &Path) -> String {
    format!("file:{}", folder.join("locks").display())
}

/// Starts several processes of one peer, all on one CPU.
pub(crate) fn clients(peer: &str, count: usize, url: &str) -> Result<Vec<Client>> {
    (0..count)
        .map(|_| Client::start(peer, Cpus::Split, url))
        .collect()
}

/// A running peer, on one CPU. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Client {
    peer: String,
    process: lab::Peer,
}

impl Client {
    /// Starts a peer that sends its requests to the server at `url`.
    pub(crate) fn start(peer: &str, cpus: Cpus, url: &str) -> Result<Self> {
        let cpu = match cpus {
            Cpus::Split => SERVER + 1,
            Cpus::Same => SERVER,
        };
        let mut command = lab::Peer::command("taskset");
        command
            .args(["-c", &cpu.to_string()])
            .args(peers::command(peer)?)
            .arg(url)
            .envs(peers::environment(peer));
        Ok(Self {
            peer: peer.to_owned(),
            process: lab::Peer::start(&mut command)?,
        })
    }

    /// Runs a task in the peer and returns its reply.
    pub(crate) fn run(&mut self, task: &Workload) -> Result<Vec<u64>> {
        self.begin(task)?;
        self.end()
    }

    /// Sends a task to the peer, which begins it.
    pub(crate) fn begin(&mut self, task: &Workload) -> Result<()> {
        self.process.send(task)
    }

    /// Waits for the reply to the task that the peer has begun.
    pub(crate) fn end(&mut self) -> Result<Vec<u64>> {
        let reply: Option<Vec<u64>> = self.process.receive().context(self.peer.clone())?;
        reply.with_context(|| format!("{} does not know the task", self.peer))
    }
}
