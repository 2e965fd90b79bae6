//! The locks of Redisson, the library of most Java services, on one Redis server, or on
//! the master that sentinels name.
//!
//! The server keeps the holder and the lease, and no queue. A release is published on the channel
//! of the lock. So a waiter subscribes, tries again at each message, and at the end of the holder's
//! lease. docs/protocols/redisson.md has the format and the protocol.
//!
//! Redisson counts the acquires of a thread, and repeats a request after a lost reply. A claim of
//! leasehold is one field that does not count, so each request can be repeated.

mod address;
mod class;
mod enter;
mod field;
mod inspect;
mod keys;
mod local_claim;
mod requests;
mod wait;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;

use super::examination::{self, Kind};
use crate::client;
use crate::client::{
    Channels, DoHandshake, Link, LinkConfig, Links, PushHandler, READ_TIMEOUT, Scan, ServerClock,
    Session,
};
use crate::local_claims::LocalClaims;
use address::RedissonAddress;
pub(crate) use class::Class;
use keys::KeyMapper;
use leasehold_core::internal::{BootInstant, Password, background};
use leasehold_core::store::{
    Claim, Entered, Extensions, OnContention, OwnLeases, Standing, Store, check_shrinks,
};
use leasehold_core::{ClaimId, Examination, Guarantees, LockState, Name, Result};
use local_claim::{ClaimField, RedissonClaim};

/// The locks of Redisson 3.24 and newer on a Redis server: `RLock`, `RFencedLock`,
/// `RReadWriteLock` or `RPermitExpirableSemaphore`.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::Redisson};
///
/// let builder = Redisson::builder("redis://127.0.0.1?dialect=redisson")?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// The setting `lock` of the URL chooses the class. Shares that the class does not have are
/// [unsupported](leasehold_core::Error::is_unsupported). The order of waiters is not guaranteed, and a
/// crashed client's lock is free when its lease ends. The server does not know the waiters, so
/// [`inspect`](leasehold_core::Locks::inspect) shows only the waiters of this client.
#[derive(Debug)]
pub struct Redisson {
    /// The background link receives the messages of all channels.
    links: Links,
    claims: LocalClaims<ClaimField>,
    channels: Arc<Channels>,
    clock: Arc<ServerClock>,
    mapper: KeyMapper,
    watchdog: Option<Duration>,
}

/// The address of a Redis server and the settings of the store on it.
#[derive(Clone, Debug)]
pub struct RedissonBuilder {
    address: RedissonAddress,
}

impl RedissonBuilder {
    /// Sets a function that returns the password of each new connection, as
    /// [`RedisBuilder::password_from`](crate::RedisBuilder::password_from) does.
    #[must_use]
    pub fn password_from<E>(
        mut self,
        function: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let topology = &mut self.address.topology;
        topology.set_password(Password::from_function(function));
        self
    }

    /// Returns the URL without user, password and settings other than those of the format.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.shown_url()
    }

    /// Returns what the store guarantees.
    pub(crate) fn guarantees(&self) -> Guarantees {
        self.address.mapper.class.guarantees()
    }

    /// Examines risks to locks on the server.
    pub(crate) async fn examine(&self) -> Result<Examination> {
        let servers = self.address.topology.to_examine().await?;
        let kind = Kind::Redisson(self.address.mapper.class);
        examination::examine(kind, &servers).await
    }

    /// Connects to the server. The store reconnects by itself whenever a connection breaks.
    ///
    /// # Errors
    /// [`is_unavailable`](leasehold_core::Error::is_unavailable), [`is_denied`](leasehold_core::Error::is_denied) and
    /// [`is_unsupported`](leasehold_core::Error::is_unsupported) as for [`Redis`](crate::Redis).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(self) -> Result<Redisson> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<Redisson> {
        background::start()?;
        background::on_background(Redisson::open(self.address, runtime)).await
    }
}

impl Redisson {
    /// Parses the URL of a server with `dialect=redisson`:
    /// `redis://[user[:password]@]host[:port]`, `rediss://…` with TLS, or
    /// `redis+unix:///path/to/socket`. On sentinels it is `redis+sentinel://s1,s2,s3/mymaster`.
    ///
    /// | setting | |
    /// |---|---|
    /// | `dialect=redisson` | required |
    /// | `lock=plain` | `RLock`, the default |
    /// | `lock=fenced` | `RFencedLock`: its tokens are leasehold's |
    /// | `lock=rw` | `RReadWriteLock`: a mutex is its write lock |
    /// | `lock=semaphore` | `RPermitExpirableSemaphore`: a mutex is a semaphore of one permit |
    /// | `watchdog=30s` | the lease of holds that are renewed, as `lockWatchdogTimeout` |
    /// | `prefix=app:` | put before each name, as by a `NameMapper` |
    /// | `ca`, `cert`, `key`, `server-name` | as with `redis://` |
    /// | `password-file`, `db`, `protocol` | as with `redis://` |
    /// | `sentinel-user`, `sentinel-password-file`, `address-map` | as with `redis+sentinel://` |
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) if the URL is malformed, or has another dialect.
    pub fn builder(url: &str) -> Result<RedissonBuilder> {
        let address = RedissonAddress::parse(url)?;
        Ok(RedissonBuilder { address })
    }

    async fn open(address: RedissonAddress, runtime: Option<Handle>) -> Result<Self> {
        let client = client::fresh_client();
        let clock = Arc::<ServerClock>::default();
        let channels = Arc::<Channels>::default();

        let endpoint = address
            .topology
            .endpoint()
            .expect("the URL of a cluster is refused");
        let link = |purpose: &str| LinkConfig {
            handshake: handshake(Arc::clone(&clock)),
            ..LinkConfig::new(endpoint.clone(), format!("leasehold:{purpose}:{client}"))
        };
        let store = Self {
            links: Links {
                caller: Link::spawn(LinkConfig {
                    runtime,
                    ..link("inbox")
                }),
                background: Link::spawn(LinkConfig {
                    on_push: notify(Arc::clone(&channels)),
                    ..link("far")
                }),
            },
            claims: LocalClaims::default(),
            channels,
            clock,
            mapper: address.mapper,
            watchdog: address.watchdog,
        };
        store.links.first().await?;
        Ok(store)
    }

    /// Returns the state of a claim that this store supports.
    fn begin(&self, claim: &Claim) -> Result<Arc<RedissonClaim>> {
        self.mapper.class.check(claim.share)?;
        self.check_lease(claim)?;
        let keys = self.mapper.keys(&claim.name)?;
        // The timeouts of requests follow the lease that the server has.
        let mut kept = claim.clone();
        kept.lease = self.store_lease(claim);
        let local = self.claims.begin(&kept, ClaimField::new(keys));
        check_shrinks(claim.share, local.share())?;
        Ok(local)
    }
}

#[async_trait]
impl Store for Redisson {
    fn guarantees(&self) -> Guarantees {
        self.mapper.class.guarantees()
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let local = self.begin(claim)?;
        let found = self
            .find_entered(&local, claim.share, on_contention)
            .await?;
        match found {
            Some(standing) => Ok(Entered::new(standing, self.store_lease(claim))),
            None => self.enter_first(&local, claim.share, on_contention).await,
        }
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let Some(local) = self.claims.get(claim.id) else {
            return Ok(Standing::Gone);
        };
        match (local.standing(), seen) {
            (Standing::Held { token }, Standing::Held { token: seen }) if token == seen => {
                self.wait_for_loss(&local, token).await
            }
            (Standing::Queued { .. }, Standing::Queued { .. }) => self.wait_for_grant(&local).await,
            (standing, _) => Ok(standing),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let sent_at = BootInstant::now();
        let known: Vec<_> = claims
            .iter()
            .map(|claim| self.claims.get(claim.id))
            .collect();
        let held: Vec<_> = known
            .iter()
            .flatten()
            .filter(|local| local.standing().token().is_some())
            .cloned()
            .collect();
        let renewed: HashMap<ClaimId, bool> = held
            .iter()
            .map(|local| local.claim.id)
            .zip(self.renew_held(&held).await?)
            .collect();

        let mut leases = Vec::with_capacity(claims.len());
        for local in known {
            leases.push(match local {
                None => None,
                Some(local) => match renewed.get(&local.claim.id) {
                    None => self.renew_waiting(&local, sent_at).await?,
                    Some(true) => Some(self.store_lease(&local.claim)),
                    Some(false) => {
                        self.claims.gone(&local);
                        None
                    }
                },
            });
        }
        Ok(leases)
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let local = self.claims.close(claim.id);
        let has_waited = local.as_ref().is_some_and(|local| local.has_waited());
        let held = self.unlock(claim, local.as_ref()).await?;
        self.claims.forget(claim.id);
        Ok(held || has_waited)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let keys = self.mapper.keys(name)?;
        let script = &self.mapper.class.scripts().inspect;
        let reply = self
            .run(script, READ_TIMEOUT, &keys.to_inspect(), &[])
            .await?;
        let mut lock_state = self.parse_inspected(reply)?.lock_state(name);

        lock_state.entries.extend(self.claims.waiters(name));
        Ok(lock_state)
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = client::pattern_of(&self.mapper.listed_prefix(prefix));
        let scripts = self.mapper.class.scripts();
        let scan = Scan {
            pattern: &pattern,
            key_type: scripts.key_type,
            script: &scripts.list,
            count_max,
        };
        let names = client::list(&self.links.background, scan, |key: &str| {
            let name = self.mapper.name_of(key);
            name.filter(|name| name.as_str().starts_with(prefix))
        });
        Ok(names.await?.into_iter().collect())
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default().with_own_leases(self)
    }
}

impl OwnLeases for Redisson {
    fn lease_of(&self, claim: &Claim) -> Duration {
        self.store_lease(claim)
    }
}

fn handshake(clock: Arc<ServerClock>) -> DoHandshake {
    Arc::new(move |session: Arc<Session>| {
        let clock = Arc::clone(&clock);
        Box::pin(async move {
            client::handshake(&session, &clock).await?;
            Ok(None)
        })
    })
}

fn notify(channels: Arc<Channels>) -> PushHandler {
    Arc::new(move |channel, _| channels.notify(channel))
}
