//! The locks of Redisson, the library of most Java services, on one Redis server, or on
//! the master that sentinels name.
//!
//! The server keeps the holder and the lease, and no queue. A release is published on the channel
//! of the lock. So a waiter subscribes, tries again at each message, and at the end of the holder's
//! lease. docs/protocols/redisson.md has the format and the protocol.
//!
//! Redisson counts the acquires of a thread, and repeats a request after a lost reply. A claim of
//! leasehold is one field that does not count, so each request can be repeated.

pub(crate) mod address;
mod class;
mod field;
mod keys;
mod local_claim;
mod server;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::builder::{ServerStore, StoreBuilder};
use crate::client;
use crate::client::{
    ChannelSubscription, Channels, DoHandshake, Link, LinkConfig, Links, PushHandler, Scan,
    ServerClock, Session, reply_timeout,
};
use crate::local_claims::LocalClaims;
use address::RedissonAddress;
pub(crate) use class::Class;
use field::InspectReply;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{
    Claim, Entered, Extensions, OnContention, OwnLeases, Share, Standing, Store, check_shrinks,
    replies,
};
use leasehold_core::{ClaimId, Error, Guarantees, LockState, Name, Result, Token};
use local_claim::{ClaimField, RedissonClaim};
use server::{LockReply, RedissonServer, mode_of};

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
    server: RedissonServer,
    claims: LocalClaims<ClaimField>,
    channels: Arc<Channels>,
}

/// The head start of the notified waiters of other clients: a round trip of a Java program.
const HEAD_START: Duration = Duration::from_millis(3);
/// The longest time between two attempts of a waiter. Releases are published, and leases end at a
/// known time. This pause bounds the wait if a program deletes the key without a message.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A key whose lease has ended still exists for less than this time.
const EXPIRY_DELAY: Duration = Duration::from_millis(2);
/// How often a claim checks whether it is the first waiter of this client.
const POSITION_CHECK: Duration = Duration::from_secs(1);

/// The address of a Redis server and the settings of the store on it.
pub type RedissonBuilder = StoreBuilder<Redisson>;

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

    /// Returns the state of a claim that this store supports.
    fn begin(&self, claim: &Claim) -> Result<Arc<RedissonClaim>> {
        let server = &self.server;
        server.mapper.class.check(claim.share)?;
        server.check_lease(claim)?;
        let keys = server.mapper.keys(&claim.name)?;
        // The timeouts of requests follow the lease that the server has.
        let mut kept = claim.clone();
        kept.lease = server.store_lease(claim);
        let local = self.claims.begin(&kept, ClaimField::new(keys));
        check_shrinks(claim.share, local.share())?;
        Ok(local)
    }

    /// Tries to acquire the lock for a claim, or lets it wait behind other claims of this client.
    async fn enter_first(
        &self,
        local: &Arc<RedissonClaim>,
        share: Share,
        on_contention: OnContention,
    ) -> Result<Entered> {
        let lease = local.claim.lease;
        let until = kept_from_now(local);
        let waits = on_contention == OnContention::Queue;
        local.set_share(share);
        if waits {
            let name = &local.claim.name;
            // A request without a reply may have been granted. Only another one shows that.
            if self.claims.has_waiters(name) && !local.has_unanswered() {
                return Ok(Entered::new(self.claims.wait(local, until), lease));
            }
            self.claims.leave_head_start(name).await;
        }

        let mut refused = None;
        let standing = match self.lock(local).await? {
            LockReply::Granted(token) => Standing::Held { token },
            LockReply::Held { .. } if waits => self.claims.wait(local, until),
            LockReply::Held { holders, .. } => {
                let reply = InspectReply::of_holders(holders, share.capacity());
                refused = Some(replies::refused(reply.lock_state(&local.claim.name), None));
                self.claims.gone(local)
            }
            LockReply::Gone => self.claims.gone(local),
        };
        Ok(Entered::new(standing, lease).with_refused(refused))
    }

    /// Lets a writer become a reader.
    async fn shrink(&self, local: &Arc<RedissonClaim>, share: Share) -> Result<Standing> {
        if self.server.mapper.class == Class::Semaphore {
            return Err(Error::unsupported("permits are given back all at once"));
        }
        // A mutex and a writer are the same.
        if share != Share::READER {
            return Ok(local.standing());
        }

        let reply = self.server.lock(&self.claims, local, "downgrade").await?;
        match reply {
            LockReply::Granted(token) => {
                local.set_share(share);
                Ok(Standing::Held { token })
            }
            LockReply::Held { .. } | LockReply::Gone => Ok(self.claims.gone(local)),
        }
    }

    /// Whether the server still has the hold of a claim. If so, its lease starts again.
    async fn still_holds(&self, local: &Arc<RedissonClaim>) -> Result<bool> {
        let renewed = self.server.renew_held(std::slice::from_ref(local)).await?;
        Ok(renewed == [true])
    }

    /// Renews a claim that waited, and returns an error if the server cannot be reached.
    async fn renew_waiting(
        &self,
        local: &Arc<RedissonClaim>,
        sent_at: BootInstant,
    ) -> Result<Option<Duration>> {
        let lease = local.claim.lease;
        match local.renew_waiting(sent_at, lease) {
            (Standing::Queued { .. }, None) => {
                self.claims.gone(local);
                Ok(None)
            }
            (Standing::Queued { .. }, remaining) => {
                let timeout = reply_timeout(local.claim.lease);
                self.server.links.background.session(timeout).await?;
                Ok(remaining)
            }
            // It was granted meanwhile.
            (Standing::Held { .. }, _) => {
                let is_held = self.still_holds(local).await?;
                Ok(is_held.then_some(lease))
            }
            _ => Ok(None),
        }
    }

    /// Tries once to acquire the lock.
    async fn lock(&self, local: &Arc<RedissonClaim>) -> Result<LockReply> {
        let mode = mode_of(local.share());
        self.server.lock(&self.claims, local, mode).await
    }

    /// Waits until a claim is no longer waiting: it is held or gone.
    async fn wait_for_grant(&self, local: &Arc<RedissonClaim>) -> Result<Standing> {
        loop {
            let listening = self.listen(local).await?;
            if let Some(standing) = self.wait_with(local, &listening).await? {
                return Ok(standing);
            }
        }
    }

    /// Waits while the subscription lasts. Returns `None` when its connection is closed.
    async fn wait_with(
        &self,
        local: &Arc<RedissonClaim>,
        listening: &ChannelSubscription,
    ) -> Result<Option<Standing>> {
        while listening.is_open() {
            // A release may precede or follow each step, so notifications count from here.
            let mut message = pin!(listening.message.notified());
            message.as_mut().enable();
            let mut changed = pin!(local.changed.notified());
            changed.as_mut().enable();

            if let Some(standing) = self.claims.ended(local) {
                return Ok(Some(standing));
            }
            let pause = if self.claims.is_first(local) {
                self.claims.leave_head_start(&local.claim.name).await;
                match self.lock(local).await? {
                    LockReply::Granted(token) => return Ok(Some(Standing::Held { token })),
                    LockReply::Gone => return Ok(Some(self.claims.gone(local))),
                    LockReply::Held { left, .. } => pause_of(left),
                }
            } else {
                POSITION_CHECK
            };

            tokio::select! {
                biased;
                () = message => {}
                () = changed => {}
                () = listening.closed() => {}
                () = sleep(pause.min(kept_for(local))) => {}
            }
        }
        Ok(None)
    }

    /// Waits until a hold has been lost.
    async fn wait_for_loss(&self, local: &Arc<RedissonClaim>, token: Token) -> Result<()> {
        loop {
            let listening = self.listen(local).await?;
            while listening.is_open() {
                let mut message = pin!(listening.message.notified());
                message.as_mut().enable();
                let mut changed = pin!(local.changed.notified());
                changed.as_mut().enable();

                if local.standing().token() != Some(token) {
                    return Ok(());
                }
                if !self.server.check_hold(local).await? {
                    self.claims.gone(local);
                    return Ok(());
                }
                tokio::select! {
                    biased;
                    () = message => {}
                    () = changed => {}
                    () = listening.closed() => {}
                }
            }
        }
    }

    async fn listen(&self, local: &RedissonClaim) -> Result<ChannelSubscription> {
        let timeout = reply_timeout(local.claim.lease);
        let session = self.server.links.background.session(timeout).await?;
        let channel = &local.details.keys.channel;
        self.channels.listen(&session, channel, timeout).await
    }
}

#[async_trait]
impl ServerStore for Redisson {
    type Address = RedissonAddress;

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
        let links = Links {
            caller: Link::spawn(LinkConfig {
                runtime,
                ..link("inbox")
            }),
            background: Link::spawn(LinkConfig {
                on_push: notify(Arc::clone(&channels)),
                ..link("far")
            }),
        };
        links.first().await?;
        Ok(Self {
            server: RedissonServer {
                links,
                clock,
                mapper: address.mapper,
                watchdog: address.watchdog,
            },
            claims: LocalClaims::default(),
            channels,
        })
    }
}

#[async_trait]
impl Store for Redisson {
    fn guarantees(&self) -> Guarantees {
        self.server.mapper.class.guarantees()
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let local = self.begin(claim)?;
        let standing = match local.standing() {
            Standing::Held { .. } if claim.share != local.share() => {
                self.shrink(&local, claim.share).await?
            }
            Standing::Held { .. } if self.still_holds(&local).await? => local.standing(),
            Standing::Held { .. } => self.claims.gone(&local),
            _ => return self.enter_first(&local, claim.share, on_contention).await,
        };
        Ok(Entered::new(standing, local.claim.lease))
    }

    async fn queued(&self, claim: &Claim, _ahead: u32) -> Result<Standing> {
        let Some(local) = self.claims.get(claim.id) else {
            return Ok(Standing::Gone);
        };
        match local.standing() {
            Standing::Queued { .. } => self.wait_for_grant(&local).await,
            standing => Ok(standing),
        }
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        let Some(local) = self.claims.get(claim.id) else {
            return Ok(());
        };
        if local.standing().token() != Some(token) {
            return Ok(());
        }
        self.wait_for_loss(&local, token).await
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
            .zip(self.server.renew_held(&held).await?)
            .collect();

        let mut leases = Vec::with_capacity(claims.len());
        for local in known {
            leases.push(match local {
                None => None,
                Some(local) => match renewed.get(&local.claim.id) {
                    None => self.renew_waiting(&local, sent_at).await?,
                    Some(true) => Some(local.claim.lease),
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
        let may_lock_late = local.is_some_and(|local| local.may_lock_late());
        let (held, notified) = self.server.unlock(claim, may_lock_late).await?;
        if notified > 0 {
            self.claims.give_head_start(&claim.name, HEAD_START);
        }
        self.claims.forget(claim.id);
        Ok(held || has_waited)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let keys = self.server.mapper.keys(name)?;
        let mut lock_state = self.server.inspect(&keys).await?.lock_state(name);
        lock_state.entries.extend(self.claims.waiters(name));
        Ok(lock_state)
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let mapper = &self.server.mapper;
        let pattern = client::pattern_of(&mapper.listed_prefix(prefix));
        let scripts = mapper.class.scripts();
        let scan = Scan {
            pattern: &pattern,
            key_type: scripts.key_type,
            script: &scripts.list,
            count_max,
        };
        let names = client::list(&self.server.links.background, scan, |key: &str| {
            let name = mapper.name_of(key);
            name.filter(|name| name.as_str().starts_with(prefix))
        });
        Ok(names.await?.into_iter().collect())
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            own_leases: Some(self),
            ..Extensions::default()
        }
    }
}

impl OwnLeases for Redisson {
    fn lease_of(&self, claim: &Claim) -> Duration {
        self.server.store_lease(claim)
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

/// Returns until when this client keeps a claim that waits from now on.
fn kept_from_now(local: &RedissonClaim) -> BootInstant {
    BootInstant::now().saturating_add(local.claim.lease)
}

/// Returns for how long this client still keeps a waiting claim.
fn kept_for(local: &RedissonClaim) -> Duration {
    local.kept_until().duration_since(BootInstant::now())
}

fn pause_of(left: Option<Duration>) -> Duration {
    left.map_or(PAUSE_MAX, |left| PAUSE_MAX.min(left + EXPIRY_DELAY))
}
