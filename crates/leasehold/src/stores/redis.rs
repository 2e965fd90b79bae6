//! The store on a Redis server.
//!
//! Scripts (`redis/lua/`) keep the queue of a name. They grant, hand over and expire in one atomic
//! step; docs/protocols/redis.md has the protocol in numbered steps.
//!
//! A client has two links to the server:
//!
//! - The *caller link* runs on the runtime in which the store was opened, so that a request does
//!   not switch threads. It carries requests and receives the notifications of grants.
//! - The *background link* runs on the background thread. It renews claims and serves callers on
//!   other runtimes. Its subscription is the proof that the client is alive.

mod builder;
pub(crate) mod claim_state;
mod claims;
mod enter;
mod enter_reply;
mod inspect;
pub mod layout;
mod leave;
mod liveness;
mod observations;
mod orphans;
mod push;
mod record;
mod renewal;
mod replication;
pub mod scripts;
mod subscription;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use tokio::runtime::Handle;

use crate::runtime::clock::BootInstant;
use crate::store::Extensions;
use crate::stores::redis_client::{
    self, Address, DoHandshake, Link, LinkConfig, PushHandler, Script, ServerClock, Session,
    Settings, State, reply_timeout,
};
use crate::{
    Claim, CrashDetection, Entered, Error, Guarantees, LockState, Name, OnContention, Result,
    Standing, Store,
};
use claims::Claims;
use liveness::CrashDetectionMode;
use observations::Observations;
use orphans::Orphans;
use record::Nonces;

pub use builder::RedisBuilder;

/// Locks on a Redis server, 6.2 or newer, or Valkey.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let store = leasehold::stores::Redis::builder("redis://127.0.0.1")?
///     .crash_grace(Duration::from_secs(2))?
///     .connect()
///     .await?;
/// let locks = leasehold::Locks::from_store(store, "redis://127.0.0.1")?;
/// # Ok(()) }
/// ```
///
/// All keys begin with `leasehold:{`, and all of them expire. The key of a name expires a day after
/// the last lease, or two days after the last claim was queued.
#[derive(Debug)]
pub struct Redis {
    address: Address,
    caller_link: Link,
    background_link: Link,
    /// The link for `WAIT`, if `replicas` is set. `WAIT` blocks its connection, so nothing else
    /// uses it.
    wait_link: Option<Link>,
    client: Arc<str>,
    claims: Arc<Claims>,
    orphans: Orphans,
    observations: Observations,
    nonces: Nonces,
    clock: Arc<ServerClock>,
    settings: Settings,
    crash_detection: Arc<CrashDetectionMode>,
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
    /// | `ca=/path` | the authority to trust instead of the system's, in PEM; `rediss://` only |
    /// | `db=3` | the database, for a URL whose path names a socket |
    /// | `protocol=2` | RESP2, for proxies that accept RESP3 but do not implement it |
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if the URL is malformed.
    pub fn builder(url: &str) -> Result<RedisBuilder> {
        RedisBuilder::parse(url)
    }

    async fn open(address: Address, runtime: Option<Handle>) -> Result<Self> {
        let client: Arc<str> = redis_client::fresh_client().into();
        let claims = Arc::<Claims>::default();
        let clock = Arc::<ServerClock>::default();
        let crash_detection = Arc::<CrashDetectionMode>::default();
        let settings = address.settings;

        let alive_channel = format!("leasehold:alive:{client}");
        let background_link = Link::spawn(LinkConfig {
            address: address.clone(),
            channel: alive_channel.clone(),
            on_push: ignore_pushes(),
            handshake: liveness::background_handshake(
                alive_channel,
                Arc::clone(&clock),
                Arc::clone(&crash_detection),
                settings,
            ),
            runtime: None,
        });
        let orphans = Orphans::new(background_link.states(), Arc::clone(&client));
        let caller_link = Link::spawn(LinkConfig {
            address: address.clone(),
            channel: format!("leasehold:inbox:{client}"),
            on_push: apply_pushes(Arc::clone(&claims), orphans.clone()),
            handshake: no_handshake(),
            runtime,
        });
        let wait_link = (settings.replicas > 0).then(|| spawn_wait_link(address.clone(), &client));

        let store = Self {
            address,
            caller_link,
            background_link,
            wait_link,
            client,
            claims,
            orphans,
            observations: Observations::default(),
            nonces: Nonces::default(),
            clock,
            settings,
            crash_detection,
        };
        store.first_connections().await?;
        Ok(store)
    }

    async fn first_connections(&self) -> Result<()> {
        self.background_link.first().await?;
        self.caller_link.first().await?;
        match &self.wait_link {
            Some(wait_link) => wait_link.first().await,
            None => Ok(()),
        }
    }

    /// Runs a script on the caller link if the caller's runtime drives it, and on the background
    /// link otherwise.
    ///
    /// The caller limits the wait for the reply. The link's supervisor closes a connection that
    /// delivers no replies.
    async fn run(
        &self,
        script: &Script,
        lease: Duration,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value> {
        let link = if self.caller_link.is_on_caller_runtime() {
            &self.caller_link
        } else {
            &self.background_link
        };
        let session = link.session(reply_timeout(lease)).await?;
        script.run(&session, keys, arguments).await
    }

    /// Closes all connections after a malformed reply, as no further reply can be trusted.
    fn protocol_error(&self) -> Error {
        let links = [&self.caller_link, &self.background_link];
        for link in links.into_iter().chain(&self.wait_link) {
            link.with_state(|state| {
                if let State::Up(session, _) = state {
                    session.close();
                }
            });
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
            shares: true,
            lease_expiry: true,
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

fn spawn_wait_link(address: Address, client: &str) -> Link {
    Link::spawn(LinkConfig {
        address,
        channel: format!("leasehold:waiting:{client}"),
        on_push: ignore_pushes(),
        handshake: no_handshake(),
        runtime: None,
    })
}

fn no_handshake() -> DoHandshake {
    Arc::new(|_: Arc<Session>| Box::pin(async { Ok(None) }))
}

fn ignore_pushes() -> PushHandler {
    Arc::new(|_, _| {})
}

/// Applies notifications to their claims, and releases grants whose claim is unknown.
fn apply_pushes(claims: Arc<Claims>, orphans: Orphans) -> PushHandler {
    Arc::new(move |_, text| {
        if let Some(orphan) = claims.pushed(text) {
            orphans.release(orphan, BootInstant::now());
        }
    })
}

/// Returns a function that counts the claims whose local state a store keeps.
pub fn tracked_claims(store: &Redis) -> impl Fn() -> usize + use<> {
    let claims = Arc::clone(&store.claims);
    move || claims.count()
}
