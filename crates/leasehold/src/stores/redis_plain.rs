//! The lock that most articles and libraries describe for one Redis server: `SET NX PX` with a
//! random value.
//!
//! The name of a lock is its key, and the key expires with the lease. The server keeps no queue and
//! no history. So a waiter polls, and a server that loses a key has freed the lock.
//! `stores/votes/format/single_key.rs` is the format.

mod address;

use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;

use super::redis_examination::{self, Kind};
use super::votes::{Masters, VotingStore};
use crate::examination::Examination;
use crate::store::Extensions;
use crate::{Claim, Entered, Guarantees, LockState, Name, OnContention, Result, Standing, Store};

/// Locks on a Redis server in the format of redis-py, rslock and `SET NX PX`.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::RedisPlain};
///
/// let builder = RedisPlain::builder("redis://127.0.0.1?dialect=plain")?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// The store supports mutexes only, and rejects other shares as
/// [unsupported](crate::Error::is_unsupported). The order of waiters is not guaranteed, and a
/// crashed client's lock is free when its lease ends. The server does not know the waiters, so
/// [`inspect`](crate::Locks::inspect) shows only the waiters of this client.
#[derive(Debug)]
pub struct RedisPlain(VotingStore);

/// The address of a Redis server and the settings of the store on it.
#[derive(Clone, Debug)]
pub struct RedisPlainBuilder {
    server: Masters,
}

impl RedisPlainBuilder {
    /// Examines risks to locks on the servers.
    pub(crate) async fn examine(&self) -> Result<Examination> {
        redis_examination::examine(Kind::Plain, &self.server.addresses).await
    }

    /// Returns the URL without user, password and settings other than the dialect.
    #[must_use]
    pub fn url(&self) -> String {
        address::shown_url(&self.server)
    }

    /// Connects to the server. The store reconnects by itself whenever a connection breaks.
    ///
    /// # Errors
    /// [`is_unavailable`](crate::Error::is_unavailable), [`is_denied`](crate::Error::is_denied) and
    /// [`is_unsupported`](crate::Error::is_unsupported) as for [`Redis`](crate::stores::Redis).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(self) -> Result<RedisPlain> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<RedisPlain> {
        let store = VotingStore::connect(self.server, runtime).await?;
        Ok(RedisPlain(store))
    }
}

impl RedisPlain {
    /// Parses the URL of a server with `dialect=plain`: `redis://[user[:password]@]host[:port]`,
    /// `rediss://…` with TLS, or `redis+unix:///path/to/socket`.
    ///
    /// | setting | |
    /// |---|---|
    /// | `dialect=plain` | required |
    /// | `tokens=on` | a second key counts leasehold's tokens |
    /// | `password-file`, `ca`, `db`, `protocol` | as with `redis://` |
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if the URL is malformed, or has another dialect.
    pub fn builder(url: &str) -> Result<RedisPlainBuilder> {
        let server = address::parse(url)?;
        Ok(RedisPlainBuilder { server })
    }
}

/// The server is the only master, and its vote is the lock.
#[async_trait]
impl Store for RedisPlain {
    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.0.enter(claim, on_contention).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.0.changed(claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.0.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.0.leave(claim).await
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.0.inspect(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.0.list(prefix, count_max).await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default()
    }
}
