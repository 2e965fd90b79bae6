//! The settings of the store before it is open.

use std::time::Duration;

use tokio::runtime::Handle;

use super::Redis;
use crate::client::Topology;
use crate::client::groups::CRASH_GRACE;
use crate::examination::{self, Kind};
use leasehold_core::internal::{Password, background};
use leasehold_core::store::replies;
use leasehold_core::{CrashRelease, Examination, Guarantees, Result, SemaphoreSupport};

/// The address of a Redis server and the settings of the store on it.
#[derive(Clone, Debug)]
pub struct RedisBuilder {
    pub(super) topology: Topology,
}

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

impl RedisBuilder {
    /// Returns what the store guarantees on a server that has all that crash detection needs.
    pub(crate) fn guarantees(&self) -> Guarantees {
        guarantees(self.topology.settings().crash_grace)
    }

    /// Examines risks to locks on the server.
    pub(crate) async fn examine(&self) -> Result<Examination> {
        let servers = self.topology.to_examine().await?;
        let kind = if matches!(self.topology, Topology::Cluster(_)) {
            Kind::Cluster
        } else {
            Kind::Redis
        };
        examination::examine(kind, &servers).await
    }

    /// Sets how long a holder's connection may be missing before the next claim is granted.
    ///
    /// The default is 10 s; half a second to an hour is allowed. A holder that cannot reach the
    /// server for this long loses its locks, and its guards report the loss by then.
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) if the grace is out of range.
    pub fn crash_grace(mut self, grace: Duration) -> Result<Self> {
        self.topology.settings_mut().crash_grace = Some(CRASH_GRACE.check_duration(grace)?);
        Ok(self)
    }

    /// Turns crash detection off: a crashed client's lock is free when the lease ends.
    ///
    /// A holder that cannot reach the server keeps its lock until then.
    #[must_use]
    pub fn no_crash_detection(mut self) -> Self {
        self.topology.settings_mut().crash_grace = None;
        self
    }

    /// Sets how many replicas must have a grant before the caller receives it (`WAIT`).
    ///
    /// If fewer replicas confirm the grant, the store gives it back and returns an error. This
    /// makes the loss of a lock in a failover less likely, but not impossible: the promoted replica
    /// may be one that has not confirmed the grant.
    #[must_use]
    pub fn replicas(mut self, count: u32) -> Self {
        self.topology.settings_mut().replicas = count;
        self
    }

    /// Sets a function that returns the password of each new connection, such as an access token that
    /// expires. The user is that of the URL; the password of the URL is not used.
    ///
    /// The function is called on a thread that may block, and a connection waits up to five seconds
    /// for it. A line break at the end is no part of the password, as in a password file. So a
    /// program that gets tokens from an async client keeps the latest one for the function. If the
    /// function fails, so does the connection, as [`is_unavailable`](leasehold_core::Error::is_unavailable):
    /// an open store tries again. The password is in no error and no log.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Locks, stores::Redis};
    ///
    /// let builder = Redis::builder("redis://me@host")?;
    /// let builder = builder.password_from(|| std::fs::read_to_string("/run/token"));
    /// let url = builder.url();
    /// let locks = Locks::from_store(builder.connect().await?, &url)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn password_from<E>(
        mut self,
        function: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.topology
            .set_password(Password::from_function(function));
        self
    }

    /// Returns the URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.topology.to_string()
    }

    /// Connects to the server. The store reconnects by itself whenever a connection breaks.
    ///
    /// # Errors
    /// - [`is_unavailable`](leasehold_core::Error::is_unavailable) if the server cannot be reached.
    /// - [`is_denied`](leasehold_core::Error::is_denied) if the server rejects the user.
    /// - [`is_unsupported`](leasehold_core::Error::is_unsupported) if locks are not safe on the server: it
    ///   is too old, evicts keys, does not run scripts as Redis does, or shares its data with
    ///   another master.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it opened.
    pub async fn connect(self) -> Result<Redis> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<Redis> {
        background::start()?;
        background::on_background(Redis::open(self.topology, runtime)).await
    }
}
