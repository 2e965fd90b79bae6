//! A script that checks the key and sets it with an expiry, the work, and a script that compares the
//! value and deletes the key.

use anyhow::Result;

use super::BaselineConfig;
use super::bare::{COMPARE_AND_DELETE, Polled, Server, value};

const LOCK: &str = "\
if redis.call('exists', KEYS[1]) == 0 then
  redis.call('setex', KEYS[1], ARGV[2], ARGV[1])
  return 1
end
return 0";

pub(super) struct ExistsSetex {
    server: Server,
    key: String,
    value: String,
    seconds: String,
}

impl ExistsSetex {
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

impl Polled for ExistsSetex {
    fn try_once(&mut self) -> Result<bool> {
        self.server
            .script_is_one(LOCK, &self.key, &[&self.value, &self.seconds])
    }

    fn release(&mut self) -> Result<()> {
        self.server
            .script_is_one(COMPARE_AND_DELETE, &self.key, &[&self.value])
            .map(drop)
    }
}
