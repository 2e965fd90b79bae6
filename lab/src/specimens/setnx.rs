//! `SETNX lock 1`, the work, `DEL lock`: the lock of the first page that one finds.

use anyhow::Result;
use lab_servers::Reply;

use super::Terms;
use super::bare::{Polled, Server};

pub(super) struct Setnx {
    server: Server,
    key: String,
}

impl Setnx {
    pub(super) fn new(terms: &Terms) -> Self {
        Self { server: Server::new(&terms.place), key: terms.name.clone() }
    }
}

impl Polled for Setnx {
    fn try_once(&mut self) -> Result<bool> {
        Ok(self.server.ask(&["SETNX", &self.key, "1"])? == Reply::Int(1))
    }

    fn release(&mut self) -> Result<()> {
        self.server.ask(&["DEL", &self.key]).map(drop)
    }
}
