//! The server that a link connects to.

use std::fmt;
use std::sync::Arc;

use redis::Value;

use super::address::{Address, Settings};
use super::sentinel::WatchedMaster;
use super::session::Session;
use leasehold_core::{Error, Result};

/// A server, or a role that moves from one server to another.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    Server(Address),
    /// A master of a cluster.
    Node(Address),
    /// The master that sentinels name.
    Master(Arc<WatchedMaster>),
}

impl Endpoint {
    /// Returns the address of the server that has the role now.
    pub(super) async fn locate(&self) -> Result<Address> {
        match self {
            Self::Server(address) | Self::Node(address) => Ok(address.clone()),
            Self::Master(master) => master.locate().await,
        }
    }

    /// Returns when another server has the role.
    pub(super) async fn moved_from(&self, address: &Address) {
        match self {
            Self::Server(_) | Self::Node(_) => std::future::pending().await,
            Self::Master(master) => master.moved_from(address).await,
        }
    }

    /// Returns the endpoint for a connection that carries notifications only.
    ///
    /// The links to a node have a connection for requests and one for notifications, by RESP2.
    /// Where no other request is sent, RESP3 serves with one.
    pub(crate) fn for_notifications(&self) -> Self {
        match self {
            Self::Node(address) => Self::Node(Address {
                old_protocol: false,
                ..address.clone()
            }),
            Self::Server(_) | Self::Master(_) => self.clone(),
        }
    }

    /// Refuses a server that does not have the role, or not yet.
    pub(super) async fn verify(&self, session: &Session) -> Result<()> {
        match self {
            Self::Server(_) => Ok(()),
            Self::Node(_) | Self::Master(_) => verify_master(session).await,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        self.server().settings
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.server().is_encrypted()
    }

    fn server(&self) -> &Address {
        match self {
            Self::Server(address) | Self::Node(address) => address,
            // The user and the settings for the master, without its host.
            Self::Master(master) => &master.seeds().server,
        }
    }
}

impl From<Address> for Endpoint {
    fn from(address: Address) -> Self {
        Self::Server(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(address) | Self::Node(address) => address.fmt(f),
            Self::Master(master) => master.seeds().fmt(f),
        }
    }
}

/// A sentinel or a node of a cluster may name a server before it is promoted, or after it was
/// demoted.
pub(super) async fn verify_master(session: &Session) -> Result<()> {
    let role: Vec<Value> = match session.request(&redis::cmd("ROLE")).await {
        // Without the right, the handshake reads the role in INFO.
        Err(error) if error.is_denied() => return Ok(()),
        role => role?,
    };
    if role.first() == Some(&Value::BulkString(b"master".into())) {
        return Ok(());
    }
    Err(Error::unavailable(
        "the server is not a master, or has not become one yet",
    ))
}
