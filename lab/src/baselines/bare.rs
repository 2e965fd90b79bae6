//! The parts that the baselines on Redis share: a connection, and polling.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lab_servers::{Raw, Reply};

use super::Baseline;

/// The pause between two tries of a polling lock. Articles use 10 ms to one second.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Deletes the key if it still has the caller's value.
pub(super) const COMPARE_AND_DELETE: &str = "\
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
else
  return 0
end";

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
    pub(super) fn send(&mut self, words: &[&str]) -> Result<Reply> {
        let raw = match self.raw.take() {
            Some(raw) => raw,
            None => Raw::connect(self.address.as_str())?,
        };
        self.send_on(raw, words)
    }

    fn send_on(&mut self, mut raw: Raw, words: &[&str]) -> Result<Reply> {
        raw.wait_at_most(REPLY_TIMEOUT)?;
        let reply = raw.request(words)?;
        self.raw = Some(raw);

        if let Some(error) = reply.error() {
            bail!("{words:?}: {error}");
        }
        Ok(reply)
    }

    /// Runs a script and returns whether its result is 1.
    pub(super) fn script_is_one(
        &mut self,
        script: &str,
        key: &str,
        arguments: &[&str],
    ) -> Result<bool> {
        Ok(self.send(&[&["EVAL", script, "1", key], arguments].concat())? == Reply::Int(1))
    }
}

/// A lock whose clients poll it, and which never notifies its holder of a loss.
pub(super) trait Polled {
    /// Tries to acquire once, and returns whether the lock was granted.
    fn try_once(&mut self) -> Result<bool>;

    /// Sends only the first request of a try.
    fn begin(&mut self) -> Result<()> {
        self.try_once().map(drop)
    }

    /// Releases the lock, like [`Baseline::release`].
    fn release(&mut self) -> Result<()>;
}

impl<P: Polled> Baseline for P {
    fn begin(&mut self) -> Result<()> {
        Polled::begin(self)
    }

    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>> {
        poll(timeout, || self.try_once())
    }

    fn holds(&mut self) -> bool {
        true
    }

    fn release(&mut self) -> Result<()> {
        Polled::release(self)
    }
}

/// Tries until the lock is granted or the timeout has passed.
pub(super) fn poll(
    timeout: Duration,
    mut granted: impl FnMut() -> Result<bool>,
) -> Result<Option<u64>> {
    let begun = Instant::now();

    loop {
        if granted()? {
            return Ok(Some(0));
        }
        if begun.elapsed() >= timeout {
            return Ok(None);
        }
        sleep(PAUSE);
    }
}

/// Returns a value that no other client has.
pub(super) fn value() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
