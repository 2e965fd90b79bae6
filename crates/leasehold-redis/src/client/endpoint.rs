//! The server that a link connects to.

use std::fmt;
use std::sync::Arc;

use super::address::{Address, Settings};
use super::handshake::{ServerClock, handshake};
use super::sentinel::WatchedMaster;
use super::session::{Session, Value, command};
use super::watched::Watched;
use leasehold_core::{Error, Result};

/// A server, or a role that moves from one server to another.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    /// A sentinel, or a node that names the masters of its cluster, whatever its role is.
    Seed(Address),
    /// A server with locks.
    Server(Arc<SingleServer>),
    /// A master of a cluster.
    Node(Address),
    /// The master that sentinels name.
    Master(Arc<WatchedMaster>),
}

/// A server whose name or address may come to lead to another server.
///
/// A primary that was demoted keeps its connections and refuses requests. Then all links to it
/// connect again.
#[derive(Debug)]
pub(crate) struct SingleServer {
    address: Address,
    /// The last error that showed that a connection led to the wrong server.
    refusal: Watched<Option<Error>>,
}

impl Endpoint {
    pub(crate) fn server(address: Address) -> Self {
        Self::Server(Arc::new(SingleServer {
            address,
            refusal: Watched::new(None),
        }))
    }

    /// Returns the address of the server that has the role now.
    pub(super) async fn locate(&self) -> Result<Address> {
        match self {
            Self::Master(master) => master.locate().await,
            Self::Seed(_) | Self::Server(_) | Self::Node(_) => Ok(self.address().clone()),
        }
    }

    /// Returns when another server has the role.
    pub(super) async fn moved_from(&self, address: &Address) {
        match self {
            Self::Seed(_) | Self::Server(_) | Self::Node(_) => std::future::pending().await,
            Self::Master(master) => master.moved_from(address).await,
        }
    }

    /// Returns the number of times that a connection led to the wrong server.
    pub(super) fn refusals(&self) -> u64 {
        match self {
            Self::Server(server) => server.refusal.version(),
            Self::Seed(_) | Self::Node(_) | Self::Master(_) => 0,
        }
    }

    /// Returns the error that shows that `session`, or a session of another link after `seen`
    /// refusals, leads to the wrong server.
    ///
    /// Sentinels and clusters name the right server themselves.
    pub(super) async fn refused(&self, session: &Session, seen: u64) -> Error {
        let Self::Server(server) = self else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            error = session.wrong_server() => {
                // The other links may be connected to the right server since a later refusal.
                if server.refusal.version() == seen {
                    server.refusal.set(Some(error.clone()));
                }
                error
            }
            _ = server.refusal.changed_from(seen) => {
                let error = server.refusal.borrow().clone();
                error.expect("a refusal has an error")
            }
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
            Self::Seed(_) | Self::Server(_) | Self::Master(_) => self.clone(),
        }
    }

    /// Refuses a server that does not have the role, or not yet.
    pub(super) async fn verify(&self, session: &Session) -> Result<()> {
        match self {
            Self::Seed(_) => Ok(()),
            Self::Server(_) if self.refusals() == 0 => Ok(()),
            // Not every link has a handshake.
            Self::Server(_) => Box::pin(handshake(session, &ServerClock::default())).await,
            Self::Node(_) | Self::Master(_) => verify_master(session).await,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        self.address().settings
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.address().is_encrypted()
    }

    fn address(&self) -> &Address {
        match self {
            Self::Seed(address) | Self::Node(address) => address,
            Self::Server(server) => &server.address,
            // The user and the settings for the master, without its host.
            Self::Master(master) => &master.seeds().server,
        }
    }
}

impl From<Address> for Endpoint {
    fn from(address: Address) -> Self {
        Self::Seed(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master(master) => master.seeds().fmt(f),
            Self::Seed(_) | Self::Server(_) | Self::Node(_) => self.address().fmt(f),
        }
    }
}

/// A sentinel or a node of a cluster may name a server before it is promoted, or after it was
/// demoted.
pub(super) async fn verify_master(session: &Session) -> Result<()> {
    let role: Vec<Value> = match session.request(&command("ROLE")).await {
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
