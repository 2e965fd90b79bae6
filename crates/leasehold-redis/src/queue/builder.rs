//! The settings of the store before it is open.

use std::time::Duration;

use async_trait::async_trait;

use super::Redis;
use crate::builder::{ServerAddress, StoreBuilder};
use crate::client::groups::CRASH_GRACE;
use crate::client::{Address, Topology};
use crate::examination::Kind;
use leasehold_core::internal::Password;
use leasehold_core::store::replies;
use leasehold_core::{CrashRelease, Guarantees, Result, SemaphoreSupport};

/// The address of a Redis server and the settings of the store on it.
pub type RedisBuilder = StoreBuilder<Redis>;

/// Returns what the store guarantees with this crash grace; `None` without crash detection.
pub(super) fn guarantees(crash_grace: Option<Duration>) -> Guarantees {
    let crash = crash_grace.map_or(CrashRelease::LeaseExpiry, replies::released_within);
    let mut guarantees = replies::guarantees(crash);
    guarantees.fifo = true;
    guarantees.tokens = true;
    guarantees.rwlock = true;
    guarantees.semaphore = SemaphoreSupport::WhileInUse;
    guarantees.lease_expiry = true;
    guarantees.cohorts = true;
    guarantees
}

impl StoreBuilder<Redis> {
    /// Sets how long a holder's connection may be missing before the next claim is granted.
    ///
    /// The default is 10 s; half a second to an hour is allowed. A holder that cannot reach the
    /// server for this long loses its locks, and its guards report the loss by then.
    ///
    /// ```
    /// use std::time::Duration;
    /// let builder = leasehold::stores::Redis::builder("redis://localhost")?;
    /// let builder = builder.crash_grace(Duration::from_secs(5))?;
    /// # drop(builder);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) if the grace is out of range.
    pub fn crash_grace(mut self, grace: Duration) -> Result<Self> {
        let grace = CRASH_GRACE.check_duration(grace)?;
        self.address.settings_mut().crash_grace = Some(grace);
        Ok(self)
    }

    /// Turns crash detection off: a crashed client's lock is free when the lease ends.
    ///
    /// A holder that cannot reach the server keeps its lock until then.
    #[must_use]
    pub fn no_crash_detection(mut self) -> Self {
        self.address.settings_mut().crash_grace = None;
        self
    }

    /// Sets how many replicas must have a grant before the caller receives it (`WAIT`).
    ///
    /// If fewer replicas confirm the grant, the store gives it back and returns an error. This
    /// makes the loss of a lock in a failover less likely, but not impossible: the promoted replica
    /// may be one that has not confirmed the grant.
    #[must_use]
    pub fn replicas(mut self, count: u32) -> Self {
        self.address.settings_mut().replicas = count;
        self
    }
}

#[async_trait]
impl ServerAddress for Topology {
    fn shown_url(&self) -> String {
        self.to_string()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(self.settings().crash_grace)
    }

    fn set_password(&mut self, password: Password) {
        self.replace_password(password);
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Cluster(_) => Kind::Cluster,
            Self::Single(_) | Self::Sentinel(_) => Kind::Redis,
        }
    }

    async fn to_examine(&self) -> Result<Vec<Address>> {
        self.examined().await
    }
}
