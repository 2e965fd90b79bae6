//! The store on a Redis server.
//!
//! A claim's record and the line are kept by scripts (`redis/lua/`), which grant, hand over and expire in one atomic step.
//! A client has two links to the server. The *near* one is driven by the runtime the store was opened in, so that asking
//! switches no thread; it carries questions and hears of grants. The *far* one is driven by the background thread; it
//! renews, asks for those who cannot wait, and its subscription is what vouches for the client's life.

mod address;
pub(crate) mod belief;
mod greeting;
mod ledger;
mod link;
mod names;
mod orphans;
mod record;
pub(super) mod redlock;
mod renewal;
mod script;
mod session;
mod sightings;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "redis/no_tls.rs")]
mod tls;
mod trouble;

use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use redis::Value;
use tokio::runtime::Handle;
use tokio::time::{Timeout, timeout};

use crate::clock::Moment;
use crate::{
    Claim, Crash, Entered, Error, Line, Name, Patience, Promises, Result, Share, Standing, Store, Token, background,
};
use address::{Address, Terms};
use belief::LookDue;
use greeting::{Presence, ServerClock};
use ledger::{Ledger, Page};
use link::{Greet, Link, Plan, State};
use orphans::{Orphan, Orphans};
use record::{Answer, Bond, Judge, Nonces};
use script::Script;
use session::Session;
use sightings::Sightings;

/// Locks on a Redis server, 6.2 or newer, or Valkey.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let store = leasehold::stores::Redis::at("redis://127.0.0.1")?.crash_grace(Duration::from_secs(2))?.connect().await?;
/// let locks = leasehold::over(store, "redis://127.0.0.1")?;
/// # Ok(()) }
/// ```
///
/// Keys begin with `leasehold:{`, and all of them end: a name's last trace is gone a day after its last lease, or two
/// after it was last waited for.
#[derive(Debug)]
pub struct Redis {
    near: Link,
    far: Link,
    /// Where replicas are waited for, if any are: whatever else were asked on such a link would wait with it.
    waiting: Option<Link>,
    client: Arc<str>,
    ledger: Arc<Ledger>,
    orphans: Orphans,
    sightings: Sightings,
    nonces: Nonces,
    clock: Arc<ServerClock>,
    terms: Terms,
    judged: Arc<Judged>,
}

/// Where to connect, and on which terms.
#[derive(Clone, Debug)]
pub struct RedisAt {
    address: Address,
}

impl Redis {
    /// The server a URL names: `redis://[user[:password]@]host[:port][/database]`, `rediss://…` with TLS, or
    /// `redis+unix:///path/to/socket`.
    ///
    /// | setting | |
    /// |---|---|
    /// | `crash-grace=10s` | see [`RedisAt::crash_grace`]; `off` for [`RedisAt::no_crash_detection`] |
    /// | `replicas=1` | see [`RedisAt::replicas`] |
    /// | `password-file=/path` | a file with the password, read again for every connection |
    /// | `ca=/path` | the authority to trust, in PEM, instead of the system's; `rediss://` only |
    /// | `db=3` | the database, where the path is a socket's |
    /// | `protocol=2` | RESP2, for proxies that say they speak RESP3 and do not |
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a URL nobody understands.
    pub fn at(url: &str) -> Result<RedisAt> {
        Ok(RedisAt { address: Address::parse(url)? })
    }

    async fn open(address: Address, home: Option<Handle>) -> Result<Self> {
        let client: Arc<str> = record::fresh_client().into();
        let (ledger, clock, judged) =
            (Arc::<Ledger>::default(), Arc::<ServerClock>::default(), Arc::<Judged>::default());
        let channel = format!("leasehold:alive:{client}");
        let greet = far_greeting(channel.clone(), Arc::clone(&clock), Arc::clone(&judged), address.terms);
        let far = Link::keep(Plan { address: address.clone(), channel, ear: Arc::new(|_, _| {}), greet, home: None });
        let orphans = Orphans::new(far.states(), Arc::clone(&client));
        let (told, unwanted) = (Arc::clone(&ledger), orphans.clone());
        let near = Link::keep(Plan {
            address: address.clone(),
            channel: format!("leasehold:inbox:{client}"),
            ear: Arc::new(move |_, text| {
                if let Some(orphan) = told.told(text) {
                    unwanted.release(orphan, Moment::now());
                }
            }),
            greet: no_greeting(),
            home,
        });
        let (terms, sightings, nonces) = (address.terms, Sightings::default(), Nonces::default());
        let waiting = (terms.replicas > 0).then(|| Link::keep(waiting_plan(address, &client)));
        let store = Self { near, far, waiting, client, ledger, orphans, sightings, nonces, clock, terms, judged };
        store.far.first().await?;
        store.near.first().await?;
        if let Some(waiting) = &store.waiting {
            waiting.first().await?;
        }
        Ok(store)
    }
}

impl RedisAt {
    /// For how long a holder's connection may be gone before the lock is given to the next; 10 s unless said. From half a
    /// second to an hour. A holder that cannot reach the server for as long has lost its locks, and knows it by then.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is out of range.
    pub fn crash_grace(mut self, grace: Duration) -> Result<Self> {
        self.address.terms.crash_grace = Some(address::check_grace(grace)?);
        Ok(self)
    }

    /// A crash frees a lock only when its lease ends, and a holder that cannot reach the server keeps it until then.
    #[must_use]
    pub fn no_crash_detection(mut self) -> Self {
        self.address.terms.crash_grace = None;
        self
    }

    /// A grant counts only when `count` replicas have it too (`WAIT`); short of them it is given back, and the error says so.
    ///
    /// This makes it less likely, not impossible, that a failover forgets a lock: a promoted replica may be another one.
    #[must_use]
    pub fn replicas(mut self, count: u32) -> Self {
        self.address.terms.replicas = count;
        self
    }

    /// The URL without user, password and settings.
    #[must_use]
    pub fn place(&self) -> String {
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

    pub(crate) async fn connect_on(self, home: Option<Handle>) -> Result<Redis> {
        background::start()?;
        background::within(Redis::open(self.address, home)).await
    }
}

/// Whether holders are judged by their connections; decided at the first greeting, and for good: a holder that counted on
/// its lease alone must not be judged later.
#[derive(Debug, Default)]
struct Judged(AtomicU8);

impl Judged {
    const YES: u8 = 1;
    const NO: u8 = 2;

    fn decide(&self, yes: bool) {
        let decision = if yes { Self::YES } else { Self::NO };
        let _ = self.0.compare_exchange(0, decision, Ordering::AcqRel, Ordering::Acquire);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::YES
    }
}

fn no_greeting() -> Greet {
    Arc::new(|_| Box::pin(async { Ok(None) }))
}

fn waiting_plan(address: Address, client: &str) -> Plan {
    let channel = format!("leasehold:waiting:{client}");
    Plan { address, channel, ear: Arc::new(|_, _| {}), greet: no_greeting(), home: None }
}

/// Each visit asks for the id of the server's history, which is another one after any change of roles. Every tenth also
/// asks for what else was asked at first.
const VISITS_FULL: u32 = 10;

fn far_greeting(channel: String, clock: Arc<ServerClock>, judged: Arc<Judged>, terms: Terms) -> Greet {
    let presence = Arc::<Presence>::default();
    let visits = Arc::<Mutex<(u32, u32)>>::default();
    Arc::new(move |session: Arc<Session>| {
        let (channel, clock) = (channel.clone(), Arc::clone(&clock));
        let (presence, judged) = (Arc::clone(&presence), Arc::clone(&judged));
        let visit = {
            let mut visits = visits.lock();
            let (epoch, count) = *visits;
            *visits = (session.epoch, if epoch == session.epoch { count + 1 } else { 0 });
            visits.1
        };
        Box::pin(async move {
            if visit.is_multiple_of(VISITS_FULL) || !judged.is_on() {
                greeting::greet(&session, &clock).await?;
            }
            if terms.crash_grace.is_none() {
                judged.decide(false);
                return Ok(None);
            }
            let server = presence.ask(&session, &channel).await?;
            judged.decide(server.is_some());
            Ok(server)
        })
    })
}

/// What is asked of enter.lua.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Queue,
    Refuse,
    /// Only a claim that is in line already, whose lease begins anew.
    Find,
    /// Only looks after the holders: a claim that waits keeps the lease it has.
    Look,
}

impl Redis {
    /// The grace, where a claim is judged by its connection: it is kept alive, and its lease is longer.
    fn grace(&self, claim: &Claim) -> Option<Duration> {
        let grace = self.terms.crash_grace.filter(|grace| *grace < claim.lease)?;
        (claim.renewed && self.judged.is_on()).then_some(grace)
    }

    /// How long an answered question about a claim is good for.
    fn safe_for(&self, claim: &Claim) -> Duration {
        self.grace(claim).unwrap_or(claim.lease)
    }

    fn bond(&self, claim: &Claim) -> Bond {
        let grace = self.grace(claim);
        self.far.with_state(|state| {
            let server = if let State::Up(_, server) = state { server.clone() } else { None };
            let judge = server.zip(grace).map(|(server, grace)| Judge { server, grace });
            Bond { client: Arc::clone(&self.client), epoch: state.epoch(), judge }
        })
    }

    /// Asks one of the two links. How long to listen is the caller's to say; a connection that answers nothing is closed
    /// by whoever looks after it.
    async fn run(&self, script: &Script, lease: Duration, keys: &[&str], arguments: &[&str]) -> Result<Value> {
        let link = if self.near.is_home() { &self.near } else { &self.far };
        let session = link.session(patience(lease)).await?;
        script.run(&session, keys, arguments).await
    }

    async fn stand(&self, claim: &Claim, how: How, page: &Page) -> Result<Answer> {
        let (key, id) = (record::key_of(&claim.name), record::id_text(claim.id));
        let (hint, ripe) = self.sightings.hint(&claim.name);
        let bond = self.bond(claim);
        let enters = matches!(how, How::Queue | How::Refuse);
        let whole = claim.share.is_whole() && enters;
        let proposal = if whole { self.clock.micros().max(hint + 1) } else { 0 };
        let record = record::record(claim, &id, proposal, &bond);
        let terms = format!("{}{hint:016}{}{ripe}", how.letter(), self.nonces.fresh());
        let life = record::life(claim).to_string();
        let request = async || {
            let (asked, near) = (Moment::now(), self.near.epoch());
            let not_after = self.not_after().to_string();
            let answer = self.run(&script::ENTER, claim.lease, &[&key], &[&record, &life, &terms, &not_after]).await;
            if enters && answer.as_ref().is_err_and(Error::is_unavailable) {
                page.may_be_late(asked.after(LATE_MAX));
            }
            (answer, asked, near)
        };
        let (mut answer, mut asked, mut near) = request().await;
        if answer.as_ref().is_err_and(|error| self.is_late(error)) {
            // Nothing was done. The server's clock is known now.
            (answer, asked, near) = Box::pin(request()).await;
        }
        let answer = answer.map_err(|error| mismatch(error, claim.share))?;
        let text = text(answer)?;
        let Some(answer) = Answer::parse(&text, &id) else { return Err(self.strange()) };
        self.sightings.read(&claim.name, &answer, &ripe);
        match how {
            How::Look => page.looked(&answer, asked, bond.epoch, near),
            How::Queue | How::Refuse | How::Find => page.answered(&answer, asked, bond.epoch, near),
        }
        Ok(answer)
    }

    /// The second of the server's clock after which a request that is sent now is not carried out.
    fn not_after(&self) -> u64 {
        self.clock.micros() / 1_000_000 + NOT_AFTER.as_secs()
    }

    /// Whether the server refused a request as late; takes note of what its clock said.
    fn is_late(&self, error: &Error) -> bool {
        let Some(told) = trouble::detail(error, "LATE") else { return false };
        let mut numbers = told.split(' ').filter_map(|number| number.parse::<u64>().ok());
        let Some((seconds, micros)) = numbers.next().zip(numbers.next()) else { return false };
        self.clock.set(seconds * 1_000_000 + micros, Moment::now());
        true
    }

    /// Nothing that a connection says after such an answer can be believed.
    fn strange(&self) -> Error {
        for link in [&self.near, &self.far].into_iter().chain(&self.waiting) {
            link.with_state(|state| {
                if let State::Up(session, _) = state {
                    session.poison();
                }
            });
        }
        trouble::strange()
    }

    /// What was found by looking may have been told to a connection that has gone deaf. If nothing else is asked on it, nobody
    /// would notice: so it is asked for a sign of life.
    fn untold(&self) {
        self.near.with_state(|state| {
            if let State::Up(session, _) = state {
                let session = Arc::clone(session);
                background::handle().spawn(async move { answered(&session, BEHIND, session.ping()).await });
            }
        });
    }

    /// When to look again whether somebody's lease has ended or somebody is missing. Where that is too far off, the
    /// claim's renewal does the looking.
    fn next_look(&self, claim: &Claim, page: &Page) -> Duration {
        let known = page.known();
        let now = Moment::now();
        let ripe = self.sightings.next_ripe(&claim.name).map_or(Duration::MAX, |ripe| ripe.since(now).max(LOOK_MIN));
        if known.due == LookDue::Grant {
            return Duration::ZERO;
        }
        if known.is_next {
            let soonest = known.soonest.map_or(LOOK, |soonest| soonest.since(now).max(LOOK_MIN));
            return soonest.min(LOOK).min(ripe);
        }
        if !self.ledger.is_foremost(page) {
            // It may be the foremost by then.
            return BEHIND;
        }
        if known.due == LookDue::Absence {
            return Duration::ZERO;
        }
        let interval = BEHIND * known.position.max(2);
        if interval > claim.lease / 3 { ripe } else { interval.min(ripe) }
    }

    /// Whether a waiter asks once its time to look has come: of those of one client that are not next only the foremost
    /// does.
    fn may_look(&self, page: &Page) -> bool {
        let known = page.known();
        known.is_next || known.due == LookDue::Grant || self.ledger.is_foremost(page)
    }
}

/// How often the first in line looks after the holder.
const LOOK: Duration = Duration::from_millis(400);
const LOOK_MIN: Duration = Duration::from_millis(2);
/// How often the foremost of a client's waiters looks, times its position, in case all before it are gone together with
/// the holder. So all waiters of a name together look a number of times that grows with the logarithm of theirs.
const BEHIND: Duration = Duration::from_secs(2);

/// How long after its sending a request to enter may be carried out: longer than a connection may be silent before the
/// client gives it up.
const NOT_AFTER: Duration = Duration::from_secs(5);
/// After this time it is certain that the server refuses it, but for a server's clock that was set back: whole seconds are
/// compared, and clocks differ in rate.
const LATE_MAX: Duration = Duration::from_secs(7);

impl How {
    fn letter(self) -> char {
        match self {
            Self::Queue => 'Q',
            Self::Refuse => 'R',
            Self::Find => 'F',
            Self::Look => 'L',
        }
    }
}

/// How long to listen for an answer that concerns a lease.
fn patience(lease: Duration) -> Duration {
    (lease / 4).clamp(Duration::from_millis(250), Duration::from_secs(5))
}

/// Listens for an answer for so long. No answer ends the connection.
fn answered<F: Future>(session: &Session, limit: Duration, answer: F) -> Answered<'_, F> {
    Answered { answer: timeout(limit, answer), session, limit }
}

pin_project! {
    /// As an async function it would have room for the future it is given twice.
    struct Answered<'a, F> {
        #[pin]
        answer: Timeout<F>,
        session: &'a Session,
        limit: Duration,
    }
}

impl<T, F: Future<Output = Result<T>>> Future for Answered<'_, F> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.project();
        let Ok(answer) = ready!(this.answer.poll(context)) else {
            this.session.poison();
            return Poll::Ready(Err(Error::unavailable(format!("the server did not answer within {:?}", this.limit))));
        };
        Poll::Ready(answer)
    }
}

fn text(answer: Value) -> Result<String> {
    redis::from_redis_value(answer).map_err(|_| trouble::strange())
}

/// The script names the share that is there; the words are the same for all stores.
fn mismatch(error: Error, asked: Share) -> Error {
    let Some(told) = trouble::detail(&error, "MISMATCH") else { return error };
    let mut numbers = told.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    let present = numbers.next().zip(numbers.next()).map(|(weight, capacity)| Share::from_parts(weight, capacity));
    match present.map(|present| present.and_then(|present| asked.fits_kind(present))) {
        Some(Err(mismatch)) => mismatch,
        _ => error,
    }
}

#[async_trait]
impl Store for Redis {
    fn promises(&self) -> Promises {
        let crash = match self.terms.crash_grace {
            Some(grace) if self.judged.is_on() => Crash::Within(grace),
            _ => Crash::AtLeaseEnd,
        };
        Promises { fifo: true, tokens: true, shares: true, expiry: true, crash }
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        let how = if patience == Patience::Queue { How::Queue } else { How::Refuse };
        let page = self.ledger.begin(claim);
        let answer = self.stand(claim, how, &page).await?;
        // A claim that waits needs no sign of life: its connection is looked for when its turn comes.
        let mut lease = claim.lease;
        match answer.standing {
            Standing::Gone => drop(self.ledger.end(claim.id)),
            Standing::Held { .. } => {
                self.replicated(claim).await?;
                page.pass_on();
                lease = self.safe_for(claim);
            }
            Standing::Queued { .. } => {}
        }
        Ok(Entered { standing: answer.standing, lease })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let page = self.ledger.listen(claim);
        let mut near = self.near.states();
        loop {
            let on_epoch = page.known().near;
            let mut stirred = pin!(page.stirred.notified());
            stirred.as_mut().enable();
            if let Some(standing) = page.known().standing.filter(|standing| *standing != seen) {
                if seen.token().is_none() && standing.token().is_some() {
                    self.replicated(claim).await?;
                    page.pass_on();
                }
                return Ok(standing);
            }
            let (waits, was_next) = (seen.token().is_none(), page.known().is_next);
            let looks = tokio::select! {
                () = stirred => continue,
                // What was told while the connection was broken is lost.
                _ = near.wait_for(is_new(on_epoch)) => false,
                () = tokio::time::sleep(self.next_look(claim, &page)), if waits => true,
                error = self.near.unreachable(patience(claim.lease)), if waits => return Err(error),
            };
            if looks && !self.may_look(&page) {
                continue;
            }
            let answer = self.stand(claim, if looks { How::Look } else { How::Find }, &page).await?;
            if answer.standing == Standing::Gone {
                page.gone();
            }
            let is_news = !matches!(answer.standing, Standing::Queued { .. }) || answer.is_next && !was_next;
            if looks && is_news {
                self.untold();
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.renew_all(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        // Another's claim takes the way on which its client is told.
        let page = self.ledger.end(claim.id);
        let mine = page.is_some();
        let (key, id) = (record::key_of(&claim.name), record::id_text(claim.id));
        if let Some(until) = page.and_then(|page| page.late_until()).filter(|until| *until > Moment::now()) {
            self.orphans.release(Orphan { key: key.clone(), id: id.clone() }, until);
        }
        let whose = format!("{}{id}", if mine { 'H' } else { 'B' });
        let answer = self.run(&script::LEAVE, claim.lease, &[&key], &[&whose, &self.client]).await?;
        match text(answer)?.split_at_checked(1) {
            Some((there, of)) if of == id => Ok(there == "1"),
            _ => Err(self.strange()),
        }
    }

    fn anchors(&self, _claim: &Claim) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    async fn look(&self, name: &Name) -> Result<Line> {
        let answer = self.run(&script::LOOK, LISTEN, &[&record::key_of(name)], &[]).await?;
        let records: Vec<String> = redis::from_redis_value(answer).map_err(|_| trouble::strange())?;
        let (last, records) = records.split_first().ok_or_else(trouble::strange)?;
        let mut entries = Vec::with_capacity(records.len());
        for (ahead, record) in (0..).zip(records) {
            entries.push(record::entry(record, ahead)?);
        }
        let last = last.parse().ok().and_then(Token::new);
        Ok(Line { name: name.clone(), entries, last, strangers: Vec::new(), views: Vec::new() })
    }

    async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = record::pattern_of(prefix);
        let listing = names::in_use(&self.far, &pattern, &script::NAMES, patience(LISTEN), record::name_of, count_max);
        Ok(listing.await?.into_iter().collect())
    }
}

/// How long to listen for an answer that concerns no lease of ours, times four.
const LISTEN: Duration = Duration::from_secs(20);

/// How long to wait for replicas: less than a silence after which a connection counts as deaf.
const REPLICATION_MAX: Duration = Duration::from_millis(1500);

fn is_new(epoch: u32) -> impl FnMut(&State) -> bool {
    move |state| matches!(state, State::Up(session, _) if session.epoch > epoch)
}

impl Redis {
    /// Makes sure that the replicas asked for have a grant; gives it back if not.
    async fn replicated(&self, claim: &Claim) -> Result<()> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        // Most ask for no replicas, and then it is no part of what is made for every question.
        let confirmed = Box::pin(self.confirm(claim, waiting)).await;
        if confirmed.is_err() {
            self.leave(claim).await?;
        }
        confirmed
    }

    /// Writes once more on the connection that then waits, as WAIT counts what its own connection wrote.
    async fn confirm(&self, claim: &Claim, waiting: &Link) -> Result<()> {
        let limit = patience(claim.lease);
        let session = waiting.session(limit).await?;
        let key = record::key_of(&claim.name);
        let (id, expected) = (record::id_text(claim.id), record::expected(&self.bond(claim)));
        let life = record::life(claim).to_string();
        let waiting = async {
            let renewed = script::RENEW.run(&session, &[&key], &[&id, &expected, &life]).await?;
            if !text(renewed)?.ends_with('1') {
                return Err(Error::unavailable("the grant was lost before its replicas had it"));
            }
            let mut wait = redis::cmd("WAIT");
            wait.arg(self.terms.replicas).arg((limit / 2).min(REPLICATION_MAX).as_millis().to_string());
            let answer = session.ask(&wait).await.map_err(trouble::told)?;
            redis::from_redis_value::<u32>(answer).map_err(|_| trouble::strange())
        };
        let count = answered(&session, limit, waiting).await?;
        if count >= self.terms.replicas {
            return Ok(());
        }
        let wanted = self.terms.replicas;
        Err(Error::unavailable(format!("only {count} of {wanted} replicas have the grant, so it was given back"))
            .remedy("bring the replicas back, or ask for fewer with replicas="))
    }
}
