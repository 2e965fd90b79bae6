//! What the server knows of locks, for inspection.

use super::field::{foreign, holder};
use super::{INSPECT, LIST, Redisson};
use crate::stores::redis_client::{self, READ_TIMEOUT, ScanLimits, reply_timeout};
use crate::{LockState, Name, Result, Token};

impl Redisson {
    /// Returns the holder, of leasehold or of Redisson, and the waiters of this client.
    pub(super) async fn read_lock_state(&self, name: &Name) -> Result<LockState> {
        let lock_keys = self.mapper.keys(name)?;
        let mut keys = vec![&*lock_keys.lock];
        keys.extend(lock_keys.tokens.as_deref());

        let reply = self.run(&INSPECT, READ_TIMEOUT, &keys, &[]).await?;
        let (field, acquires, counter, other): (Vec<u8>, String, String, String) =
            redis::from_redis_value(reply).map_err(|_| self.protocol_error())?;
        if !other.is_empty() {
            return Err(foreign(&other));
        }

        let counter = counter.parse().ok().and_then(Token::new);
        let mut lock_state = LockState::new(name.clone());
        lock_state.last_token = counter;
        if !field.is_empty() {
            let entry = holder(&field, &acquires, counter);
            lock_state.last_token = counter.or(entry.token());
            lock_state.entries.push(entry);
        }
        let waiters = self.claims.waiters(&lock_keys.lock);
        lock_state.entries.extend(waiters);
        Ok(lock_state)
    }

    /// Returns the names of the locks that leasehold or Redisson holds.
    pub(super) async fn list_names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = redis_client::pattern_of(&format!("{}{prefix}", self.mapper.prefix));
        let limits = ScanLimits::new(reply_timeout(READ_TIMEOUT), count_max);
        let names = redis_client::list(
            &self.background_link,
            redis_client::Scan {
                pattern: &pattern,
                key_type: "hash",
            },
            &LIST,
            limits,
            |key: &str| self.mapper.name_of(key),
        );
        Ok(names.await?.into_iter().collect())
    }
}
