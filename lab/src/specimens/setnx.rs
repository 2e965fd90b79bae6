//! `SETNX lock 1`, the work, `DEL lock`: the lock of the first page that one finds.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Reply;

use super::bare::{Server, poll};
use super::{Specimen, Terms};

pub(super) struct Setnx {
    server: Server,
    key: String,
}

impl Setnx {
    pub(super) fn new(terms: &Terms) -> Self {
        Self { server: Server::new(&terms.place), key: terms.name.clone() }
    }

    fn try_once(&mut self) -> Result<bool> {
        Ok(self.server.ask(&["SETNX", &self.key, "1"])? == Reply::Int(1))
    }
}

impl Specimen for Setnx {
    fn begin(&mut self) -> Result<()> {
        self.try_once().map(drop)
    }

    fn acquire(&mut self, patience: Duration) -> Result<Option<u64>> {
        poll(patience, || self.try_once())
    }

    fn holds(&mut self) -> bool {
        true
    }

    fn release(&mut self) -> Result<()> {
        self.server.ask(&["DEL", &self.key]).map(drop)
    }
}
