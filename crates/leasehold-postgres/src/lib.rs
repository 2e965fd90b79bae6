//! The store of [leasehold](https://docs.rs/leasehold) on PostgreSQL: only the crate `leasehold`
//! follows semantic versioning, and a program names nothing of this one.
//!
//! Functions in the database (`sql/`) keep the queue of a name. They grant, hand over and expire in
//! one statement; docs/protocols/postgres.md has the protocol in numbered steps.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod claims;
mod connection;
mod driver;
mod examination;
mod function;
mod inspect;
mod password_file;
mod pins;
mod records;
mod reply_error;
mod schema;
mod session;
mod steps;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{sleep, timeout};

use address::{Address, PinLimit};
use claims::{ClaimState, Claims, FAR_LOOK_MIN, Renewed, TrackedClaim};
use examination::examine;
use leasehold_core::internal::{
    BootInstant, Observations, ProcessFile, RevokeEnded, SeenHold, StoreKind, UnopenedStore,
    background, revoke_ended,
};
use leasehold_core::store::{
    Claim, Entered, Extensions, OnContention, Pinning, RecordReader, Records, Standing, Store,
    replies,
};
use leasehold_core::{
    Completion, CrashRelease, Guarantees, LockState, Name, Record, Result, SemaphoreSupport, Token,
};
pub use schema::CHECK;
use session::{Context, Session, Supervisor};
use steps::{Mode, Reply};
use uuid::Uuid;

/// The stores on PostgreSQL.
#[doc(hidden)]
pub static POSTGRES: StoreKind = StoreKind {
    help: &[
        ("postgres://user@host/database", "a PostgreSQL database"),
        (
            "postgres:///database",
            "the same, by the server's socket on this machine",
        ),
    ],
    aliases: &[("pgsql", "write postgres://user@host/database")],
    ..StoreKind::new(&[&address::FORM], |url| {
        let builder = Postgres::builder(url)?;
        let address = builder.address.clone();
        let guarantees = guarantees(address.settings.crash_grace);
        let opening = UnopenedStore::new(builder.url(), guarantees, move |_| {
            builder.clone().connect()
        });
        Ok(opening.examined_by(move || examine(address.clone())))
    })
};

fn guarantees(crash_grace: Option<Duration>) -> Guarantees {
    let crash_release = crash_grace.map_or(CrashRelease::LeaseExpiry, replies::released_within);
    let mut guarantees = replies::guarantees(crash_release);
    guarantees.fifo = true;
    guarantees.tokens = true;
    guarantees.rwlock = true;
    guarantees.semaphore = SemaphoreSupport::WhileInUse;
    guarantees.lease_expiry = true;
    guarantees.cohorts = true;
    guarantees
}

/// Locks in a PostgreSQL database, 15 or newer.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let builder = leasehold::stores::Postgres::builder("postgres://app@127.0.0.1/orders")?;
/// let url = builder.url();
/// let locks = leasehold::Locks::from_store(builder.connect().await?, &url)?;
/// # Ok(()) }
/// ```
///
/// The tables and functions are in the schema `leasehold`, which the first client makes.
#[derive(Debug)]
pub struct Postgres {
    supervisor: Supervisor,
    address: Arc<Address>,
    claims: Arc<Claims>,
    observations: Observations<Uuid>,
    /// Shows other clients of the machine whether this process has ended.
    _process_file: Option<ProcessFile>,
}

impl Postgres {
    /// Parses `postgres://[user[:password]@]host[:port][,host…]/database`, or
    /// `postgres:///database` for the server's socket on this machine.
    ///
    /// | setting | |
    /// |---|---|
    /// | `crash-grace=10s` | how long the client trusts a connection that is gone; `off` turns crash detection off |
    /// | `pin-limit=30s` | for how long a waiter lets a transaction [pin](leasehold_core::Guard::check_binds) a grant that is over, before it ends its session; `off`: for ever; by default for the waiter's lease |
    /// | `records=40d` | how long the record of a job that runs [once](leasehold_core::Once) is kept |
    /// | `schema=leasehold` | the schema of the functions |
    /// | `host=/path` | the folder of the server's socket |
    /// | `sslmode=disable` | allows a connection to another machine without encryption; or `verify-full` |
    /// | `direct=host:port` | the server itself behind a pooler |
    /// | `password-file=/path` | a file with the password, read again for every connection |
    /// | `ca`, `cert`, `key` | PEM files of TLS |
    ///
    /// # Errors
    /// [`is_invalid`](leasehold_core::Error::is_invalid) for a URL that cannot be parsed.
    pub fn builder(url: &str) -> Result<PostgresBuilder> {
        let address = Address::parse(url)?;
        Ok(PostgresBuilder { address })
    }

    /// The grace, unless there is a session that proves nothing.
    fn possible_grace(&self) -> Option<Duration> {
        let session = self.supervisor.current();
        let has_proof = session.is_none_or(|session| session.proof.is_some());
        let grace = self.address.settings.crash_grace;
        grace.filter(|_| has_proof)
    }

    /// Whether notifications reach this client: there is no pooler in between.
    fn is_notified(&self) -> bool {
        let session = self.supervisor.current();
        session.is_some_and(|session| session.proof.is_some())
    }

    /// Enters or looks, and applies the reply. Returns it, and the grace of the session that sent the
    /// request: it may have ended since, and then others see that it is gone.
    async fn send(
        &self,
        claim: &Claim,
        mode: Mode,
        tracked: &TrackedClaim,
    ) -> Result<(Reply, Option<Duration>)> {
        let limit = steps::reply_timeout(claim.lease);
        let session = self.supervisor.session(limit).await?;
        // A look does not bind the claim to this session.
        let is_bound = tracked.state().epoch() == session.epoch;
        let mode = match mode {
            Mode::Look if !is_bound => Mode::Refresh,
            mode => mode,
        };
        let (hint, ended) = self.observations.hint(&claim.name);
        let grace = session.grace;
        let request = steps::Request {
            claim,
            mode,
            grace,
            hint,
            ended: &ended,
        };
        let sent_at = BootInstant::now();
        let reply = steps::enter(&session, request, tracked).await?;

        let token = reply.standing.token();
        self.observations
            .observe(&claim.name, token, &reply.absences, &ended);
        let is_extended = mode != Mode::Look || reply.standing.token().is_some();
        let sent = is_extended.then_some((sent_at, session.epoch));
        tracked.apply_reply(reply.standing, reply.place, sent);
        let state = tracked.state();
        tracked.look_at(self.next_look(claim, &reply, &state));
        if state.is_near() && session.listen().await? {
            // A grant since the reply was not notified.
            tracked.look_at(BootInstant::now());
        }
        Ok((reply, grace))
    }

    /// When a waiter looks again. Nobody is notified of the end of a lease, of a session or of a
    /// user's transaction, and only waiters near the front of their grant. The others learn their
    /// place from each renewal too, which puts off their look: a queue that stands still is read
    /// once for each renewal.
    fn next_look(&self, claim: &Claim, reply: &Reply, state: &ClaimState) -> BootInstant {
        let longest = claim.lease / 3;
        let pause = if reply.pinned_for.is_some() {
            PINNED_INTERVAL.min(longest)
        } else if reply.place == 0 {
            let interval = if self.is_notified() {
                LOOK_INTERVAL
            } else {
                state.pace().clamp(FAR_LOOK_MIN, LOOK_INTERVAL)
            };
            let lease_end = reply.next_end.unwrap_or(interval);
            lease_end.clamp(LOOK_MIN, interval).min(longest)
        } else if state.is_near() && self.is_notified() {
            (NEAR_LOOK_INTERVAL * (reply.place + 1)).min(longest)
        } else {
            state.far_pause(claim.lease)
        };
        let at = BootInstant::now().saturating_add(pause);
        let absence_end = self.observations.next_end(&claim.name);
        absence_end.map_or(at, |end| at.min(end))
    }

    /// Ends the sessions that pin a grant for too long, if this waiter is the next one. The transactions
    /// roll back, and a later look finds the lock free.
    async fn end_pins(&self, claim: &Claim, pinned_for: Duration, tracked: &TrackedClaim) {
        let limit = match self.address.settings.pin_limit {
            PinLimit::Lease => claim.lease,
            PinLimit::After(limit) => limit,
            PinLimit::Never => return,
        };
        if pinned_for <= limit || tracked.state().place > 0 || !tracked.may_end_pins(claim.lease) {
            return;
        }
        let Some(session) = self.supervisor.current() else {
            return;
        };
        // Without a reply, the next look finds the same, or another session.
        let ending = timeout(READ_TIMEOUT, pins::end(&session, &claim.name, limit));
        if let Ok(Err(error)) = ending.await {
            tracing::warn!(%error, name = %claim.name, "the sessions that pin a grant do not end");
        }
    }

    /// Forgets a claim that leaves; returns until when a request to enter it may still be executed.
    fn forget(&self, claim: &Claim) -> Option<BootInstant> {
        let tracked = self.claims.end(claim.id)?;
        tracked.state().late_until()
    }

    /// Waits until the standing of a claim differs from `seen`.
    async fn changed_from(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let waits = seen.token().is_none();
        let is_fixed = !waits && !claim.auto_renew;
        let limit = steps::reply_timeout(claim.lease);
        loop {
            let Some(tracked) = self.claims.tracked(claim.id) else {
                return Ok(Standing::Gone);
            };
            let mut changed = pin!(tracked.changed.notified());
            changed.as_mut().enable();

            let state = tracked.state();
            if let Some(standing) = state.standing.filter(|standing| *standing != seen) {
                if standing.token().is_some() {
                    tracked.pass_on();
                }
                return Ok(standing);
            }

            let epoch = state.epoch();
            let next_look = state.next_look.unwrap_or_else(BootInstant::now);
            let pause = next_look.duration_since(BootInstant::now());
            let mode = tokio::select! {
                biased;
                () = changed => continue,
                // Notifications sent in between are lost.
                () = session::other_than(&self.supervisor, epoch), if !is_fixed => Mode::Refresh,
                // A refresh would begin the lease again, and nobody renews it.
                () = sleep(limit), if is_fixed => {
                    let session = self.supervisor.session(limit).await?;
                    steps::look_at_holds(&session, &[(claim, &tracked)]).await?;
                    continue;
                }
                () = sleep(pause.max(LOOK_MIN)), if waits => Mode::Look,
                error = self.supervisor.unreachable(limit), if waits => return Err(error),
            };
            let (reply, _) = self.send(claim, mode, &tracked).await?;
            if let Some(pinned_for) = reply.pinned_for {
                self.end_pins(claim, pinned_for, &tracked).await;
            }
            if reply.has_absent_holder() && revoke_ended(self, claim).await {
                tracked.look_at(BootInstant::now());
            }
            if reply.standing == Standing::Gone {
                tracked.apply_renewal(Renewed::Gone, (BootInstant::now(), epoch));
            }
        }
    }
}

/// Lets a claim that has left leave once more, after the last moment at which a request without a reply
/// may have entered it.
fn leave_again(session: Arc<Session>, claim: &Claim, late_until: Option<BootInstant>) {
    if let Some(until) = late_until.filter(|until| *until > BootInstant::now()) {
        let claim = claim.clone();
        background::spawn(async move {
            sleep(until.duration_since(BootInstant::now())).await;
            // If it fails, the claim ends with its lease.
            let _ = steps::leave(&session, &claim).await;
        });
    }
}

/// A PostgreSQL store that is not connected yet.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::Postgres};
///
/// let builder = Postgres::builder("postgres://me@localhost/app")?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # drop(locks);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresBuilder {
    address: Address,
}

impl PostgresBuilder {
    /// Returns the URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Returns the statements that make the schema or upgrade an older one, for a tool that migrates
    /// databases, and those that let the roles use it. They are one transaction, and may be executed
    /// again.
    ///
    /// ```
    /// # fn main() -> leasehold::Result<()> {
    /// let builder = leasehold::stores::Postgres::builder("postgres://owner@127.0.0.1/orders")?;
    /// let statements = builder.setup_sql(["orders_service"]);
    /// assert!(statements.contains("GRANT EXECUTE"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn setup_sql<'a>(&self, roles: impl IntoIterator<Item = &'a str>) -> String {
        let schema = &self.address.schema;
        let grants = roles.into_iter().map(|role| schema::grants(schema, role));
        let grants: String = grants.collect();
        format!("BEGIN;\n{}{grants}COMMIT;\n", schema::text(schema))
    }

    /// Makes the schema or upgrades an older one, and lets the roles use it. This may be repeated.
    ///
    /// Running clients go on. Roles that use the schema may also call what an upgrade adds.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`is_denied`](leasehold_core::Error::is_denied) if the role of the
    /// URL may not do it.
    pub async fn set_up(self, roles: &[String]) -> Result<()> {
        background::start()?;
        background::on_background(session::set_up(self.address, roles.to_vec())).await
    }

    /// Connects to the server. Makes the schema if there is none, and upgrades an older one if the role
    /// owns it; another role uses the older one, which has no records of completed jobs.
    ///
    /// # Errors
    /// - [`is_unavailable`](leasehold_core::Error::is_unavailable) if no server can be reached;
    /// - [`is_denied`](leasehold_core::Error::is_denied) if the server rejects the role, or the role
    ///   may neither use nor make the schema;
    /// - [`is_invalid`](leasehold_core::Error::is_invalid) if there is no such database.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections.
    pub async fn connect(self) -> Result<Postgres> {
        background::start()?;
        let address = Arc::new(self.address);
        let claims = Arc::<Claims>::default();
        let context = Context::new(Arc::clone(&address), Arc::clone(&claims));
        let has_grace = address.settings.crash_grace.is_some();
        let client = context.client.to_string();
        let process_file = has_grace.then(|| ProcessFile::create(&client)).flatten();
        let store = Postgres {
            supervisor: Supervisor::spawn(context),
            address,
            claims,
            observations: Observations::default(),
            _process_file: process_file,
        };
        background::on_background(store.supervisor.first()).await?;
        Ok(store)
    }
}

#[async_trait]
impl Store for Postgres {
    fn guarantees(&self) -> Guarantees {
        guarantees(self.possible_grace())
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let mode = match on_contention {
            OnContention::Fail => Mode::Try,
            _ => Mode::Queue,
        };
        let sent_at = BootInstant::now();
        let tracked = self.claims.begin(claim);
        let (mut reply, mut grace) = self.send(claim, mode, &tracked).await?;
        if mode == Mode::Try && reply.has_absent_holder() && revoke_ended(self, claim).await {
            (reply, grace) = self.send(claim, mode, &tracked).await?;
        }

        let mut lease = claim.lease;
        match reply.standing {
            Standing::Gone => {
                // A request of an earlier session may still enter it.
                let late_until = self.forget(claim);
                if let Some(session) = self.supervisor.current() {
                    leave_again(session, claim, late_until);
                }
            }
            Standing::Held { .. } => {
                tracked.pass_on();
                let grace = grace.filter(|_| claim.auto_renew);
                let state = tracked.state();
                lease = state.trusted_for(claim.lease, grace, (sent_at, Some(state.epoch())));
            }
            _ => {}
        }
        Ok(Entered::new(reply.standing, lease))
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        self.changed_from(claim, Standing::Queued { ahead }).await
    }

    async fn lost(&self, claim: &Claim, token: Token) -> Result<()> {
        self.changed_from(claim, Standing::Held { token }).await?;
        Ok(())
    }

    /// Renews claims: by an update every third of a lease, and in between by a look at the hold on
    /// the connection that proves the client. A hold whose queue somebody keeps locked has the look
    /// alone, until its lease ends, so that the others are renewed.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let sent_at = BootInstant::now();
        let limit = claims.iter().map(|claim| steps::reply_timeout(claim.lease));
        let limit = limit.min().unwrap_or_default();
        let session = self.supervisor.session(limit).await?;
        let grace = session.grace;
        let until = sent_at.saturating_add(grace.map_or(limit, |grace| limit.min(grace / 3)) / 2);

        let tracked: Vec<_> = claims
            .iter()
            .map(|claim| self.claims.tracked(claim.id))
            .collect();
        let known: Vec<(&Claim, &TrackedClaim)> = claims
            .iter()
            .zip(&tracked)
            .filter_map(|(claim, tracked)| Some((claim, tracked.as_deref()?)))
            .collect();
        let (covered, uncovered): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|(claim, tracked)| {
                let state = tracked.state();
                grace.is_some()
                    && claim.auto_renew
                    && state.is_covered(session.epoch, claim.lease, sent_at)
            });
        let (due, mut blocked): (Vec<_>, Vec<_>) = uncovered
            .into_iter()
            .partition(|(claim, tracked)| tracked.may_renew(claim.lease, session.epoch));
        // A claim with a fixed lease is renewed while it waits, and then lasts for its lease, whatever
        // becomes of the session.
        let (bound, fixed): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(claim, _)| claim.auto_renew);
        for (claims, grace) in [(bound, grace), (fixed, None)] {
            for part in claims.chunks(RENEWED_AT_A_TIME) {
                blocked.extend(steps::renew_unblocked(&session, part, grace, until).await?);
            }
        }
        let (held, unproven): (Vec<_>, Vec<_>) = blocked
            .into_iter()
            .partition(|(_, tracked)| tracked.state().is_held());
        steps::look_at_holds(&session, &[covered, held].concat()).await?;

        let renewed = claims.iter().zip(&tracked).map(|(claim, tracked)| {
            let state = tracked.as_ref()?.state();
            let is_gone = state.standing == Some(Standing::Gone);
            let grace = grace.filter(|_| claim.auto_renew);
            let is_proven = unproven.iter().all(|(other, _)| other.id != claim.id);
            let proven = is_proven.then_some(session.epoch);
            (!is_gone).then(|| state.trusted_for(claim.lease, grace, (sent_at, proven)))
        });
        Ok(renewed.collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let tracked = self.claims.tracked(claim.id);
        let session = self
            .supervisor
            .session(steps::reply_timeout(claim.lease))
            .await?;
        let was_there = steps::leave(&session, claim).await?;
        // Not before: if this request fails, the next one needs to know what may still arrive.
        self.claims.end(claim.id);
        let late_until = tracked.and_then(|tracked| tracked.state().late_until());
        leave_again(session, claim, late_until);
        Ok(was_there)
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            pinning: Some(self),
            records: Some(self),
            ..Extensions::default()
        }
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        inspect::inspect(&session, name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        inspect::list(&session, &session.functions.list, prefix, count_max).await
    }
}

impl Pinning for Postgres {
    fn check_statement(&self) -> String {
        schema::named(&self.address.schema, CHECK)
    }

    fn bound_name(&self, name: &Name) -> String {
        steps::stored(name)
    }
}

#[async_trait]
impl Records for Postgres {
    async fn kept(&self) -> Result<Duration> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        records::functions(&session)?;
        Ok(self.address.settings.records)
    }

    async fn record(&self, name: &Name, reader: RecordReader) -> Result<Record> {
        let life = match reader {
            RecordReader::Holder => self.address.settings.records,
            RecordReader::Observer => Duration::ZERO,
        };
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        records::read(&session, name, life).await
    }

    async fn complete(&self, claim: &Claim, completion: &Completion) -> Result<bool> {
        let limit = steps::reply_timeout(claim.lease);
        let session = self.supervisor.session(limit).await?;
        let life = self.address.settings.records;
        let is_recorded = records::complete(&session, claim, completion, life).await?;
        if is_recorded {
            leave_again(session, claim, self.forget(claim));
        }
        Ok(is_recorded)
    }

    async fn list_records(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        let function = &records::functions(&session)?.list;
        inspect::list(&session, function, prefix, count_max).await
    }
}

#[async_trait]
impl RevokeEnded for Postgres {
    async fn bound_holds(&self, name: &Name) -> Result<Vec<SeenHold>> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        inspect::bound_holds(&session, name).await
    }

    async fn revoke_ended(&self, seen: &SeenHold, seen_by: &Claim) -> Result<bool> {
        let session = self.supervisor.session(READ_TIMEOUT).await?;
        inspect::revoke_ended(&session, seen, seen_by).await
    }
}

/// How often the first waiter looks at the holder, of whose crash nobody is notified.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How often a waiter behind it does, for each place, because the first one may have crashed too.
const NEAR_LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(2);
/// How often a waiter looks whether the transaction has ended that keeps it waiting.
const PINNED_INTERVAL: Duration = Duration::from_millis(50);
/// How long reading takes at most.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How many claims one statement renews. It keeps a lock for each of them until it ends.
const RENEWED_AT_A_TIME: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// A client without a session may have proven a claim, and others see that it is gone.
    #[test]
    fn grace_is_promised_while_there_is_no_session() {
        background::start().expect("a thread can be started");
        let url = "postgres://me@127.0.0.1:1/app?crash-grace=2s";
        let address = Arc::new(Address::parse(url).expect("a URL"));
        let claims = Arc::<Claims>::default();
        let context = Context::new(Arc::clone(&address), Arc::clone(&claims));
        let store = Postgres {
            supervisor: Supervisor::spawn(context),
            address,
            claims,
            observations: Observations::default(),
            _process_file: None,
        };
        let promised = store.guarantees().crash_release;
        assert_eq!(promised, replies::released_within(Duration::from_secs(2)));
    }
}
