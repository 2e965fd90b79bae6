//! Redlock: a lock on several independent Redis servers, the masters.
//!
//! A master remembers the last token that it has granted, and grants only a larger one. So all
//! votes for a hold have the same token, and tokens rise even if the clocks do not. [`Fenced`] is
//! this format, and [`votes`](super::votes) counts the votes. `docs/protocols/redlock.md` describes
//! the protocol in steps.

mod address;
mod fenced;

use tokio::runtime::Handle;

use super::redis_examination::{self, Kind};
use super::votes::{Masters, VotingStore};
use crate::Result;
use crate::examination::Examination;
use fenced::Fenced;

/// Locks on several Redis servers, of which a minority may fail.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::Redlock};
///
/// let builder = Redlock::builder("redlock://a:6379,b:6379,c:6379")?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// The store supports mutexes only, and rejects other shares as
/// [unsupported](crate::Error::is_unsupported). The masters do not know the waiters, so
/// [`inspect`](crate::Locks::inspect) shows only the waiters of this client.
pub type Redlock = VotingStore;

/// The servers of a store, and its settings.
#[derive(Clone, Debug)]
pub struct RedlockBuilder {
    masters: Masters,
}

impl RedlockBuilder {
    /// Returns the URL without user, password and settings other than the dialect.
    #[must_use]
    pub fn url(&self) -> String {
        address::shown_url(&self.masters)
    }

    /// Examines risks to locks on the servers.
    pub(crate) async fn examine(&self) -> Result<Examination> {
        redis_examination::examine(Kind::Redlock, &self.masters.addresses).await
    }

    /// Connects. The store reconnects by itself after each broken connection.
    ///
    /// # Errors
    /// - [`is_unavailable`](crate::Error::is_unavailable) if fewer masters than a majority can be
    ///   reached.
    /// - [`is_invalid`](crate::Error::is_invalid) if two masters are the same server, or one is a
    ///   replica.
    /// - [`is_denied`](crate::Error::is_denied) and
    ///   [`is_unsupported`](crate::Error::is_unsupported) as for
    ///   [`Redis`](crate::stores::Redis).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(self) -> Result<Redlock> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<Redlock> {
        VotingStore::connect(self.masters, runtime).await
    }
}

impl VotingStore {
    /// Parses a URL.
    ///
    /// `redlock://[user[:password]@]host[:port],host[:port],…[/database]` names three to fifteen
    /// masters; `redlocks://…` connects with TLS.
    ///
    /// | setting | |
    /// |---|---|
    /// | `dialect=classic` | the format of redsync, node-redlock and others; no tokens |
    /// | `tokens=on` | with a dialect: a second key counts leasehold's tokens |
    /// | `longest-lease=60s` | the longest lease of any client; all clients set the same |
    /// | `quarantine=off` | for masters that never forget a vote (`appendfsync always`) |
    /// | `password-file`, `db`, `protocol` | as with `redis://` |
    /// | `ca`, `cert`, `key`, `server-name` | as with `redis://` |
    ///
    /// # Errors
    /// [`is_invalid`](crate::Error::is_invalid) if the URL cannot be parsed, names fewer than three
    /// masters, or names one of them twice.
    pub fn builder(url: &str) -> Result<RedlockBuilder> {
        let masters = address::parse(url)?;
        Ok(RedlockBuilder { masters })
    }
}
