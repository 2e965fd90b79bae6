//! The server that a link connects to.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::address::{Address, Settings};
use super::handshake::handshake;
use super::request::command;
use super::server_info::ServerClock;
use super::session::{Session, connector};
use super::value::Value;
use leasehold_core::internal::net::{Connector, Watched};
use leasehold_core::{Error, Result};

/// A server, or a role that moves from one server to another, and what connects to it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    role: Role,
    pub(super) connector: Connector,
}

#[derive(Clone, Debug)]
enum Role {
    /// A sentinel, or a node that names the masters of its cluster, whatever its role is.
    Seed(Address),
    /// A server with locks.
    Server(Arc<SingleServer>),
    /// A master of a cluster.
    Node(Address),
    /// The master that sentinels name.
    Master(Arc<dyn Locate>),
}

/// A role that moves from one server to another.
#[async_trait]
pub(crate) trait Locate: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the user and the settings for the server, without its host.
    fn server(&self) -> &Address;

    /// Returns the address of the server that has the role now.
    async fn locate(&self) -> Result<Address>;

    /// Returns when another server has the role than the one at `address`.
    async fn moved_from(&self, address: &Address);
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
        let server = SingleServer {
            address,
            refusal: Watched::new(None),
        };
        Self::new(Role::Server(Arc::new(server)), connector())
    }

    pub(super) fn seed(address: Address, connector: Connector) -> Self {
        Self::new(Role::Seed(address), connector)
    }

    pub(super) fn node(address: Address, connector: Connector) -> Self {
        Self::new(Role::Node(address), connector)
    }

    pub(super) fn master(master: impl Locate + 'static, connector: Connector) -> Self {
        Self::new(Role::Master(Arc::new(master)), connector)
    }

    fn new(role: Role, connector: Connector) -> Self {
        Self { role, connector }
    }

    /// Returns the address of the server that has the role now.
    pub(crate) async fn locate(&self) -> Result<Address> {
        match &self.role {
            Role::Master(master) => master.locate().await,
            Role::Seed(_) | Role::Server(_) | Role::Node(_) => Ok(self.address().clone()),
        }
    }

    /// Returns when another server has the role.
    pub(super) async fn moved_from(&self, address: &Address) {
        match &self.role {
            Role::Seed(_) | Role::Server(_) | Role::Node(_) => std::future::pending().await,
            Role::Master(master) => master.moved_from(address).await,
        }
    }

    /// Returns the number of times that a connection led to the wrong server.
    pub(super) fn refusals(&self) -> u64 {
        match &self.role {
            Role::Server(server) => server.refusal.version(),
            Role::Seed(_) | Role::Node(_) | Role::Master(_) => 0,
        }
    }

    /// Returns the error that shows that `session`, or a session of another link after `seen`
    /// refusals, leads to the wrong server.
    ///
    /// Sentinels and clusters name the right server themselves.
    pub(super) async fn refused(&self, session: &Session, seen: u64) -> Error {
        let Role::Server(server) = &self.role else {
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
        match &self.role {
            Role::Node(address) => {
                let address = Address {
                    old_protocol: false,
                    ..address.clone()
                };
                Self::node(address, self.connector.clone())
            }
            Role::Seed(_) | Role::Server(_) | Role::Master(_) => self.clone(),
        }
    }

    /// Refuses a server that does not have the role, or not yet.
    pub(super) async fn verify(&self, session: &Session) -> Result<()> {
        match &self.role {
            Role::Seed(_) => Ok(()),
            Role::Server(_) if self.refusals() == 0 => Ok(()),
            // Not every link has a handshake.
            Role::Server(_) => Box::pin(handshake(session, &ServerClock::default())).await,
            Role::Node(_) | Role::Master(_) => verify_master(session).await,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        self.address().settings
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.address().is_encrypted()
    }

    fn address(&self) -> &Address {
        match &self.role {
            Role::Seed(address) | Role::Node(address) => address,
            Role::Server(server) => &server.address,
            Role::Master(master) => master.server(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            Role::Master(master) => master.fmt(f),
            Role::Seed(_) | Role::Server(_) | Role::Node(_) => self.address().fmt(f),
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
    if role.first() == Some(&Value::Text(b"master".into())) {
        return Ok(());
    }
    Err(Error::unavailable(
        "the server is not a master, or has not become one yet",
    ))
}
