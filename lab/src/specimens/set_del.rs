//! `SET lock 1 NX PX milliseconds`, the work, `DEL lock`.

use anyhow::Result;
use lab_servers::Reply;

use super::Terms;
use super::bare::{Polled, Server};

pub(super) struct SetDel {
    server: Server,
    key: String,
    millis: String,
}

impl SetDel {
    pub(super) fn new(terms: &Terms) -> Self {
        Self { server: Server::new(&terms.place), key: terms.name.clone(), millis: terms.lease_millis.to_string() }
    }
}

impl Polled for SetDel {
    fn try_once(&mut self) -> Result<bool> {
        Ok(self.server.ask(&["SET", &self.key, "1", "NX", "PX", &self.millis])? == Reply::from("OK"))
    }

    fn release(&mut self) -> Result<()> {
        self.server.ask(&["DEL", &self.key]).map(drop)
    }
}
