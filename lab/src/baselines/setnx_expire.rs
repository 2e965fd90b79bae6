//! `SETNX lock 1`, then `EXPIRE lock seconds`, the work, `DEL lock`.

use anyhow::Result;
use lab_servers::Reply;

use super::BaselineConfig;
use super::bare::{Polled, Server};

pub(super) struct SetnxExpire {
    server: Server,
    key: String,
    seconds: String,
}

impl SetnxExpire {
    pub(super) fn new(config: &BaselineConfig) -> Self {
        let seconds = config.lease().as_secs().to_string();
        Self {
            server: Server::new(&config.server),
            key: config.name.clone(),
            seconds,
        }
    }

    fn set(&mut self) -> Result<bool> {
        Ok(self.server.send(&["SETNX", &self.key, "1"])? == Reply::Int(1))
    }
}

impl Polled for SetnxExpire {
    fn try_once(&mut self) -> Result<bool> {
        let granted = self.set()?;
        if granted {
            self.server.send(&["EXPIRE", &self.key, &self.seconds])?;
        }
        Ok(granted)
    }

    fn begin(&mut self) -> Result<()> {
        self.set().map(drop)
    }

    fn release(&mut self) -> Result<()> {
        self.server.send(&["DEL", &self.key]).map(drop)
    }
}
