//! Redlock: one lock kept by several masters that know nothing of each other, and held by whom most of them have granted it.
//!
//! A master remembers the last token it has granted and grants a larger one only. So the votes that make a hold carry a token,
//! and tokens rise, whatever the clocks do. What a master does with a vote is the rule in [`rule`]; so is how a round of
//! questions is counted. The lock of the articles (`SET NX PX`) is the same with one master, and in a format in which it remembers nothing.

mod address;
mod events;
mod master;
mod pages;
mod record;
mod round;
pub mod rule;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::record::fresh_client;
use super::session::Ear;
use super::{LISTEN, names, patience, trouble};
use crate::clock::Moment;
use crate::{
    Claim, Crash, Entered, Entry, Error, Line, Name, Patience, Promises, Result, Share, Standing, Store, Token, View,
    Vote, background,
};
use address::Masters;
use events::{Events, Listening};
use master::Master;
use pages::{Page, Pages};
use record::{Format, Holder, Seen};
use round::{Aim, Ballot};
use rule::{Outcome, quorum};

/// Locks on several Redis servers of which a minority may fail, or in a format that other libraries use too.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let store = leasehold::stores::Redlock::at("redlock://a:6379,b:6379,c:6379")?.connect().await?;
/// let locks = leasehold::over(store, "redlock://a,b,c")?;
/// # Ok(()) }
/// ```
///
/// Mutual exclusion only: shares are refused as [unsupported](Error::is_unsupported). Waiters are known to their own client, so that
/// [`look`](crate::Locks::look) shows those of this one alone.
#[derive(Debug)]
pub struct Redlock {
    masters: Arc<[Master]>,
    pages: Arc<Pages>,
    client: Arc<str>,
    /// The last three digits of every token of this client, so that two of them propose none alike.
    digits: u64,
    home: Option<Handle>,
    format: Format,
    longest_lease: Duration,
    /// Why a quorum could not be asked the last time.
    silence: Mutex<Option<Error>>,
    /// Where one server has the lock in a format in which others tell nobody that they give it back.
    events: Option<Arc<Events>>,
}

/// Where to connect, and on which terms.
#[derive(Clone, Debug)]
pub struct RedlockAt {
    masters: Masters,
}

impl Redlock {
    /// The servers a URL names: `redlock://[user[:password]@]host[:port],host[:port],…[/database]`, `redlocks://…` with TLS; three to
    /// fifteen. Or one, as `redis://…?dialect=plain`.
    ///
    /// | setting | |
    /// |---|---|
    /// | `dialect=classic` | with `redlock://`: the format of redsync, node-redlock, rslock and others, to share locks with them; tokens are not promised |
    /// | `dialect=plain` | with `redis://`: the format of the articles, and of redis-py, rslock and others, on one server |
    /// | `tokens=on` | with a dialect: tokens are counted in a key of their own; they tell our own holders apart, not others |
    /// | `longest-lease=60s` | the longest lease anybody takes there, the same for all clients |
    /// | `quarantine=off` | for masters that never forget what they have answered (`appendfsync always`) |
    /// | `password-file`, `ca`, `db`, `protocol` | as with `redis://` |
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a URL nobody understands, fewer than three masters, or one that is named twice.
    pub fn at(url: &str) -> Result<RedlockAt> {
        Ok(RedlockAt { masters: Masters::parse(url)? })
    }

    async fn open(at: Masters, home: Option<Handle>) -> Result<Self> {
        let (client, pages): (Arc<str>, _) = (fresh_client().into(), Arc::<Pages>::default());
        let runs = Arc::default();
        let events =
            if let [alone] = &at.addresses[..] { Some(Events::of(alone.database, &client).into()) } else { None };
        let master = |(number, address)| {
            let ear = ear(number, Arc::clone(&pages), events.clone());
            Master::keep(address, at.terms, Arc::clone(&runs), &client, ear, home.clone())
        };
        let masters: Arc<[Master]> = at.addresses.iter().enumerate().map(master).collect();
        let digits = uuid::Uuid::new_v4().as_u64_pair().1 % 1_000;
        let (format, longest_lease) = (at.format, at.terms.longest_lease);
        let silence = Mutex::default();
        let store = Self { masters, pages, client, digits, home, format, longest_lease, silence, events };
        store.first().await?;
        Ok(store)
    }

    /// Waits until a quorum of masters is connected, and a moment longer for the others.
    ///
    /// A refusal counts like a vote: it ends the opening only when the others are too few to decide. The links of masters
    /// that refuse or are silent go on connecting, so that their votes count as soon as they are mended.
    async fn first(&self) -> Result<()> {
        /// Enough for a master as near as the others.
        const STRAGGLERS_MAX: Duration = Duration::from_millis(50);
        let quorum = quorum(self.masters.len());
        let mut connecting: stream::FuturesUnordered<_> =
            self.masters.iter().map(|master| async move { (master, master.first().await) }).collect();
        let (mut there, mut refusals, mut troubles, mut until) = (0, 0, Vec::new(), None);
        loop {
            let next = match until {
                Some(until) => tokio::time::timeout_at(until, connecting.next()).await.ok().flatten(),
                None => connecting.next().await,
            };

            match next {
                Some((_, Ok(()))) => there += 1,
                // No failure of a minority but a mistake in the URL.
                Some((master, Err(error))) if master.trust.is_duplicate() => return Err(error),
                Some((master, Err(error))) => {
                    refusals += usize::from(!error.is_unavailable());
                    if self.no_quorum_without(refusals) {
                        return Err(error);
                    }
                    tracing::warn!(server = master.place, %error, "opening the store without this master for now");
                    troubles.push(format!("{}: {error}", master.place));
                }
                None => break,
            }

            if there >= quorum && until.is_none() {
                until = Some(Instant::now() + STRAGGLERS_MAX);
            }
        }

        tracing::debug!(there, ?troubles, "masters");
        if there >= quorum { Ok(()) } else { self.second_chance(&troubles).await }
    }

    /// A master may just have been busy, or was cut off for a moment.
    #[cold]
    async fn second_chance(&self, troubles: &[String]) -> Result<()> {
        const LITTLE: Duration = Duration::from_secs(2);
        let sessions = join_all(self.masters.iter().map(|master| master.far.session(LITTLE))).await;
        let there = sessions.iter().filter(|session| session.is_ok()).count();
        if there >= quorum(self.masters.len()) { Ok(()) } else { Err(self.too_few(there, troubles)) }
    }

    /// Whether the other masters are too few to decide, if this number of them refuses.
    fn no_quorum_without(&self, refusals: usize) -> bool {
        refusals > self.masters.len() - quorum(self.masters.len())
    }

    fn too_few(&self, there: usize, troubles: &[String]) -> Error {
        let (all, quorum) = (self.masters.len(), quorum(self.masters.len()));
        let why = if troubles.is_empty() { String::new() } else { format!(" ({})", troubles.join("; ")) };
        if all == 1 {
            return Error::unavailable(format!("the server does not answer{why}"));
        }
        Error::unavailable(format!("only {there} of {all} masters vote, and it takes {quorum}{why}"))
            .remedy("bring the others back")
    }
}

/// What a master tells this client.
fn ear(number: usize, pages: Arc<Pages>, events: Option<Arc<Events>>) -> Ear {
    Arc::new(move |channel, text| match &events {
        Some(events) if events.is_theirs(channel) => {
            if let Some(key) = events.freed(channel, text) {
                pages.freed(number, key);
            }
        }
        _ => pages.told(number, text),
    })
}

impl RedlockAt {
    /// The URL without user, password and settings.
    #[must_use]
    pub fn place(&self) -> String {
        self.masters.to_string()
    }

    /// Connects; connections are made again by themselves whenever they break.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if fewer masters than a majority can be reached, [`is_invalid`](Error::is_invalid) if
    /// two of them are one server or one is a replica, [`is_denied`](Error::is_denied) and
    /// [`is_unsupported`](Error::is_unsupported) as with [`Redis`](super::Redis).
    ///
    /// *Cancel safety*: dropping the future closes what it opened.
    pub async fn connect(self) -> Result<Redlock> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, home: Option<Handle>) -> Result<Redlock> {
        background::start()?;
        background::within(Redlock::open(self.masters, home)).await
    }
}

/// What asking for a lock has come to.
enum Bid {
    Held(Token),
    /// Somebody has it, for so much longer if he renews it no more.
    Busy(Option<Duration>),
}

/// How often votes that were split among several are asked for again before somebody is taken to have it.
const SPLITS_MAX: u32 = 6;
/// How often a token that is too low is raised.
const RAISES_MAX: u32 = 4;

impl Redlock {
    fn page(&self, claim: &Claim) -> Result<Arc<Page>> {
        if claim.share.units() != Share::MUTEX.units() {
            return Err(Error::unsupported(format!("this store supports mutexes only, not {}", claim.share.kind()))
                .remedy("use a mutex, or the stores redis: and file: for shares"));
        }
        if claim.lease > self.longest_lease {
            let longest = self.longest_lease;
            return Err(Error::invalid(format!("the longest lease on these masters is {longest:?}"))
                .remedy("take a shorter one, or open the store with longest-lease=, the same for all clients"));
        }
        let lanes = if self.format == Format::Fenced { 0 } else { self.masters.len() };
        Ok(self.pages.begin(claim, self.format.keys(&claim.name)?, lanes, self.micros()))
    }

    /// For how long masters keep a vote: longer than the holder counts on it, as their clocks differ in rate from his.
    fn life(&self, lease: Duration) -> Duration {
        if self.masters.len() == 1 { lease } else { lease.mul_f64(1.01) + Duration::from_millis(2) }
    }

    /// More than any token seen: what the masters' clocks say, or the highest seen.
    ///
    /// Tokens that masters have answered may be ahead of their clocks by any time, as clocks that were ahead are set right.
    fn proposal(&self, page: &Page) -> Result<u64> {
        const DAY: u64 = 24 * 60 * 60 * 1_000_000_000;
        /// A record has 19 digits for a token.
        const HIGHEST: u64 = 9_999_999_999_999_999_999;
        let now = self.micros() * 1_000;
        let answered = self.pages.highest(&page.claim.name).max(page.answered());
        let seen = answered.max(page.highest());
        if seen > answered.max(now).saturating_add(DAY) {
            return Err(Error::invalid(format!(
                "the token {seen} proposed for this name is more than a day ahead of the masters' clocks and tokens"
            ))
            .remedy("set the clocks right, or use another name"));
        }

        let token = now + self.digits;
        if token > seen {
            return Ok(token);
        }
        if seen > HIGHEST - 2_000 {
            return Err(Error::damaged(format!("no token is larger than {seen}, which a master has for this name"))
                .remedy("find out who wrote it; delete the key, or use another name"));
        }
        Ok((seen / 1_000 + 1) * 1_000 + self.digits)
    }

    /// What the clock says that half of the masters are not ahead of: no single one, and no client's, makes tokens run away.
    fn micros(&self) -> u64 {
        let there = self.masters.iter().filter(|master| master.trust.is_known());
        let mut clocks: Vec<u64> = there.map(|master| master.clock.micros()).collect();
        clocks.sort_unstable();
        clocks.get(clocks.len() / 2).copied().unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
        })
    }

    /// Asks for the lock until it is held, or somebody else seems to have it.
    async fn bid(&self, page: &Arc<Page>, aim: Aim) -> Result<Bid> {
        let (mut splits, mut raises) = (0, 0);
        loop {
            let token = self.proposal(page)?;
            let ballot = self.vote(page, token, aim).await;
            if ballot.outcome == Outcome::Won {
                let token = Token::new(token).expect("a clock has started");
                self.pages.hold(page, token);
                return Ok(Bid::Held(token));
            }
            self.take_back(page, &ballot);
            if self.no_quorum_without(ballot.count.unknown) {
                let error = self.silence(&ballot);
                *self.silence.lock() = Some(error.clone());
                return Err(error);
            }
            *self.silence.lock() = None;
            if ballot.is_held(self.masters.len()) || splits == SPLITS_MAX || raises == RAISES_MAX {
                return Ok(Bid::Busy(ballot.left));
            }
            if ballot.is_low() {
                raises += 1;
            } else {
                // Whoever comes back at the same moment as the others will be in their way again.
                splits += 1;
                tokio::time::sleep(Duration::from_micros(fastrand::u64(500..2_000 + 4_000 * u64::from(splits)))).await;
            }
        }
    }

    /// Why nobody can say who has it.
    #[cold]
    fn silence(&self, ballot: &Ballot) -> Error {
        if let Some(error) = &ballot.refusal {
            return error.clone();
        }
        let there = self.masters.len() - ballot.count.unknown;
        self.too_few(there, &ballot.troubles)
    }

    /// Whether a hold is still one; if so, its lease begins anew.
    async fn confirm(&self, page: &Arc<Page>, token: Token) -> Result<bool> {
        let ballot = self.vote(page, token.get(), Aim::Keep).await;
        match ballot.outcome {
            Outcome::Won => Ok(true),
            Outcome::Lost => {
                // A few votes may be left, in everybody's way.
                self.take_back(page, &ballot);
                Ok(false)
            }
            Outcome::Unknown => Err(self.silence(&ballot)),
        }
    }

    async fn renew_one(&self, claim: &Claim, question: Moment) -> Result<Option<Duration>> {
        let Some(page) = self.pages.page(claim.id) else { return Ok(None) };
        match page.standing_renewed(question) {
            (Standing::Gone, _) => Ok(None),
            (Standing::Queued { .. }, None) => {
                self.pages.close(claim.id);
                Ok(None)
            }
            (Standing::Queued { .. }, left) => {
                // Masters know nothing of it; but whoever waits is to know whether they can be reached.
                if self.is_silent() {
                    self.reach_quorum().await?;
                }
                Ok(left)
            }
            (Standing::Held { token }, _) => {
                let held = self.confirm(&page, token).await?;
                if !held {
                    self.pages.close(claim.id);
                }
                Ok(held.then_some(claim.lease))
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.silence.lock().is_some()
    }

    /// Pings the masters until a quorum has replied.
    #[cold]
    async fn reach_quorum(&self) -> Result<()> {
        const REPLY_MAX: Duration = Duration::from_millis(500);
        let near = self.masters[0].near.is_home();
        let ping = |master: &Master| {
            let session = master.session(near);
            let url = master.place.clone();
            async move {
                let answer = async { session?.0.ping().await };
                let answer = timeout(REPLY_MAX, answer).await;
                let answer = answer.unwrap_or_else(|_| Err(Error::unavailable("the server does not answer")));
                answer.map_err(|error| format!("{url}: {error}"))
            }
        };
        let mut pings: stream::FuturesUnordered<_> = self.masters.iter().map(ping).collect();

        let (mut there, mut troubles) = (0, Vec::new());
        while let Some(answer) = pings.next().await {
            match answer {
                Ok(()) => there += 1,
                Err(trouble) => troubles.push(trouble),
            }
            if there >= quorum(self.masters.len()) {
                *self.silence.lock() = None;
                return Ok(());
            }
        }
        Err(self.too_few(there, &troubles))
    }

    /// For how long from a moment a quorum of earlier votes for a claim counts.
    #[cold]
    fn safe_without_renewal(&self, claim: &Claim, from: Moment) -> Duration {
        let page = self.pages.page(claim.id);
        let until = page.and_then(|page| page.quorum_until(quorum(self.masters.len())));
        until.map_or(Duration::ZERO, |until| until.since(from))
    }

    /// Waits until it makes sense to ask again.
    async fn chance(&self, page: &Page, left: Option<Duration>, turn: u32, listens: bool) {
        const FIRST: Duration = Duration::from_millis(10);
        /// Between the word of the first master and that of as many as decide.
        const SPREAD: Duration = Duration::from_millis(3);
        let longest = Duration::from_millis(match self.format {
            // What was not told, as a client died or gave up.
            Format::Plain { .. } if listens => 600,
            Format::Plain { .. } => 80,
            Format::Fenced => 300,
        });
        let mut stirred = pin!(page.stirred.notified());
        stirred.as_mut().enable();
        if page.standing().token().is_some() || page.standing() == Standing::Gone {
            return;
        }
        let (told, enough) = page.told(self.masters.len());
        if enough {
            return;
        }
        if !self.pages.is_foremost(page) {
            // Whoever is ahead asks for all; one that was ahead and is gone says so.
            let _ = timeout(Duration::from_secs(1), stirred).await;
            return;
        }
        let pause = (FIRST * (1 << turn.min(6))).min(longest).mul_f64(0.5 + fastrand::f64());
        let pause = left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)));
        let until = Instant::now() + if told { SPREAD } else { pause };
        if tokio::time::timeout_at(until, stirred).await.is_err() || told {
            return;
        }
        // The first word has come; the others are on their way.
        let until = until.min(Instant::now() + SPREAD);
        while !page.told(self.masters.len()).1 && page.told(self.masters.len()).0 {
            let mut stirred = pin!(page.stirred.notified());
            stirred.as_mut().enable();
            if page.told(self.masters.len()).1 || tokio::time::timeout_at(until, stirred).await.is_err() {
                return;
            }
        }
    }

    /// Of a claim that holds: waits until it does no more.
    async fn broken(&self, page: &Arc<Page>, token: Token) -> Result<Standing> {
        loop {
            let mut stirred = pin!(page.stirred.notified());
            stirred.as_mut().enable();
            if page.standing().token() != Some(token) {
                return Ok(page.standing());
            }
            // One master alone may have been told to let go; the others decide.
            if page.told(self.masters.len()).0 && !self.confirm(page, token).await? {
                self.pages.close(page.claim.id);
                return Ok(Standing::Gone);
            }
            stirred.await;
        }
    }

    /// Of a claim that waits: waits until it does no more.
    async fn granted(&self, page: &Arc<Page>) -> Result<Standing> {
        let (mut left, mut listening) = (None, None);
        for turn in 0.. {
            // What happened before it listens is found by asking.
            if !self.begins_to_listen(page, &mut listening).await {
                self.chance(page, left, turn, listening.is_some()).await;
            }
            if !matches!(page.standing(), Standing::Queued { .. }) {
                return Ok(page.standing());
            }
            if page.kept_until() <= Moment::now() {
                self.pages.close(page.claim.id);
                return Ok(Standing::Gone);
            }
            if !self.pages.is_foremost(page) {
                match self.silence.lock().clone() {
                    Some(error) => return Err(error),
                    None => continue,
                }
            }
            let asked = Moment::now();
            match self.bid(page, Aim::TakeOrHear).await? {
                // Of what took so long too little may be left, whatever was heard of it meanwhile.
                Bid::Held(token) if Moment::now().since(asked) > page.claim.lease / 4 => {
                    if !self.confirm(page, token).await? {
                        self.pages.close(page.claim.id);
                        return Ok(Standing::Gone);
                    }
                    return Ok(Standing::Held { token });
                }
                Bid::Held(token) => return Ok(Standing::Held { token }),
                Bid::Busy(for_so_long) => left = for_so_long,
            }
        }
        unreachable!("nobody waits so often")
    }

    /// Makes sure that it is heard when the server has the lock free; says whether that is new.
    async fn begins_to_listen(&self, page: &Page, listening: &mut Option<Listening>) -> bool {
        let Some(events) = self.events.as_ref().filter(|_| self.pages.is_foremost(page)) else { return false };
        if listening.as_ref().is_some_and(Listening::goes_on) {
            return false;
        }
        *listening = None;
        if let Ok((session, _)) = self.masters[0].session(true) {
            *listening = events.listen(&session, &page.keys.lock).await;
        }
        listening.is_some()
    }

    async fn views(&self, name: &Name) -> Result<Vec<(View, Option<Holder>)>> {
        let keys = self.format.keys(name)?;
        let views = self.masters.iter().map(|master| {
            let key = &keys.lock;
            async move {
                let seen = timeout(patience(LISTEN) / 4, self.look_at(master, key)).await;
                let seen = seen.unwrap_or_else(|_| Err(Error::unavailable("the server does not answer")));
                view(master, seen)
            }
        });
        let views: Vec<_> = join_all(views).await;
        let mut refusals = views.iter().filter_map(|(_, _, error)| error.as_ref().filter(|e| !e.is_unavailable()));
        if self.no_quorum_without(refusals.clone().count()) {
            return Err(refusals.next().expect("there are too many of them").clone());
        }
        let there = views.iter().filter(|(_, _, error)| error.is_none()).count();
        if there < quorum(views.len()) {
            let troubles = views
                .iter()
                .filter_map(|(view, _, _)| view.trouble.as_ref().map(|why| format!("{}: {why}", view.place)));
            return Err(self.too_few(there, &troubles.collect::<Vec<_>>()));
        }
        Ok(views.into_iter().map(|(view, holder, _)| (view, holder)).collect())
    }

    async fn look_at(&self, master: &Master, key: &str) -> Result<Seen> {
        let (session, _) = master.session(master.near.is_home())?;
        let answer = self.format.look().run(&session, &[key], &[]).await?;
        let (record, left): (Vec<u8>, u64) = redis::from_redis_value(answer).map_err(|_| trouble::strange())?;
        self.format.read(&record, left)
    }
}

fn view(master: &Master, seen: Result<Seen>) -> (View, Option<Holder>, Option<Error>) {
    let quarantine = master.trust.quarantine();
    let empty = View { place: master.place.clone(), holder: None, last: None, left: Duration::ZERO, trouble: None };
    match seen {
        Err(error) => (View { trouble: Some(error.to_string()), ..empty }, None, Some(error)),
        Ok(Seen { last, holder }) => {
            let trouble = (!quarantine.is_zero()).then(|| {
                format!(
                    "started or emptied not long ago, so that its vote counts in {:.1} s only",
                    quarantine.as_secs_f64()
                )
            });
            let held = holder.as_ref().and_then(|holder| Some((holder.id, Token::new(holder.token)?)));
            let left = holder.as_ref().map_or(Duration::ZERO, |holder| holder.left);
            (View { holder: held, last: Token::new(last), left, trouble, ..empty }, holder, None)
        }
    }
}

#[async_trait]
impl Store for Redlock {
    fn promises(&self) -> Promises {
        let tokens = self.format != Format::Plain { tokens: false };
        Promises { fifo: false, tokens, shares: false, expiry: true, crash: Crash::AtLeaseEnd }
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        let page = self.page(claim)?;
        let entered = |standing| Entered { standing, lease: claim.lease };
        match page.standing() {
            Standing::Held { token } if self.confirm(&page, token).await? => {
                return Ok(entered(Standing::Held { token }));
            }
            Standing::Queued { .. } if patience == Patience::Queue => {
                page.keep(Moment::now().after(claim.lease));
                return Ok(entered(page.standing()));
            }
            _ => {}
        }
        let asked = Moment::now();
        let listens = patience == Patience::Queue;
        if listens && self.pages.is_wanted(&page.keys.lock) && !self.pages.is_foremost(&page) {
            // Behind those of this client that wait already.
            self.pages.wait(&page, asked.after(claim.lease));
            return Ok(entered(page.standing()));
        }
        if listens {
            let courtesy = self.pages.courtesy(&page.keys.lock);
            if !courtesy.is_zero() {
                tokio::time::sleep(courtesy).await;
            }
        }
        match self.bid(&page, if listens { Aim::TakeOrHear } else { Aim::Take }).await? {
            Bid::Held(token) => Ok(entered(Standing::Held { token })),
            Bid::Busy(_) if listens => {
                self.pages.wait(&page, asked.after(claim.lease));
                Ok(entered(page.standing()))
            }
            Bid::Busy(_) => {
                self.pages.close(claim.id);
                Ok(entered(Standing::Gone))
            }
        }
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let Some(page) = self.pages.page(claim.id) else { return Ok(Standing::Gone) };
        match (page.standing(), seen) {
            (Standing::Held { token }, Standing::Held { token: known }) if token == known => {
                self.broken(&page, token).await
            }
            (Standing::Queued { .. }, Standing::Queued { .. }) => self.granted(&page).await,
            (standing, _) => Ok(standing),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        /// So many are asked for at a time: each is to be answered soon, however many there are in all.
        const AT_ONCE: usize = 64;
        let question = Moment::now();
        let renewals: Vec<_> = claims.iter().map(|claim| self.renew_one(claim, question)).collect();
        let answers: Vec<_> = stream::iter(renewals).buffered(AT_ONCE).collect().await;
        if answers.iter().all(Result::is_err) {
            return answers.into_iter().collect();
        }

        // Each claim is answered by itself: one whose renewal failed is as safe as it was before.
        let answer = |(claim, answer): (&Claim, Result<Option<Duration>>)| {
            answer.unwrap_or_else(|_| Some(self.safe_without_renewal(claim, question)))
        };
        Ok(claims.iter().zip(answers).map(answer).collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let page = self.pages.close(claim.id);
        let was_there = self.leave_all(claim, page.as_ref()).await?;
        self.pages.forget(claim.id);
        Ok(was_there || page.is_some_and(|page| page.has_waited()))
    }

    fn anchors(&self, _claim: &Claim) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    fn votes(&self, claim: &Claim) -> Vec<Vote> {
        if self.masters.len() == 1 {
            return Vec::new();
        }
        let (now, page) = (Moment::now(), self.pages.page(claim.id));
        let until = |at| page.as_ref().and_then(|page| page.vote_until(at));
        let left = |at| until(at).map_or(Duration::ZERO, |until| until.since(now));
        let vote = |(at, master): (usize, &Master)| Vote { place: master.place.clone(), left: left(at) };
        self.masters.iter().enumerate().map(vote).collect()
    }

    async fn look(&self, name: &Name) -> Result<Line> {
        let views = self.views(name).await?;
        let mut votes: BTreeMap<_, (usize, &Holder)> = BTreeMap::new();
        for holder in views.iter().filter_map(|(_, holder)| holder.as_ref()) {
            votes.entry((holder.token, holder.id)).or_insert((0, holder)).0 += 1;
        }
        let holder = votes.values().find(|(count, _)| *count >= quorum(views.len())).map(|(_, holder)| *holder);
        let token = holder.and_then(|holder| Token::new(holder.token));
        let entries = holder.zip(token).map(|(holder, token)| Entry {
            id: holder.id,
            share: holder.share,
            standing: Standing::Held { token },
            note: holder.note.clone(),
        });
        let waiters = self.pages.waiters(&self.format.keys(name)?.lock, Moment::now());
        let last = token.or_else(|| views.iter().filter_map(|(view, _)| view.last).max());
        let entries = entries.into_iter().chain(waiters).collect();
        let mut views: Vec<View> = views.into_iter().map(|(view, _)| view).collect();
        if views.len() == 1 {
            views.clear();
        }
        Ok(Line { name: name.clone(), entries, last, strangers: Vec::new(), views })
    }

    async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = self.format.pattern(prefix);
        let listing = self.masters.iter().map(|master| {
            let name_of = |key: &str| self.format.name_of(key);
            names::in_use(&master.far, &pattern, self.format.names(), patience(LISTEN), name_of, count_max)
        });
        let mut counts: BTreeMap<Name, usize> = BTreeMap::new();
        let (mut there, mut refusals, mut troubles) = (0, 0, Vec::new());
        for (master, listed) in self.masters.iter().zip(join_all(listing).await) {
            match listed {
                Ok(names) => {
                    there += 1;
                    for name in names {
                        *counts.entry(name).or_default() += 1;
                    }
                }
                Err(error) => {
                    refusals += usize::from(!error.is_unavailable());
                    if self.no_quorum_without(refusals) {
                        return Err(error);
                    }
                    troubles.push(format!("{}: {error}", master.place));
                }
            }
        }
        let quorum = quorum(self.masters.len());
        if there < quorum {
            return Err(self.too_few(there, &troubles));
        }
        let held = counts.into_iter().filter(|(_, count)| *count >= quorum);
        Ok(held.map(|(name, _)| name).take(count_max).collect())
    }
}
