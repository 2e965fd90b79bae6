//! The store on a Redis server.
//!
//! Scripts (`redis/lua/`) keep the queue of a name. They grant, hand over and expire in one atomic
//! step; docs/protocols/redis.md has the protocol in numbered steps.
//!
//! A client has two links to the server, or to each master of a cluster:
//!
//! - The *caller link* runs on the runtime in which the store was opened, so that a request does
//!   not switch threads. It carries requests and receives the notifications of grants.
//! - The *background link* runs on the background thread. It renews claims and serves callers on
//!   other runtimes. Its subscription is the proof that the client is alive.

mod builder;
mod claim_state;
mod claims;
mod enter;
mod enter_reply;
mod failover;
mod inspect;
mod keys;
mod layout;
mod leave;
mod liveness;
mod observations;
mod orphans;
mod push;
mod record;
mod renewal;
mod replication;
mod scripts;
mod server;
mod subscription;
#[cfg(test)]
mod tests;
mod wait;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::Value;
use tokio::runtime::Handle;

use crate::store::Extensions;
use crate::stores::redis_client::{
    self, Epochs, Script, ServerCall, Settings, StoreServers, Topology, reply_timeout,
};
use crate::{
    Claim, CrashDetection, Entered, Error, Guarantees, LockState, Name, OnContention, Result,
    Slots, Standing, Store,
};
use claims::Claims;
use keys::LockKeys;
use liveness::CrashDetectionMode;
use observations::Observations;
use orphans::Orphans;
use record::Nonces;
use server::{Server, StoreContext};

pub use builder::RedisBuilder;

/// Locks on a Redis server, 6.2 or newer, or Valkey.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let builder = leasehold::stores::Redis::builder("redis://127.0.0.1")?;
/// let builder = builder.crash_grace(Duration::from_secs(2))?;
/// let url = builder.url();
/// let locks = leasehold::Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// All keys begin with `leasehold:{`, and all of them expire. The key of a name expires a day after
/// the last lease, or two days after the last claim was queued.
#[derive(Debug)]
pub struct Redis {
    servers: Arc<StoreServers<Server>>,
    claims: Arc<Claims>,
    orphans: Orphans,
    observations: Observations,
    nonces: Nonces,
    settings: Settings,
    crash_detection: Arc<CrashDetectionMode>,
    /// In milliseconds, if a master waits after a failover.
    longest_lease: Option<Arc<str>>,
}

impl Redis {
    /// Parses the URL of a server: `redis://[user[:password]@]host[:port][/database]`,
    /// `rediss://…` with TLS, or `redis+unix:///path/to/socket`.
    ///
    /// | setting | meaning |
    /// |---|---|
    /// | `crash-grace=10s` | see [`RedisBuilder::crash_grace`]; `off` turns detection off |
    /// | `replicas=1` | see [`RedisBuilder::replicas`] |
    /// | `password-file=/path` | a file with the password, read again for every connection |
    /// | `ca=/path` | the authority to trust instead of the system's, in PEM; `rediss` only |
    /// | `cert=/path`, `key=/path` | the client's certificate and its key, in PEM; `rediss` only |
    /// | `server-name=name` | the name in the server's certificate; `rediss` only |
    /// | `db=3` | the database, for a URL whose path names a socket |
    /// | `protocol=2` | RESP2, for proxies that accept RESP3 but do not implement it |
    ///
    /// `redis+cluster://[user[:password]@]node,node,…` and `rediss+cluster://…` name some nodes of
    /// a Redis Cluster.
    ///
    /// `redis+sentinel://[user[:password]@]sentinel,sentinel,…/master` and `rediss+sentinel://…`
    /// name a master that may move to another server. User and password are those of the servers.
    ///
    /// | setting | meaning |
    /// |---|---|
    /// | `after-failover=wait` | a new master grants nothing for the longest lease |
    /// | `longest-lease=60s` | the longest lease of this client; the largest of all counts |
    /// | `sentinel-user=name` | the user on the sentinels |
    /// | `sentinel-password-file=/path` | a file with the password of the sentinels |
    /// | `address-map=a:1=b:2,…` | where servers are reached that announce another address |
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the URL is malformed.
    pub fn builder(url: &str) -> Result<RedisBuilder> {
        RedisBuilder::parse(url)
    }

    async fn open(topology: Topology, runtime: Option<Handle>) -> Result<Self> {
        let settings = topology.settings();
        let claims = Arc::<Claims>::default();
        let crash_detection = Arc::<CrashDetectionMode>::default();
        let longest_lease = failover::longest_lease(settings);

        let servers = Arc::new_cyclic(|servers| {
            let orphans = Orphans::new(Weak::clone(servers), longest_lease.clone());
            let shared = StoreContext {
                claims: Arc::clone(&claims),
                orphans,
                crash_detection: Arc::clone(&crash_detection),
                server_id: Arc::default(),
                settings,
                runtime,
                caller_epochs: Epochs::default(),
                background_epochs: Epochs::default(),
            };
            let connect = move |endpoint| Server::connect(endpoint, &shared);
            StoreServers::new(topology, Box::new(connect))
        });

        let store = Self {
            orphans: Orphans::new(Arc::downgrade(&servers), longest_lease.clone()),
            servers,
            claims,
            observations: Observations::default(),
            nonces: Nonces::default(),
            settings,
            crash_detection,
            longest_lease,
        };
        store.first_connections().await?;
        Ok(store)
    }

    /// Waits for the first connections. A cluster may lack some of its masters.
    async fn first_connections(&self) -> Result<()> {
        self.servers.discover().await?;
        let servers = self.servers.all();
        let connected = join_all(servers.iter().map(|server| server.first())).await;

        let is_enough = connected.iter().any(Result::is_ok);
        let mut failures = connected.into_iter().filter_map(Result::err);
        match failures.next() {
            Some(error) if !is_enough || !error.is_unavailable() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the server that keeps the lock of a claim.
    fn server_of(&self, claim: &Claim) -> Result<Arc<Server>> {
        self.servers.server_of(&record::key_of(&claim.name))
    }

    /// Runs a script on the server of a lock, on the caller link if the caller's runtime drives it,
    /// and on the background link otherwise.
    ///
    /// The caller limits the wait for the reply. The link's supervisor closes a connection that
    /// delivers no replies.
    async fn run(
        &self,
        script: &Script,
        lease: Duration,
        key: &str,
        arguments: &[&str],
    ) -> Result<Value> {
        let keys = LockKeys::new(key, &self.servers);
        let call = ServerCall {
            script,
            keys: &keys.texts(),
            arguments,
        };
        let limit = reply_timeout(lease);
        self.servers.run(call, limit, Server::request_link).await
    }

    /// Closes all connections after a malformed reply, as no further reply can be trusted.
    fn protocol_error(&self) -> Error {
        for server in self.servers.all() {
            server.close();
        }
        redis_client::protocol_error()
    }
}

#[async_trait]
impl Store for Redis {
    fn guarantees(&self) -> Guarantees {
        let crash = match self.settings.crash_grace {
            Some(grace) if self.crash_detection.is_on() => CrashDetection::Within(grace),
            _ => CrashDetection::LeaseExpiry,
        };
        Guarantees {
            fifo: true,
            tokens: true,
            readers: true,
            slots: Slots::WhileInUse,
            lease_expiry: true,
            cohorts: true,
            crash,
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.enter_queue(claim, on_contention).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.wait_for_change(claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.renew_all(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.leave_queue(claim).await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default().with_observe(self)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.read_lock_state(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.list_names(prefix, count_max).await
    }
}
