//! A script that looks whether the key is there and sets it with an end, the work, and a script that deletes it if the value is its
//! own.

use std::time::Duration;

use anyhow::Result;

use super::bare::{COMPARE_AND_DELETE, Server, poll, value};
use super::{Specimen, Terms};

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
    pub(super) fn new(terms: &Terms) -> Self {
        let seconds = terms.lease().as_secs().to_string();
        Self { server: Server::new(&terms.place), key: terms.name.clone(), value: value(), seconds }
    }

    fn try_once(&mut self) -> Result<bool> {
        self.server.script_is_one(LOCK, &self.key, &[&self.value, &self.seconds])
    }
}

impl Specimen for ExistsSetex {
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
        self.server.script_is_one(COMPARE_AND_DELETE, &self.key, &[&self.value]).map(drop)
    }
}
