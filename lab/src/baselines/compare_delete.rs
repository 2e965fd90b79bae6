//! `SET lock value NX EX seconds` with a unique value, the work, and a script that compares the
//! value and deletes the key.

use anyhow::Result;
use lab_servers::Reply;

use super::BaselineConfig;
use super::bare::{COMPARE_AND_DELETE, Polled, Server, value};

pub(super) struct CompareDelete {
    server: Server,
    key: String,
    value: String,
    seconds: String,
}

impl CompareDelete {
    pub(super) fn new(config: &BaselineConfig) -> Self {
        let seconds = config.lease().as_secs().to_string();
        Self {
            server: Server::new(&config.server),
            key: config.name.clone(),
            value: value(),
            seconds,
        }
    }
}

impl Polled for CompareDelete {
    fn try_once(&mut self) -> Result<bool> {
        Ok(self
            .server
            .send(&["SET", &self.key, &self.value, "NX", "EX", &self.seconds])?
            == Reply::from("OK"))
    }

    fn release(&mut self) -> Result<()> {
        self.server
            .script_is_one(COMPARE_AND_DELETE, &self.key, &[&self.value])
            .map(drop)
    }
}
