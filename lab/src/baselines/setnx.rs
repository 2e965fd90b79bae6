//! `SETNX lock 1`, the work, `DEL lock`: the lock that the first search result shows.

use anyhow::Result;
use lab_servers::Reply;

use super::BaselineConfig;
use super::bare::{Polled, Server};

pub(super) struct Setnx {
    server: Server,
    key: String,
}

impl Setnx {
    pub(super) fn new(config: &BaselineConfig) -> Self {
        Self {
            server: Server::new(&config.server),
            key: config.name.clone(),
        }
    }
}

impl Polled for Setnx {
    fn try_once(&mut self) -> Result<bool> {
        Ok(self.server.send(&["SETNX", &self.key, "1"])? == Reply::Int(1))
    }

    fn release(&mut self) -> Result<()> {
        self.server.send(&["DEL", &self.key]).map(drop)
    }
}
