//! `SET lock 1 NX PX milliseconds`, the work, `DEL lock`.

use anyhow::Result;
use lab_servers::Reply;

use super::BaselineConfig;
use super::bare::{Polled, Server};

pub(super) struct SetDel {
    server: Server,
    key: String,
    millis: String,
}

impl SetDel {
    pub(super) fn new(config: &BaselineConfig) -> Self {
        Self {
            server: Server::new(&config.server),
            key: config.name.clone(),
            millis: config.lease_millis.to_string(),
        }
    }
}

impl Polled for SetDel {
    fn try_once(&mut self) -> Result<bool> {
        Ok(self
            .server
            .send(&["SET", &self.key, "1", "NX", "PX", &self.millis])?
            == Reply::from("OK"))
    }

    fn release(&mut self) -> Result<()> {
        self.server.send(&["DEL", &self.key]).map(drop)
    }
}
