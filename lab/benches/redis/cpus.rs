//! Where servers and clients run. How long a round trip takes depends on it more than on anything else: a client on the
//! server's CPU needs no other to be woken.

use anyhow::Result;
use lab_servers::Redis;

use crate::client::Client;

/// The server's CPU.
const SERVER: usize = 0;

/// Which CPU the clients have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cpus {
    /// Another than the server.
    Split,
    /// The server's.
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

/// A server on its CPU, which keeps nothing on disk.
pub(crate) fn server() -> Redis {
    Redis::setup().pinned(SERVER).start()
}

/// Several processes of one peer, on one CPU.
pub(crate) fn clients(peer: &str, count: usize, cpus: Cpus, url: &str) -> Result<Vec<Client>> {
    (0..count)
        .map(|_| Client::start(peer, cpus.client(), url))
        .collect()
}
