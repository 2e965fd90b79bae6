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
mod claims;
mod enter;
mod first;
mod layout;
mod messages;
mod orphans;
mod record;
mod renewal;
mod scripts;
mod server;
mod subscription;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;

use crate::builder::ServerStore;
use crate::client;
use crate::client::{
    Epochs, NO_TEXTS, READ_TIMEOUT, ReplyText, Scan, Script, ServerCall, Settings, StoreServers,
    Text, Topology, Value, decode, id_text, reply_timeout,
};
pub use builder::RedisBuilder;

use claims::{ClaimValidity, Claims, TrackedClaim};
use enter::Entering;
use first::FirstEnter;
pub(crate) use first::Opener;
use leasehold_core::internal::{
    BootInstant, FirstClaim, Observations, RevokeEnded, SeenHold, has_ended, revoke_ended,
};
use leasehold_core::store::{
    Claim, Entered, Extensions, Observe, OnContention, RecordReader, Records, Standing, Store,
    Subscription, record_time,
};
use leasehold_core::{
    ClaimId, Completion, Error, Guarantees, LockState, Name, Record, Result, Token,
};
use messages::{EnterMode, EnterReply, LeaveArgument, Nonces, Part, Push, with_longest_lease};
use orphans::{Orphan, Orphans, apply_pushes, leave_arguments};
use record::{EndedRequest, LockKey, LockKeys};
use server::{Server, StoreContext, first_connections, longest_lease, protocol_error};
use subscription::TrackedKeys;
use wait::{is_other, may_poll, next_poll, probe_push_channel};

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
    observations: Observations<String>,
    nonces: Nonces,
    settings: Settings,
    /// `None` without crash detection.
    crash_grace: Option<Duration>,
    /// In milliseconds, if a master waits after a failover.
    longest_lease: Option<Arc<str>>,
    /// The claim that was entered while the store was opened.
    first: Option<Arc<FirstEnter>>,
}

impl Redis {
    /// Parses the URL of a server: `redis://[user[:password]@]host[:port][/database]`,
    /// `rediss://…` with TLS, or `redis+unix:///path/to/socket`.
    ///
    /// | setting | meaning |
    /// |---|---|
    /// | `crash-grace=10s` | see [`RedisBuilder::crash_grace`]; `off` turns detection off |
    /// | `replicas=1` | see [`RedisBuilder::replicas`] |
    /// | `records=40d` | how long the record of a job that runs [once](leasehold_core::Once) is kept |
    /// | `password-file=/path` | a file with the password, read again for every connection |
    /// | `ca=/path` | the authority to trust instead of the system's, in PEM; only with TLS |
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
        let topology = Topology::parse(url)?;
        Ok(RedisBuilder { address: topology })
    }

    /// Opens the store, and enters a claim, if there is one, behind the checks of the server.
    async fn open_entering(
        topology: Topology,
        runtime: Option<Handle>,
        first: Option<FirstClaim>,
    ) -> Result<Self> {
        let settings = topology.settings();
        let claims = Arc::<Claims>::default();
        let first = first.and_then(|first| FirstEnter::new(first, settings, &claims));
        let crash_detection = Arc::<OnceLock<bool>>::default();

        let servers = Arc::new_cyclic(|servers| {
            let orphans = Orphans::new(Weak::clone(servers), settings);
            let shared = StoreContext {
                on_push: apply_pushes(Arc::clone(&claims), orphans),
                crash_detection: Arc::clone(&crash_detection),
                server_id: Arc::default(),
                settings,
                runtime,
                first: first.clone(),
                caller_epochs: Epochs::default(),
                background_epochs: Epochs::default(),
            };
            let connect = move |endpoint| Server::connect(endpoint, &shared);
            StoreServers::new(topology, Box::new(connect))
        });
        first_connections(&servers).await?;

        let is_crash_detected = crash_detection.get() == Some(&true);
        if let Some(first) = first.as_ref().filter(|_| !is_crash_detected) {
            first.without_crash_detection();
        }
        Ok(Self {
            orphans: Orphans::new(Arc::downgrade(&servers), settings),
            servers,
            claims,
            observations: Observations::default(),
            nonces: Nonces::default(),
            settings,
            crash_grace: settings.crash_grace.filter(|_| is_crash_detected),
            longest_lease: longest_lease(settings),
            first,
        })
    }

    /// Returns the server that keeps the lock of a claim.
    fn server_of(&self, claim: &Claim) -> Result<Arc<Server>> {
        self.servers.server_of(&LockKey(&claim.name))
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
        name: &Name,
        arguments: &[impl Text],
    ) -> Result<Value> {
        let keys = LockKeys::new(LockKey(name), &self.servers);
        self.run_with_keys(script, lease, &keys, arguments).await
    }

    /// Runs a script that uses the record of a lock, whose key is the last one.
    async fn run_with_record(
        &self,
        script: &Script,
        lease: Duration,
        name: &Name,
        arguments: &[&str],
    ) -> Result<Value> {
        let lock_keys = LockKeys::new(LockKey(name), &self.servers);
        let record_key = record::record_key(LockKey(name));
        let keys = [&*lock_keys, &[record_key]].concat();
        self.run_with_keys(script, lease, &keys, arguments).await
    }

    async fn run_with_keys(
        &self,
        script: &Script,
        lease: Duration,
        keys: &[impl Text],
        arguments: &[impl Text],
    ) -> Result<Value> {
        let call = ServerCall {
            script,
            keys,
            arguments,
        };
        let limit = reply_timeout(lease);
        self.servers
            .run(call, limit, |server| server.links.for_request())
            .await
    }

    /// Removes the claim of a request to leave; returns whether it was there.
    async fn remove(&self, leaving: Leaving<'_>) -> Result<bool> {
        let Leaving {
            id,
            name,
            lease,
            request,
        } = leaving;
        let server = self.servers.server_of(&LockKey(name))?;
        let longest_lease = self.longest_lease.as_deref().unwrap_or_default();
        let arguments: [Part<'_>; 3] = [request, &server.client, &longest_lease];
        let arguments = with_longest_lease(&arguments, self.longest_lease.as_deref());
        let reply = self.run(&scripts::LEAVE, lease, name, arguments).await?;

        let reply: ReplyText = decode(reply)?;
        let left = reply.as_str().unwrap_or_default();
        if layout::leave_reply::CLAIM.read(left) != Some(&*id_text(id)) {
            return Err(protocol_error(&self.servers));
        }
        Ok(layout::leave_reply::WAS_THERE.read(left) == Some("1"))
    }

    /// Reads a lock: the token of its last grant, how its last hold has ended, and its claims.
    async fn read(&self, name: &Name) -> Result<Vec<String>> {
        let inspecting = self.run(&scripts::INSPECT, READ_TIMEOUT, name, NO_TEXTS);
        decode(inspecting.await?)
    }

    /// Lists the names of the keys of a scan on all masters.
    async fn list_names(
        &self,
        scan: Scan<'_>,
        prefix: &str,
        name_of: impl Fn(&str) -> Option<Name>,
    ) -> Result<Vec<Name>> {
        let mut names = BTreeSet::new();
        for server in self.servers.all() {
            let listed = client::list(&server.links.background, scan, |key| {
                name_of(key).filter(|name| name.as_str().starts_with(prefix))
            });
            names.extend(listed.await?);
        }
        Ok(names.into_iter().take(scan.count_max).collect())
    }

    /// Forgets a claim that is not entered again, and returns whether the client knew it. If the
    /// server may still execute a request to enter it, the client releases it once more after that.
    fn end(&self, claim: &Claim) -> bool {
        let Some(tracked) = self.claims.end(claim.id) else {
            return false;
        };

        let late_until = tracked.late_until();
        if let Some(until) = late_until.filter(|until| *until > BootInstant::now()) {
            let orphan = Orphan {
                key: LockKey(&claim.name).to_string(),
                id: id_text(claim.id),
            };
            self.orphans.release(orphan, until);
        }
        true
    }

    /// Returns the validity of a claim before its first request.
    ///
    /// The crash grace applies to a claim that is renewed and whose lease is longer.
    fn validity(&self, claim: &Claim) -> ClaimValidity {
        let grace = self
            .crash_grace
            .filter(|grace| claim.auto_renew && *grace < claim.lease);
        ClaimValidity::new(claim.lease, grace)
    }

    fn entering<'a>(&'a self, claim: &'a Claim, tracked: &'a TrackedClaim) -> Result<Entering<'a>> {
        Ok(Entering {
            claim,
            tracked,
            server: self.server_of(claim)?,
            servers: &self.servers,
            observations: &self.observations,
            nonces: &self.nonces,
            longest_lease: self.longest_lease.as_deref(),
        })
    }

    /// Waits until the configured number of replicas has a grant.
    async fn replicated(&self, claim: &Claim, tracked: &TrackedClaim, token: Token) -> Result<()> {
        let wanted = self.settings.replicas;
        if wanted == 0 {
            return Ok(());
        }

        // Most users set no replicas. The box keeps the future of every request small.
        let entering = self.entering(claim, tracked)?;
        Box::pin(entering.confirm_replicas(token, wanted)).await
    }

    /// Refreshes the claim of a waiter that was woken up, or polls.
    async fn refresh_or_poll(
        &self,
        claim: &Claim,
        tracked: &TrackedClaim,
        mode: EnterMode,
    ) -> Result<()> {
        let state = tracked.state();
        if mode == EnterMode::Poll && !may_poll(&state, self.claims.is_foremost(tracked)) {
            return Ok(());
        }
        let reply = self.entering(claim, tracked)?.send(mode).await?;
        if reply.standing == Standing::Gone {
            tracked.apply_push(&Push::Gone);
        }

        if !reply.absences.is_empty() {
            // The client of the next waiter is notified.
            revoke_ended(self, claim).await;
        }

        let is_queued = matches!(reply.standing, Standing::Queued { .. });
        let is_change = !is_queued || reply.is_next && !state.is_next;
        if mode == EnterMode::Poll && is_change {
            let server = self.server_of(claim);
            if let Ok(server) = server {
                probe_push_channel(&server.links.caller.states());
            }
        }
        Ok(())
    }
}

#[async_trait]
impl ServerStore for Redis {
    type Address = Topology;

    async fn open(topology: Topology, runtime: Option<Handle>) -> Result<Self> {
        Self::open_entering(topology, runtime, None).await
    }
}

#[async_trait]
impl Store for Redis {
    fn guarantees(&self) -> Guarantees {
        builder::guarantees(self.crash_grace)
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        if let Some(longest) = self.settings.failover_wait
            && claim.lease > longest
        {
            return Err(too_long(longest));
        }
        let mode = EnterMode::of(on_contention);
        let tracked = self.claims.begin(claim, self.validity(claim));
        let first = self.first.as_ref();
        let mut reply = match first.and_then(|first| first.take(claim.id, self.crash_grace)) {
            Some(first) => self.entering(claim, &tracked)?.apply_first(mode, first)?,
            None => self.entering(claim, &tracked)?.send(mode).await?,
        };
        if mode == EnterMode::TryNow && may_be_dead(&reply) && revoke_ended(self, claim).await {
            reply = self.entering(claim, &tracked)?.send(mode).await?;
        }
        let standing = reply.standing;

        // Only the lease keeps a waiter in the queue. Its liveness is checked when it is about to
        // be granted.
        let mut lease = claim.lease;
        match standing {
            Standing::Gone => {
                self.end(claim);
            }
            Standing::Held { token } => {
                self.replicated(claim, &tracked, token).await?;
                tracked.pass_on();
                lease = tracked.validity().of_reply();
            }
            _ => {}
        }
        let refused = reply
            .refused
            .map(|refused| record::refused(&claim.name, refused.ahead, &refused.holders));
        Ok(Entered::new(standing, lease).with_refused(refused))
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        wait_for_change(self, claim, Standing::Queued { ahead }).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        wait_for_change(self, claim, Standing::Held { token }).await?;
        Ok(())
    }

    /// Renews claims: by a script every third of a lease, and by a ping of the connection in
    /// between.
    ///
    /// One ping covers all holds with crash detection. A waiter needs none, as its liveness is
    /// checked when it is about to be granted.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        renewal::renew(&self.servers, &self.claims, claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let is_own = self.end(claim);
        // If the claim belongs to another client, the slow path notifies that client.
        let kind = match (is_own, claim.by_watchdog) {
            (true, _) => 'H',
            (false, true) => 'K',
            (false, false) => 'B',
        };
        let request = LeaveArgument {
            kind,
            id: id_text(claim.id),
        };
        self.remove(Leaving {
            id: claim.id,
            name: &claim.name,
            lease: claim.lease,
            request: &request,
        })
        .await
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            observe: Some(self),
            records: Some(self),
            ..Extensions::default()
        }
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        record::lock_state(name.clone(), &self.read(name).await?)
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let scan = Scan {
            pattern: &record::pattern_of(prefix),
            key_type: "string",
            script: &scripts::LIST,
            count_max,
        };
        self.list_names(scan, prefix, record::name_of).await
    }
}

#[async_trait]
impl Observe for Redis {
    async fn subscribe(&self, name: &Name) -> Result<Box<dyn Subscription>> {
        let key = LockKey(name).to_string();
        let tracked = TrackedKeys::begin(Arc::clone(&self.servers), key).await?;
        Ok(Box::new(tracked))
    }
}

#[async_trait]
impl Records for Redis {
    async fn kept(&self) -> Result<Duration> {
        Ok(self.settings.records)
    }

    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record> {
        let life = match reader {
            RecordReader::Holder => record::millis(self.settings.records),
            RecordReader::Observer => 0,
        };
        let reply = self
            .run_with_record(
                &scripts::READ_RECORD,
                READ_TIMEOUT,
                name,
                &[&life.to_string()],
            )
            .await?;

        let [now, text] = &decode::<Vec<String>>(reply)?[..] else {
            return Err(protocol_error(&self.servers));
        };
        let read_at = record_time(now).ok_or_else(|| protocol_error(&self.servers))?;
        match &**text {
            "" => Ok(Record::empty(read_at)),
            text => Record::parse(text, read_at),
        }
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        let client = Arc::clone(&self.server_of(claim)?.client);
        let id = id_text(claim.id);
        let request = format!("H{id}");
        let life = record::millis(self.settings.records).to_string();
        let (head, tail) = completion.line();
        let mut arguments = leave_arguments(&request, &client, self.longest_lease.as_deref());
        arguments.extend([&*life, &head, &tail]);

        let running =
            self.run_with_record(&scripts::COMPLETE, claim.lease, &claim.name, &arguments);
        let reply: String = decode(running.await?)?;
        if layout::leave_reply::CLAIM.read(&reply) != Some(&id) {
            return Err(protocol_error(&self.servers));
        }
        let is_recorded = layout::leave_reply::WAS_THERE.read(&reply) == Some("1");
        if is_recorded {
            self.end(claim);
        }
        Ok(is_recorded)
    }

    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let scan = Scan {
            pattern: &record::record_key(record::pattern_of(prefix)).to_string(),
            key_type: "string",
            script: &scripts::LIST_RECORDS,
            count_max,
        };
        self.list_names(scan, prefix, record::name_of_record).await
    }
}

#[async_trait]
impl RevokeEnded for Redis {
    async fn bound_holds(&self, name: &Name) -> Result<Vec<SeenHold>> {
        let texts = self.read(name).await?;
        // The token and the last end come before the records.
        let records = texts.iter().skip(2);
        Ok(records
            .filter_map(|text| record::bound_hold(text))
            .collect())
    }

    async fn revoke_ended(&self, seen: &SeenHold, seen_by: &Claim) -> Result<bool> {
        self.remove(Leaving {
            id: seen.claim,
            name: &seen_by.name,
            lease: READ_TIMEOUT,
            request: &EndedRequest { seen, seen_by },
        })
        .await
    }
}

/// A request to leave, and the lock that it concerns.
struct Leaving<'a> {
    id: ClaimId,
    name: &'a Name,
    lease: Duration,
    request: Part<'a>,
}

/// Whether a holder that has refused a claim may have crashed: its connection is missing, or its
/// process has ended on this machine.
fn may_be_dead(reply: &EnterReply) -> bool {
    let refused = reply.refused.iter();
    let mut holders = refused.flat_map(|refused| &refused.holders);
    !reply.absences.is_empty() || holders.any(|text| record::client_of(text).is_some_and(has_ended))
}

/// The error for a claim that would outlast the wait after a failover.
#[cold]
fn too_long(longest: Duration) -> Error {
    Error::invalid(format!("the longest lease on this store is {longest:?}"))
        .help("use a shorter lease, or set a larger longest-lease= in the URL")
}

/// Waits until the standing of a claim differs from `seen`, and returns it.
async fn wait_for_change(store: &Redis, claim: &Claim, seen: Standing) -> Result<Standing> {
    let tracked = store.claims.listen(claim, store.validity(claim));
    let key = LockKey(&claim.name).to_string();
    let waits = seen.token().is_none();
    let refresh = if waits || claim.auto_renew {
        EnterMode::Refresh
    } else {
        EnterMode::Keep
    };
    loop {
        let server = store.servers.server_of(&key)?;
        let caller_link = server.links.caller.states();
        let caller_epoch = tracked.state().caller_epoch;
        let mut changed = pin!(tracked.changed.notified());
        changed.as_mut().enable();

        let standing = tracked.state().standing;
        if let Some(standing) = standing.filter(|standing| *standing != seen) {
            if waits && let Some(token) = standing.token() {
                if let Err(error) = store.replicated(claim, &tracked, token).await {
                    // No one enters this claim again: its next renewal finds that it is gone.
                    store.leave(claim).await?;
                    return Err(error);
                }
                tracked.pass_on();
            }
            return Ok(standing);
        }

        let next_poll = next_poll(
            &tracked.state(),
            store.claims.is_foremost(&tracked),
            store.observations.next_end(&claim.name),
            claim.lease,
        );
        let mode = tokio::select! {
            biased;
            () = changed => continue,
            // Notifications sent in between are lost.
            _ = caller_link.wait_for(is_other(caller_epoch)) => refresh,
            // The claim's last request named a connection to the other server.
            () = store.servers.moved_from(&key, &server) => continue,
            () = tokio::time::sleep(next_poll), if waits => EnterMode::Poll,
            error = server.links.caller.unreachable(reply_timeout(claim.lease)), if waits => {
                return Err(error);
            }
        };
        store.refresh_or_poll(claim, &tracked, mode).await?;
    }
}
