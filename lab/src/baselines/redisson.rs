//! Redisson's `RLock` as it appears on the wire.
//!
//! It uses a hash of holds, a channel that notifies waiters of a release, and a watchdog that
//! renews at a third of the lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use lab_servers::{Raw, Reply};

use super::bare::{Server, value};
use super::{Baseline, BaselineConfig};

/// Acquires. KEYS: the lock. ARGV: the lease in ms, the holder.
///
/// Returns nil if granted, otherwise the remaining time of the current hold in ms.
const LOCK: &str = "\
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// Releases. KEYS: the lock. ARGV: the channel, the lease in ms, the holder.
///
/// Returns nil if that holder does not hold the lock.
const UNLOCK: &str = "\
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[1], '0')
return 1";

/// Renews. KEYS: the lock. ARGV: the lease in ms, the holder.
const RENEW: &str = "\
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  return redis.call('pexpire', KEYS[1], ARGV[1])
end
return 0";

pub(super) struct Redisson {
    address: String,
    server: Server,
    key: String,
    holder: String,
    millis: String,
    lease: Duration,
    /// Ends the watchdog.
    released: Arc<AtomicBool>,
}

impl Redisson {
    pub(super) fn new(config: &BaselineConfig) -> Self {
        Self {
            address: config.server.clone(),
            server: Server::new(&config.server),
            key: config.name.clone(),
            holder: format!("{}:1", value()),
            millis: config.lease_millis.to_string(),
            lease: config.lease(),
            released: Arc::default(),
        }
    }

    fn channel(&self) -> String {
        format!("redisson_lock__channel:{{{}}}", self.key)
    }

    /// Tries to acquire once.
    ///
    /// Returns the remaining time of another holder's hold, or `None` if the lock was granted.
    fn try_once(&mut self) -> Result<Option<Duration>> {
        let reply =
            self.server
                .send(&["EVAL", LOCK, "1", &self.key, &self.millis, &self.holder])?;
        Ok(match reply {
            Reply::Int(millis) => Some(Duration::from_millis(millis.try_into().unwrap_or(0))),
            _ => None,
        })
    }

    /// Starts the watchdog.
    fn watch(&mut self) {
        self.released = Arc::default();
        let released = self.released.clone();
        let mut server = Server::new(&self.address);
        let key = self.key.clone();
        let millis = self.millis.clone();
        let holder = self.holder.clone();
        let third = self.lease / 3;

        thread::spawn(move || {
            loop {
                thread::sleep(third);
                // A failed renewal is retried, and the user is not notified. The watchdog ends when
                // the hold is gone.
                let renewed = server.script_is_one(RENEW, &key, &[&millis, &holder]);
                if released.load(Relaxed) || matches!(renewed, Ok(false)) {
                    return;
                }
            }
        });
    }
}

impl Baseline for Redisson {
    fn begin(&mut self) -> Result<()> {
        self.try_once().map(drop)
    }

    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>> {
        let begun = Instant::now();
        if self.try_once()?.is_none() {
            self.watch();
            return Ok(Some(0));
        }

        let mut subscriber = Raw::connect(self.address.as_str())?;
        subscriber.request(&["SUBSCRIBE", &self.channel()])?;

        loop {
            let Some(kept) = self.try_once()? else {
                self.watch();
                return Ok(Some(0));
            };
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }

            subscriber.wait_at_most(kept.min(left).max(Duration::from_millis(1)))?;
            // With or without a message in time, the client tries again.
            let _ = subscriber.receive_reply();
        }
    }

    /// Returns `true`. `isHeldByCurrentThread` needs a request to the server, and Redisson does not
    /// notify its user of a loss.
    fn holds(&mut self) -> bool {
        true
    }

    fn release(&mut self) -> Result<()> {
        self.released.store(true, Relaxed);
        let channel = self.channel();

        self.server
            .send(&[
                "EVAL",
                UNLOCK,
                "1",
                &self.key,
                &channel,
                &self.millis,
                &self.holder,
            ])
            .map(drop)
    }
}
