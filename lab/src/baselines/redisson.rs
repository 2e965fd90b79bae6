//! The `RLock` of Redisson itself, in a Java program.
//!
//! `isHeldByCurrentThread` needs a request to the server, and Redisson does not notify its user of
//! a loss.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::{Baseline, BaselineConfig};
use crate::RedissonPeer;

/// A program with one client of Redisson.
pub(super) struct Redisson {
    peer: RedissonPeer,
    name: String,
}

impl Redisson {
    /// Starts the program, and waits until it is connected. The lease is that of the watchdog.
    pub(super) fn new(config: &BaselineConfig) -> Result<Self> {
        let address = format!("redis://{}", config.server);
        Ok(Self {
            peer: RedissonPeer::start_at(&address, config.lease, "")?,
            name: config.name.clone(),
        })
    }

    fn request(&mut self, verb: &str, argument: &str) -> Result<String> {
        let command = format!("{verb} lock {} {argument}", self.name);
        self.peer.request(&command)
    }
}

impl Baseline for Redisson {
    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>> {
        let reply = self.request("wait", &timeout.as_millis().to_string())?;
        match reply.as_str() {
            "true" => Ok(Some(0)),
            "false" => Ok(None),
            error => bail!("{error}"),
        }
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.request("unlock", "")?;
        let is_refused = reply.contains("IllegalMonitorStateException");
        ensure!(is_refused || !reply.starts_with("error"), "{reply}");
        Ok(())
    }
}
