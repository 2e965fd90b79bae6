//! The configuration of the store, and the first connection.

use std::sync::Arc;
use std::time::Duration;

use super::ZooKeeper;
use super::address::{self, Address};
use super::claims::TrackedNodes;
use super::generation::ExhaustedNodes;
use super::supervisor::SessionSupervisor;
use crate::Result;
use crate::runtime::background;

/// A ZooKeeper store that is not connected yet.
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    address: Address,
}

impl ZooKeeperBuilder {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        Ok(Self { address })
    }

    /// Sets how long the servers keep a session without a request, from 1 s to 1 h; 10 s by
    /// default.
    ///
    /// After a crash the locks of a client are free when this time has passed. The servers may set
    /// a shorter or longer timeout: by default, they allow 2 to 20 of their ticks. The store then
    /// logs a warning.
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if the timeout is out of range.
    pub fn session(mut self, timeout: Duration) -> Result<Self> {
        self.address.settings.session = address::check_session(timeout)?;
        Ok(self)
    }

    /// Returns the URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Connects to the servers.
    ///
    /// Afterwards the store reconnects by itself, and opens a new session when the old one has
    /// ended.
    ///
    /// # Errors
    /// - [`is_unavailable`](crate::Error::is_unavailable) if no server can be reached;
    /// - [`is_denied`](crate::Error::is_denied) if the servers reject the user;
    /// - [`is_invalid`](crate::Error::is_invalid) if a file that the URL names cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> Result<ZooKeeper> {
        background::start()?;
        let address = Arc::new(self.address);
        let supervisor = Arc::new(SessionSupervisor::start(Arc::clone(&address)));
        let store = ZooKeeper {
            supervisor,
            address,
            claims: TrackedNodes::default(),
            exhausted: ExhaustedNodes::default(),
        };

        background::on_background(store.supervisor.first()).await?;
        Ok(store)
    }
}
