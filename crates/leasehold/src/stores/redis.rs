//! The store on a Redis server.
//!
//! A claim's record and the line are kept by scripts (`redis/lua/`), which grant, hand over and expire in one atomic step.
//! A client has two links to the server. The *near* one is driven by the runtime the store was opened in, so that asking
//! switches no thread; it carries questions and hears of grants. The *far* one is driven by the background thread; it
//! renews, asks for those who cannot wait, and its subscription is what vouches for the client's life.

pub(crate) mod claim_state;
mod claims;
mod observations;
mod orphans;
mod record;
mod renewal;
mod scripts;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::Value;
use tokio::runtime::Handle;

use crate::runtime::background;
use crate::runtime::clock::BootInstant;
use crate::store::Extensions;
use crate::stores::redis_client::{
    self, Address, DoHandshake, Link, LinkConfig, READ_TIMEOUT, Script, ServerClock, ServerId,
    Session, Settings, State, reply_timeout, text, with_reply_timeout,
};
use crate::{
    Claim, CrashDetection, Entered, Error, Guarantees, LockState, Name, OnContention, Result,
    Share, Standing, Store, Token,
};
use claim_state::LookDue;
use claims::{Claims, TrackedClaim};
use observations::Observations;
use orphans::{Orphan, Orphans};
use record::{CrashCheck, EnterReply, LivenessRef, Nonces};

/// Locks on a Redis server, 6.2 or newer, or Valkey.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let store = leasehold::stores::Redis::builder("redis://127.0.0.1")?.crash_grace(Duration::from_secs(2))?.connect().await?;
/// let locks = leasehold::Locks::from_store(store, "redis://127.0.0.1")?;
/// # Ok(()) }
/// ```
///
/// Keys begin with `leasehold:{`, and all of them end: a name's last trace is gone a day after its last lease, or two
/// after it was last waited for.
#[derive(Debug)]
pub struct Redis {
    caller_link: Link,
    background_link: Link,
    /// Where replicas are waited for, if any are: whatever else were asked on such a link would wait with it.
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

/// Where to connect, and on which terms.
#[derive(Clone, Debug)]
pub struct RedisBuilder {
    address: Address,
}

impl Redis {
    /// The server a URL names: `redis://[user[:password]@]host[:port][/database]`, `rediss://…` with TLS, or
    /// `redis+unix:///path/to/socket`.
    ///
    /// | setting | |
    /// |---|---|
    /// | `crash-grace=10s` | see [`RedisBuilder::crash_grace`]; `off` for [`RedisBuilder::no_crash_detection`] |
    /// | `replicas=1` | see [`RedisBuilder::replicas`] |
    /// | `password-file=/path` | a file with the password, read again for every connection |
    /// | `ca=/path` | the authority to trust, in PEM, instead of the system's; `rediss://` only |
    /// | `db=3` | the database, where the path is a socket's |
    /// | `protocol=2` | RESP2, for proxies that say they speak RESP3 and do not |
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a URL nobody understands.
    pub fn builder(url: &str) -> Result<RedisBuilder> {
        Ok(RedisBuilder {
            address: Address::parse(url)?,
        })
    }

    async fn open(address: Address, runtime: Option<Handle>) -> Result<Self> {
        let client: Arc<str> = redis_client::fresh_client().into();
        let (claims, clock, crash_detection) = (
            Arc::<Claims>::default(),
            Arc::<ServerClock>::default(),
            Arc::<CrashDetectionMode>::default(),
        );
        let channel = format!("leasehold:alive:{client}");
        let handshake = background_handshake(
            channel.clone(),
            Arc::clone(&clock),
            Arc::clone(&crash_detection),
            address.settings,
        );
        let background_link = Link::spawn(LinkConfig {
            address: address.clone(),
            channel,
            on_push: Arc::new(|_, _| {}),
            handshake,
            runtime: None,
        });
        let orphans = Orphans::new(background_link.states(), Arc::clone(&client));
        let (claims_, unwanted) = (Arc::clone(&claims), orphans.clone());
        let caller_link = Link::spawn(LinkConfig {
            address: address.clone(),
            channel: format!("leasehold:inbox:{client}"),
            on_push: Arc::new(move |_, text| {
                if let Some(orphan) = claims_.pushed(text) {
                    unwanted.release(orphan, BootInstant::now());
                }
            }),
            handshake: no_handshake(),
            runtime,
        });
        let (settings, observations, nonces) =
            (address.settings, Observations::default(), Nonces::default());
        let wait_link =
            (settings.replicas > 0).then(|| Link::spawn(wait_link_config(address, &client)));
        let store = Self {
            caller_link,
            background_link,
            wait_link,
            client,
            claims,
            orphans,
            observations,
            nonces,
            clock,
            settings,
            crash_detection,
        };
        store.background_link.first().await?;
        store.caller_link.first().await?;
        if let Some(wait_link) = &store.wait_link {
            wait_link.first().await?;
        }
        Ok(store)
    }
}

impl RedisBuilder {
    /// For how long a holder's connection may be gone before the lock is given to the next; 10 s unless said. From half a
    /// second to an hour. A holder that cannot reach the server for as long has lost its locks, and knows it by then.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is out of range.
    pub fn crash_grace(mut self, grace: Duration) -> Result<Self> {
        self.address.settings.crash_grace = Some(redis_client::check_grace(grace)?);
        Ok(self)
    }

    /// A crash frees a lock only when its lease ends, and a holder that cannot reach the server keeps it until then.
    #[must_use]
    pub fn no_crash_detection(mut self) -> Self {
        self.address.settings.crash_grace = None;
        self
    }

    /// A grant counts only when `count` replicas have it too (`WAIT`); short of them it is given back, and the error says so.
    ///
    /// This makes it less likely, not impossible, that a failover forgets a lock: a promoted replica may be another one.
    #[must_use]
    pub fn replicas(mut self, count: u32) -> Self {
        self.address.settings.replicas = count;
        self
    }

    /// The URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Connects; the connection is made again by itself whenever it breaks.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if the server cannot be reached, [`is_denied`](Error::is_denied) if it
    /// does not let this user in, [`is_unsupported`](Error::is_unsupported) if locks are not safe there: too old, it
    /// evicts keys, its scripts are not those of Redis, or it is not the only master of its data.
    ///
    /// *Cancel safety*: dropping the future closes what it opened.
    pub async fn connect(self) -> Result<Redis> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<Redis> {
        background::start()?;
        background::on_background(Redis::open(self.address, runtime)).await
    }
}

/// Whether holders are judged by their connections; decided at the first greeting, and for good: a holder that counted on
/// its lease alone must not be judged later.
#[derive(Debug, Default)]
struct CrashDetectionMode(AtomicU8);

impl CrashDetectionMode {
    const YES: u8 = 1;
    const NO: u8 = 2;

    fn decide(&self, yes: bool) {
        let decision = if yes { Self::YES } else { Self::NO };
        let _ = self
            .0
            .compare_exchange(0, decision, Ordering::AcqRel, Ordering::Acquire);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::YES
    }
}

fn no_handshake() -> DoHandshake {
    Arc::new(|_| Box::pin(async { Ok(None) }))
}

fn wait_link_config(address: Address, client: &str) -> LinkConfig {
    let channel = format!("leasehold:waiting:{client}");
    LinkConfig {
        address,
        channel,
        on_push: Arc::new(|_, _| {}),
        handshake: no_handshake(),
        runtime: None,
    }
}

/// Each visit asks for the id of the server's history, which is another one after any change of roles. Every tenth also
/// asks for what else was asked at first.
const VISITS_FULL: u32 = 10;

fn background_handshake(
    channel: String,
    clock: Arc<ServerClock>,
    crash_detection: Arc<CrashDetectionMode>,
    settings: Settings,
) -> DoHandshake {
    let server_id = Arc::<ServerId>::default();
    let visits = Arc::<Mutex<(u32, u32)>>::default();
    Arc::new(move |session: Arc<Session>| {
        let (channel, clock) = (channel.clone(), Arc::clone(&clock));
        let (server_id, crash_detection) = (Arc::clone(&server_id), Arc::clone(&crash_detection));
        let visit = {
            let mut visits = visits.lock();
            let (epoch, count) = *visits;
            *visits = (
                session.epoch,
                if epoch == session.epoch { count + 1 } else { 0 },
            );
            visits.1
        };
        Box::pin(async move {
            if visit.is_multiple_of(VISITS_FULL) || !crash_detection.is_on() {
                redis_client::handshake(&session, &clock).await?;
            }
            if settings.crash_grace.is_none() {
                crash_detection.decide(false);
                return Ok(None);
            }
            let server = server_id.read(&session, &channel).await?;
            crash_detection.decide(server.is_some());
            Ok(server)
        })
    })
}

/// What is asked of enter.lua.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EnterMode {
    Queue,
    TryNow,
    /// Only a claim that is in line already, whose lease begins anew.
    Refresh,
    /// Only looks after the holders: a claim that waits keeps the lease it has.
    Look,
}

impl Redis {
    /// The grace, where a claim is judged by its connection: it is kept alive, and its lease is longer.
    fn grace(&self, claim: &Claim) -> Option<Duration> {
        let grace = self
            .settings
            .crash_grace
            .filter(|grace| *grace < claim.lease)?;
        (claim.auto_renew && self.crash_detection.is_on()).then_some(grace)
    }

    /// How long an answered question about a claim is good for.
    fn safe_for(&self, claim: &Claim) -> Duration {
        self.grace(claim).unwrap_or(claim.lease)
    }

    fn liveness_ref(&self, claim: &Claim) -> LivenessRef {
        let grace = self.grace(claim);
        self.background_link.with_state(|state| {
            let server = if let State::Up(_, server) = state {
                server.clone()
            } else {
                None
            };
            let crash_check = server
                .zip(grace)
                .map(|(server, grace)| CrashCheck { server, grace });
            LivenessRef {
                client: Arc::clone(&self.client),
                epoch: state.epoch(),
                crash_check,
            }
        })
    }

    /// Asks one of the two links. How long to listen is the caller's to say; a connection that answers nothing is closed
    /// by whoever looks after it.
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

    async fn enter_script(
        &self,
        claim: &Claim,
        mode: EnterMode,
        tracked: &TrackedClaim,
    ) -> Result<EnterReply> {
        let (key, id) = (record::key_of(&claim.name), redis_client::id_text(claim.id));
        let (highest_token, expired) = self.observations.hint(&claim.name);
        let liveness_ref = self.liveness_ref(claim);
        let enters = matches!(mode, EnterMode::Queue | EnterMode::TryNow);
        let whole = claim.share.is_whole() && enters;
        let proposal = if whole {
            self.clock.micros().max(highest_token + 1)
        } else {
            0
        };
        let record = record::record(claim, &id, proposal, &liveness_ref);
        let settings = format!(
            "{}{highest_token:016}{}{expired}",
            mode.letter(),
            self.nonces.fresh()
        );
        let life = record::life(claim).to_string();
        let request = async || {
            let (sent_at, caller_epoch) = (BootInstant::now(), self.caller_link.epoch());
            let not_after = self.not_after().to_string();
            let reply = self
                .run(
                    &scripts::ENTER,
                    claim.lease,
                    &[&key],
                    &[&record, &life, &settings, &not_after],
                )
                .await;
            if enters && reply.as_ref().is_err_and(Error::is_unavailable) {
                tracked.may_be_late(sent_at.saturating_add(LATE_MAX));
            }
            (reply, sent_at, caller_epoch)
        };
        let (mut reply, mut sent_at, mut caller_epoch) = request().await;
        if reply.as_ref().is_err_and(|error| self.is_late(error)) {
            // Nothing was done. The server's clock is known now.
            (reply, sent_at, caller_epoch) = Box::pin(request()).await;
        }
        let reply = reply.map_err(|error| mismatch(error, claim.share))?;
        let text = text(reply)?;
        let Some(reply) = EnterReply::parse(&text, &id) else {
            return Err(self.protocol_error());
        };
        self.observations.observe(&claim.name, &reply, &expired);
        match mode {
            EnterMode::Look => tracked.looked(&reply, sent_at, liveness_ref.epoch, caller_epoch),
            EnterMode::Queue | EnterMode::TryNow | EnterMode::Refresh => {
                tracked.with_reply_timeout(&reply, sent_at, liveness_ref.epoch, caller_epoch);
            }
        }
        Ok(reply)
    }

    /// The second of the server's clock after which a request that is sent now is not carried out.
    fn not_after(&self) -> u64 {
        self.clock.micros() / 1_000_000 + NOT_AFTER.as_secs()
    }

    /// Whether the server refused a request as late; takes note of what its clock said.
    fn is_late(&self, error: &Error) -> bool {
        let Some(push) = redis_client::detail(error, "LATE") else {
            return false;
        };
        let mut numbers = push
            .split(' ')
            .filter_map(|number| number.parse::<u64>().ok());
        let Some((seconds, micros)) = numbers.next().zip(numbers.next()) else {
            return false;
        };
        self.clock
            .set(seconds * 1_000_000 + micros, BootInstant::now());
        true
    }

    /// Nothing that a connection says after such an answer can be believed.
    fn protocol_error(&self) -> Error {
        for link in [&self.caller_link, &self.background_link]
            .into_iter()
            .chain(&self.wait_link)
        {
            link.with_state(|state| {
                if let State::Up(session, _) = state {
                    session.close();
                }
            });
        }
        redis_client::protocol_error()
    }

    /// What was found by looking may have been told to a connection that has gone deaf. If nothing else is asked on it, nobody
    /// would notice: so it is asked for a sign of life.
    fn probe_push_channel(&self) {
        self.caller_link.with_state(|state| {
            if let State::Up(session, _) = state {
                let session = Arc::clone(session);
                background::handle().spawn(async move {
                    with_reply_timeout(&session, FOREMOST_POLL_INTERVAL, session.ping()).await
                });
            }
        });
    }

    /// When to look again whether somebody's lease has ended or somebody is missing. Where that is too far off, the
    /// claim's renewal does the looking.
    fn next_poll(&self, claim: &Claim, tracked: &TrackedClaim) -> Duration {
        let state = tracked.state();
        let now = BootInstant::now();
        let expired = self
            .observations
            .next_expiry(&claim.name)
            .map_or(Duration::MAX, |expired| {
                expired.duration_since(now).max(POLL_MIN)
            });
        if state.due == LookDue::Grant {
            return Duration::ZERO;
        }
        if state.is_next {
            let next_expiry = state.next_expiry.map_or(POLL_INTERVAL, |next_expiry| {
                next_expiry.duration_since(now).max(POLL_MIN)
            });
            return next_expiry.min(POLL_INTERVAL).min(expired);
        }
        if !self.claims.is_foremost(tracked) {
            // It may be the foremost by then.
            return FOREMOST_POLL_INTERVAL;
        }
        if state.due == LookDue::Absence {
            return Duration::ZERO;
        }
        let interval = FOREMOST_POLL_INTERVAL * state.position.max(2);
        if interval > claim.lease / 3 {
            expired
        } else {
            interval.min(expired)
        }
    }

    /// Whether a waiter asks once its time to look has come: of those of one client that are not next only the foremost
    /// does.
    fn may_look(&self, tracked: &TrackedClaim) -> bool {
        let state = tracked.state();
        state.is_next || state.due == LookDue::Grant || self.claims.is_foremost(tracked)
    }
}

/// How often the first in line looks after the holder.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
const POLL_MIN: Duration = Duration::from_millis(2);
/// How often the foremost of a client's waiters looks, times its position, in case all before it are gone together with
/// the holder. So all waiters of a name together look a number of times that grows with the logarithm of theirs.
const FOREMOST_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How long after its sending a request to enter may be carried out: longer than a connection may be silent before the
/// client gives it up.
const NOT_AFTER: Duration = Duration::from_secs(5);
/// After this time it is certain that the server refuses it, but for a server's clock that was set back: whole seconds are
/// compared, and clocks differ in rate.
const LATE_MAX: Duration = Duration::from_secs(7);

impl EnterMode {
    fn letter(self) -> char {
        match self {
            Self::Queue => 'Q',
            Self::TryNow => 'R',
            Self::Refresh => 'F',
            Self::Look => 'L',
        }
    }
}

/// The script names the share that is there; the words are the same for all stores.
fn mismatch(error: Error, requested: Share) -> Error {
    let Some(push) = redis_client::detail(&error, "MISMATCH") else {
        return error;
    };
    let mut numbers = push
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok());
    let present = numbers
        .next()
        .zip(numbers.next())
        .map(|(weight, capacity)| Share::from_parts(weight, capacity));
    match present.map(|present| present.and_then(|present| requested.check_same_kind(present))) {
        Some(Err(mismatch)) => mismatch,
        _ => error,
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
        let mode = if on_contention == OnContention::Queue {
            EnterMode::Queue
        } else {
            EnterMode::TryNow
        };
        let tracked = self.claims.begin(claim);
        let reply = self.enter_script(claim, mode, &tracked).await?;
        // A claim that waits needs no sign of life: its connection is looked for when its turn comes.
        let mut lease = claim.lease;
        match reply.standing {
            Standing::Gone => drop(self.claims.end(claim.id)),
            Standing::Held { .. } => {
                self.replicated(claim).await?;
                tracked.pass_on();
                lease = self.safe_for(claim);
            }
            Standing::Queued { .. } => {}
        }
        Ok(Entered {
            standing: reply.standing,
            lease,
        })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let tracked = self.claims.listen(claim);
        let mut caller_link = self.caller_link.states();
        loop {
            let on_epoch = tracked.state().caller_epoch;
            let mut changed = pin!(tracked.changed.notified());
            changed.as_mut().enable();
            if let Some(standing) = tracked
                .state()
                .standing
                .filter(|standing| *standing != seen)
            {
                if seen.token().is_none() && standing.token().is_some() {
                    self.replicated(claim).await?;
                    tracked.pass_on();
                }
                return Ok(standing);
            }
            let (waits, was_next) = (seen.token().is_none(), tracked.state().is_next);
            let polls = tokio::select! {
                () = changed => continue,
                // What was told while the connection was broken is lost.
                _ = caller_link.wait_for(is_new(on_epoch)) => false,
                () = tokio::time::sleep(self.next_poll(claim, &tracked)), if waits => true,
                error = self.caller_link.unreachable(reply_timeout(claim.lease)), if waits => return Err(error),
            };
            if polls && !self.may_look(&tracked) {
                continue;
            }
            let reply = self
                .enter_script(
                    claim,
                    if polls {
                        EnterMode::Look
                    } else {
                        EnterMode::Refresh
                    },
                    &tracked,
                )
                .await?;
            if reply.standing == Standing::Gone {
                tracked.revoked();
            }
            let is_news =
                !matches!(reply.standing, Standing::Queued { .. }) || reply.is_next && !was_next;
            if polls && is_news {
                self.probe_push_channel();
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.renew_all(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        // Another's claim takes the way on which its client is told.
        let tracked = self.claims.end(claim.id);
        let mine = tracked.is_some();
        let (key, id) = (record::key_of(&claim.name), redis_client::id_text(claim.id));
        if let Some(until) = tracked
            .and_then(|tracked| tracked.late_until())
            .filter(|until| *until > BootInstant::now())
        {
            self.orphans.release(
                Orphan {
                    key: key.clone(),
                    id: id.clone(),
                },
                until,
            );
        }
        let whose = format!("{}{id}", if mine { 'H' } else { 'B' });
        let reply = self
            .run(
                &scripts::LEAVE,
                claim.lease,
                &[&key],
                &[&whose, &self.client],
            )
            .await?;
        match text(reply)?.split_at_checked(1) {
            Some((there, of)) if of == id => Ok(there == "1"),
            _ => Err(self.protocol_error()),
        }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default()
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let reply = self
            .run(
                &scripts::POLL_INTERVAL,
                READ_TIMEOUT,
                &[&record::key_of(name)],
                &[],
            )
            .await?;
        let records: Vec<String> =
            redis::from_redis_value(reply).map_err(|_| redis_client::protocol_error())?;
        let (last, records) = records
            .split_first()
            .ok_or_else(redis_client::protocol_error)?;
        let mut entries = Vec::with_capacity(records.len());
        for (ahead, record) in (0..).zip(records) {
            entries.push(record::entry(record, ahead)?);
        }
        let last = last.parse().ok().and_then(Token::new);
        Ok(LockState {
            name: name.clone(),
            entries,
            last_token: last,
            external_holders: Vec::new(),
            servers: Vec::new(),
        })
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = record::pattern_of(prefix);
        let listing = redis_client::list(
            &self.background_link,
            &pattern,
            &scripts::NAMES,
            reply_timeout(READ_TIMEOUT),
            record::name_of,
            count_max,
        );
        Ok(listing.await?.into_iter().collect())
    }
}

/// How long to wait for replicas: less than a silence after which a connection counts as deaf.
const REPLICATION_MAX: Duration = Duration::from_millis(1500);

fn is_new(epoch: u32) -> impl FnMut(&State) -> bool {
    move |state| matches!(state, State::Up(session, _) if session.epoch > epoch)
}

impl Redis {
    /// Makes sure that the replicas asked for have a grant; gives it back if not.
    async fn replicated(&self, claim: &Claim) -> Result<()> {
        let Some(wait_link) = &self.wait_link else {
            return Ok(());
        };
        // Most ask for no replicas, and then it is no part of what is made for every question.
        let confirmed = Box::pin(self.confirm(claim, wait_link)).await;
        if confirmed.is_err() {
            self.leave(claim).await?;
        }
        confirmed
    }

    /// Writes once more on the connection that then waits, as WAIT counts what its own connection wrote.
    async fn confirm(&self, claim: &Claim, wait_link: &Link) -> Result<()> {
        let limit = reply_timeout(claim.lease);
        let session = wait_link.session(limit).await?;
        let key = record::key_of(&claim.name);
        let (id, expected) = (
            redis_client::id_text(claim.id),
            record::expected(&self.liveness_ref(claim)),
        );
        let life = record::life(claim).to_string();
        let waiting = async {
            let renewed = scripts::RENEW
                .run(&session, &[&key], &[&id, &expected, &life])
                .await?;
            if !text(renewed)?.ends_with('1') {
                return Err(Error::unavailable(
                    "the grant was lost before its replicas had it",
                ));
            }
            let mut wait = redis::cmd("WAIT");
            wait.arg(self.settings.replicas)
                .arg((limit / 2).min(REPLICATION_MAX).as_millis().to_string());
            let reply = session
                .send(&wait)
                .await
                .map_err(redis_client::store_error)?;
            redis::from_redis_value::<u32>(reply).map_err(|_| redis_client::protocol_error())
        };
        let count = with_reply_timeout(&session, limit, waiting).await?;
        if count >= self.settings.replicas {
            return Ok(());
        }
        let wanted = self.settings.replicas;
        Err(Error::unavailable(format!(
            "only {count} of {wanted} replicas have the grant, so it was given back"
        ))
        .help("bring the replicas back, or ask for fewer with replicas="))
    }
}
