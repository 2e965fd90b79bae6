//! The CPUs on which servers and clients run.
//!
//! The time of a round trip depends on the CPUs more than on anything else. If the client runs on
//! the server's CPU, the kernel does not need to wake another one.

use anyhow::Result;
use lab_servers::Redis;

use crate::client::Client;

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

impl Cpus {
    pub(crate) fn client(self) -> usize {
        match self {
            Self::Split => SERVER + 1,
            Self::Same => SERVER,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Same => "same",
        }
    }
}

/// Starts a server on its CPU. The server does not write its data to disk.
pub(crate) fn server() -> Redis {
    Redis::setup().pinned(SERVER).start()
}

/// Starts several processes of one peer, all on one CPU.
pub(crate) fn clients(peer: &str, count: usize, cpus: Cpus, url: &str) -> Result<Vec<Client>> {
    (0..count)
        .map(|_| Client::start(peer, cpus.client(), url))
        .collect()
}
