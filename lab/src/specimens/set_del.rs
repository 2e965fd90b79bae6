//! `SET lock 1 NX PX milliseconds`, the work, `DEL lock`.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Reply;

use super::bare::{Server, poll};
use super::{Specimen, Terms};

pub(super) struct SetDel {
    server: Server,
    key: String,
    millis: String,
}

impl SetDel {
    pub(super) fn new(terms: &Terms) -> Self {
        Self { server: Server::new(&terms.place), key: terms.name.clone(), millis: terms.lease_millis.to_string() }
    }

    fn try_once(&mut self) -> Result<bool> {
        Ok(self.server.ask(&["SET", &self.key, "1", "NX", "PX", &self.millis])? == Reply::from("OK"))
    }
}

impl Specimen for SetDel {
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
