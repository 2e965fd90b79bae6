//! A lock on one Redis server as an article has it: some requests to acquire, one to release.
//!
//! Its clients poll it, and it never notifies its holder of a loss. `KEY`, `VALUE`, `MILLIS`,
//! `SECONDS` and the names of the scripts below stand for their values.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lab_servers::{Raw, Reply};

use super::{Baseline, BaselineConfig};

/// The pause between two tries of a polling lock. Articles use 10 ms to one second.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Sets the key with an expiry if it does not exist.
const SET_IF_FREE: &str = "\
if redis.call('exists', KEYS[1]) == 0 then
  redis.call('setex', KEYS[1], ARGV[2], ARGV[1])
  return 1
end
return 0";
/// Deletes the key if it still has the caller's value.
pub(super) const COMPARE_AND_DELETE: &str = "\
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
else
  return 0
end";

pub(super) struct Recipe {
    server: Server,
    acquire: Vec<Vec<String>>,
    release: Vec<String>,
}

impl Recipe {
    pub(super) fn new(config: &BaselineConfig, acquire: &[&str], release: &str) -> Self {
        let value = value();
        Self {
            server: Server::new(&config.server),
            acquire: acquire
                .iter()
                .map(|request| words(request, config, &value))
                .collect(),
            release: words(release, config, &value),
        }
    }

    /// Tries to acquire once, and returns whether the lock was granted.
    fn try_once(&mut self) -> Result<bool> {
        let granted = self.begin_to_acquire()?;
        if granted {
            for request in &self.acquire[1..] {
                self.server.send(request)?;
            }
        }
        Ok(granted)
    }

    fn begin_to_acquire(&mut self) -> Result<bool> {
        let reply = self.server.send(&self.acquire[0])?;
        Ok(reply == Reply::Int(1) || reply == Reply::from("OK"))
    }
}

/// Returns the words of a request, with values in place of their names.
fn words(request: &str, config: &BaselineConfig, value: &str) -> Vec<String> {
    request
        .split(' ')
        .map(|word| match word {
            "KEY" => config.name.clone(),
            "VALUE" => value.to_owned(),
            "MILLIS" => config.lease.as_millis().to_string(),
            "SECONDS" => config.lease.as_secs().to_string(),
            "SET_IF_FREE" => SET_IF_FREE.to_owned(),
            "COMPARE_AND_DELETE" => COMPARE_AND_DELETE.to_owned(),
            word => word.to_owned(),
        })
        .collect()
}

impl Baseline for Recipe {
    fn begin(&mut self) -> Result<bool> {
        let has_steps = self.acquire.len() > 1;
        if has_steps {
            self.begin_to_acquire()?;
        }
        Ok(has_steps)
    }

    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>> {
        let begun = Instant::now();
        while !self.try_once()? {
            if begun.elapsed() >= timeout {
                return Ok(None);
            }
            sleep(PAUSE);
        }
        Ok(Some(0))
    }

    fn release(&mut self) -> Result<()> {
        self.server.send(&self.release).map(drop)
    }
}

/// A server. The connection is opened by the first request.
pub(super) struct Server {
    address: String,
    raw: Option<Raw>,
}

impl Server {
    pub(super) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            raw: None,
        }
    }

    /// Sends a request and returns the reply, on a new connection if the last one failed.
    pub(super) fn send(&mut self, request: &[impl AsRef<str>]) -> Result<Reply> {
        let words: Vec<&str> = request.iter().map(AsRef::as_ref).collect();
        let mut raw = match self.raw.take() {
            Some(raw) => raw,
            None => Raw::connect(self.address.as_str())?,
        };
        raw.wait_at_most(REPLY_TIMEOUT)?;
        let reply = raw.request(&words)?;
        self.raw = Some(raw);

        if let Some(error) = reply.error() {
            bail!("{words:?}: {error}");
        }
        Ok(reply)
    }
}

/// Returns a value that no other client has.
pub(super) fn value() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
