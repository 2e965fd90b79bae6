//! Redlock: one lock kept by several masters that know nothing of each other, and held by whom most of them have granted it.
//!
//! A master remembers the last token it has granted and grants a larger one only. So the votes that make a hold carry a token,
//! and tokens rise, whatever the clocks do. What a master does with a vote is the rule in [`voting`]; so is how a round of
//! questions is counted. The lock of the articles (`SET NX PX`) is the same with one master, and in a format in which it remembers nothing.

mod address;
mod claims;
mod events;
mod master;
mod record;
mod round;
mod scripts;
pub mod voting;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::runtime::background;
use crate::runtime::clock::BootInstant;
use crate::store::{Extensions, Votes};
use crate::stores::redis_client::{self, PushHandler, READ_TIMEOUT, fresh_client, reply_timeout};
use crate::{
    Claim, CrashDetection, Entered, Entry, Error, Guarantees, LockState, Name, OnContention,
    Result, ServerStatus, ServerVote, Share, Standing, Store, Token,
};
use address::Masters;
use claims::{Claims, TrackedClaim};
use events::{Events, Listening};
use master::Master;
use record::{Holder, Inspected, WireFormat};
use round::{RoundResult, VoteMode};
use voting::{TallyOutcome, quorum};

/// Locks on several Redis servers of which a minority may fail, or in a format that other libraries use too.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let store = leasehold::stores::Redlock::builder("redlock://a:6379,b:6379,c:6379")?.connect().await?;
/// let locks = leasehold::Locks::from_store(store, "redlock://a,b,c")?;
/// # Ok(()) }
/// ```
///
/// Mutual exclusion only: shares are refused as [unsupported](Error::is_unsupported). Waiters are known to their own client, so that
/// [`inspect`](crate::Locks::inspect) shows those of this one alone.
#[derive(Debug)]
pub struct Redlock {
    masters: Arc<[Master]>,
    claims: Arc<Claims>,
    client: Arc<str>,
    /// The last three digits of every token of this client, so that two of them propose none alike.
    digits: u64,
    runtime: Option<Handle>,
    format: WireFormat,
    longest_lease: Duration,
    /// Why a quorum could not be asked the last time.
    quorum_unreachable: Mutex<Option<Error>>,
    /// Where one server has the lock in a format in which others tell nobody that they give it back.
    events: Option<Arc<Events>>,
}

/// Where to connect, and on which terms.
#[derive(Clone, Debug)]
pub struct RedlockBuilder {
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
    pub fn builder(url: &str) -> Result<RedlockBuilder> {
        Ok(RedlockBuilder {
            masters: Masters::parse(url)?,
        })
    }

    async fn open(at: Masters, runtime: Option<Handle>) -> Result<Self> {
        let (client, claims): (Arc<str>, _) = (fresh_client().into(), Arc::<Claims>::default());
        let runs = Arc::default();
        let events = if let [alone] = &at.addresses[..] {
            Some(Events::of(alone.database, &client).into())
        } else {
            None
        };
        let master = |(number, address)| {
            let on_push = push_handler(number, Arc::clone(&claims), events.clone());
            Master::spawn(
                address,
                at.settings,
                Arc::clone(&runs),
                &client,
                on_push,
                runtime.clone(),
            )
        };
        let masters: Arc<[Master]> = at.addresses.iter().enumerate().map(master).collect();
        let digits = uuid::Uuid::new_v4().as_u64_pair().1 % 1_000;
        let (format, longest_lease) = (at.format, at.settings.longest_lease);
        let silence = Mutex::default();
        let store = Self {
            masters,
            claims,
            client,
            digits,
            runtime,
            format,
            longest_lease,
            quorum_unreachable: silence,
            events,
        };
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
        let mut connecting: stream::FuturesUnordered<_> = self
            .masters
            .iter()
            .map(|master| async move { (master, master.first().await) })
            .collect();
        let (mut there, mut refused_by, mut errors, mut until) = (0, 0, Vec::new(), None);
        loop {
            let next = match until {
                Some(until) => tokio::time::timeout_at(until, connecting.next())
                    .await
                    .ok()
                    .flatten(),
                None => connecting.next().await,
            };

            match next {
                Some((_, Ok(()))) => there += 1,
                // No failure of a minority but a mistake in the URL.
                Some((master, Err(error))) if master.quarantine.is_duplicate() => {
                    return Err(error);
                }
                Some((master, Err(error))) => {
                    refused_by += usize::from(!error.is_unavailable());
                    if self.no_quorum_without(refused_by) {
                        return Err(error);
                    }
                    tracing::warn!(server = master.url, %error, "opening the store without this master for now");
                    errors.push(format!("{}: {error}", master.url));
                }
                None => break,
            }

            if there >= quorum && until.is_none() {
                until = Some(Instant::now() + STRAGGLERS_MAX);
            }
        }

        tracing::debug!(there, ?errors, "masters");
        if there >= quorum {
            Ok(())
        } else {
            self.second_chance(&errors).await
        }
    }

    /// A master may just have been busy, or was cut off for a moment.
    #[cold]
    async fn second_chance(&self, errors: &[String]) -> Result<()> {
        const MARGIN: Duration = Duration::from_secs(2);
        let sessions = join_all(
            self.masters
                .iter()
                .map(|master| master.background_link.session(MARGIN)),
        )
        .await;
        let there = sessions.iter().filter(|session| session.is_ok()).count();
        if there >= quorum(self.masters.len()) {
            Ok(())
        } else {
            Err(self.too_few(there, errors))
        }
    }

    /// Whether the other masters are too few to decide, if this number of them refuses.
    fn no_quorum_without(&self, refused_by: usize) -> bool {
        refused_by > self.masters.len() - quorum(self.masters.len())
    }

    fn too_few(&self, there: usize, errors: &[String]) -> Error {
        let (all, quorum) = (self.masters.len(), quorum(self.masters.len()));
        let why = if errors.is_empty() {
            String::new()
        } else {
            format!(" ({})", errors.join("; "))
        };
        if all == 1 {
            return Error::unavailable(format!("the server does not answer{why}"));
        }
        Error::unavailable(format!(
            "only {there} of {all} masters vote, and it takes {quorum}{why}"
        ))
        .help("bring the others back")
    }
}

/// What a master tells this client.
fn push_handler(number: usize, claims: Arc<Claims>, events: Option<Arc<Events>>) -> PushHandler {
    Arc::new(move |channel, text| match &events {
        Some(events) if events.is_theirs(channel) => {
            if let Some(key) = events.freed(channel, text) {
                claims.freed(number, key);
            }
        }
        _ => claims.pushed(number, text),
    })
}

impl RedlockBuilder {
    /// The URL without user, password and settings.
    #[must_use]
    pub fn url(&self) -> String {
        self.masters.to_string()
    }

    /// Connects; connections are made again by themselves whenever they break.
    ///
    /// # Errors
    /// [`is_unavailable`](Error::is_unavailable) if fewer masters than a majority can be reached, [`is_invalid`](Error::is_invalid) if
    /// two of them are one server or one is a replica, [`is_denied`](Error::is_denied) and
    /// [`is_unsupported`](Error::is_unsupported) as with [`Redis`](crate::stores::Redis).
    ///
    /// *Cancel safety*: dropping the future closes what it opened.
    pub async fn connect(self) -> Result<Redlock> {
        self.connect_on(Handle::try_current().ok()).await
    }

    pub(crate) async fn connect_on(self, runtime: Option<Handle>) -> Result<Redlock> {
        background::start()?;
        background::on_background(Redlock::open(self.masters, runtime)).await
    }
}

/// What asking for a lock has come to.
enum AcquireOutcome {
    Won(Token),
    /// Somebody has it, for so much longer if he renews it no more.
    Contended(Option<Duration>),
}

/// How often votes that were split among several are asked for again before somebody is taken to have it.
const SPLITS_MAX: u32 = 6;
/// How often a token that is too low is raised.
const RAISES_MAX: u32 = 4;

impl Redlock {
    fn tracked(&self, claim: &Claim) -> Result<Arc<TrackedClaim>> {
        if claim.share.units() != Share::MUTEX.units() {
            return Err(Error::unsupported(format!(
                "this store supports mutexes only, not {}",
                claim.share.kind()
            ))
            .help("use a mutex, or the stores redis: and file: for shares"));
        }
        if claim.lease > self.longest_lease {
            let longest = self.longest_lease;
            return Err(Error::invalid(format!("the longest lease on these masters is {longest:?}"))
                .help("take a shorter one, or open the store with longest-lease=, the same for all clients"));
        }
        let master_locks = if self.format == WireFormat::Fenced {
            0
        } else {
            self.masters.len()
        };
        Ok(self.claims.begin(
            claim,
            self.format.keys(&claim.name)?,
            master_locks,
            self.micros(),
        ))
    }

    /// For how long masters keep a vote: longer than the holder counts on it, as their clocks differ in rate from his.
    fn life(&self, lease: Duration) -> Duration {
        if self.masters.len() == 1 {
            lease
        } else {
            lease.mul_f64(1.01) + Duration::from_millis(2)
        }
    }

    /// More than any token seen: what the masters' clocks say, or the highest seen.
    ///
    /// Tokens that masters have answered may be ahead of their clocks by any time, as clocks that were ahead are set right.
    fn proposal(&self, tracked: &TrackedClaim) -> Result<u64> {
        const DAY: u64 = 24 * 60 * 60 * 1_000_000_000;
        /// A record has 19 digits for a token.
        const HIGHEST: u64 = 9_999_999_999_999_999_999;
        let now = self.micros() * 1_000;
        let answered = self
            .claims
            .highest_token(&tracked.claim.name)
            .max(tracked.with_reply_timeout());
        let seen = answered.max(tracked.highest_token());
        if seen > answered.max(now).saturating_add(DAY) {
            return Err(Error::invalid(format!(
                "the token {seen} proposed for this name is more than a day ahead of the masters' clocks and tokens"
            ))
            .help("set the clocks right, or use another name"));
        }

        let token = now + self.digits;
        if token > seen {
            return Ok(token);
        }
        if seen > HIGHEST - 2_000 {
            return Err(Error::damaged(format!(
                "no token is larger than {seen}, which a master has for this name"
            ))
            .help("find out who wrote it; delete the key, or use another name"));
        }
        Ok((seen / 1_000 + 1) * 1_000 + self.digits)
    }

    /// What the clock says that half of the masters are not ahead of: no single one, and no client's, makes tokens run away.
    fn micros(&self) -> u64 {
        let there = self
            .masters
            .iter()
            .filter(|master| master.quarantine.is_known());
        let mut clocks: Vec<u64> = there.map(|master| master.clock.micros()).collect();
        clocks.sort_unstable();
        clocks.get(clocks.len() / 2).copied().unwrap_or_else(|| {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
        })
    }

    /// Asks for the lock until it is held, or somebody else seems to have it.
    async fn try_acquire(
        &self,
        tracked: &Arc<TrackedClaim>,
        mode: VoteMode,
    ) -> Result<AcquireOutcome> {
        let (mut splits, mut raises) = (0, 0);
        loop {
            let token = self.proposal(tracked)?;
            let result = self.vote(tracked, token, mode).await;
            if result.outcome == TallyOutcome::Won {
                let token = Token::new(token).expect("a clock has started");
                self.claims.hold(tracked, token);
                return Ok(AcquireOutcome::Won(token));
            }
            self.take_back(tracked, &result);
            if self.no_quorum_without(result.tally.unknown) {
                let error = self.quorum_unreachable(&result);
                *self.quorum_unreachable.lock() = Some(error.clone());
                return Err(error);
            }
            *self.quorum_unreachable.lock() = None;
            if result.is_held(self.masters.len()) || splits == SPLITS_MAX || raises == RAISES_MAX {
                return Ok(AcquireOutcome::Contended(result.remaining));
            }
            if result.is_stale() {
                raises += 1;
            } else {
                // Whoever comes back at the same moment as the others will be in their way again.
                splits += 1;
                tokio::time::sleep(Duration::from_micros(fastrand::u64(
                    500..2_000 + 4_000 * u64::from(splits),
                )))
                .await;
            }
        }
    }

    /// Why nobody can say who has it.
    #[cold]
    fn quorum_unreachable(&self, result: &RoundResult) -> Error {
        if let Some(error) = &result.fatal {
            return error.clone();
        }
        let there = self.masters.len() - result.tally.unknown;
        self.too_few(there, &result.errors)
    }

    /// Whether a hold is still one; if so, its lease begins anew.
    async fn confirm(&self, tracked: &Arc<TrackedClaim>, token: Token) -> Result<bool> {
        let result = self.vote(tracked, token.get(), VoteMode::Renew).await;
        match result.outcome {
            TallyOutcome::Won => Ok(true),
            TallyOutcome::Lost => {
                // A few votes may be left, in everybody's way.
                self.take_back(tracked, &result);
                Ok(false)
            }
            TallyOutcome::Unknown => Err(self.quorum_unreachable(&result)),
        }
    }

    async fn renew_one(&self, claim: &Claim, request: BootInstant) -> Result<Option<Duration>> {
        let Some(tracked) = self.claims.tracked(claim.id) else {
            return Ok(None);
        };
        match tracked.standing_renewed(request) {
            (Standing::Gone, _) => Ok(None),
            (Standing::Queued { .. }, None) => {
                self.claims.close(claim.id);
                Ok(None)
            }
            (Standing::Queued { .. }, remaining) => {
                // Masters know nothing of it; but whoever waits is to know whether they can be reached.
                if self.is_silent() {
                    self.reach_quorum().await?;
                }
                Ok(remaining)
            }
            (Standing::Held { token }, _) => {
                let held = self.confirm(&tracked, token).await?;
                if !held {
                    self.claims.close(claim.id);
                }
                Ok(held.then_some(claim.lease))
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.quorum_unreachable.lock().is_some()
    }

    /// Pings the masters until a quorum has replied.
    #[cold]
    async fn reach_quorum(&self) -> Result<()> {
        const REPLY_MAX: Duration = Duration::from_millis(500);
        let on_caller_link = self.masters[0].caller_link.is_on_caller_runtime();
        let ping = |master: &Master| {
            let session = master.session(on_caller_link);
            let url = master.url.clone();
            async move {
                let reply = async { session?.0.ping().await };
                let reply = timeout(REPLY_MAX, reply).await;
                let reply =
                    reply.unwrap_or_else(|_| Err(Error::unavailable("the server does not answer")));
                reply.map_err(|error| format!("{url}: {error}"))
            }
        };
        let mut pings: stream::FuturesUnordered<_> = self.masters.iter().map(ping).collect();

        let (mut there, mut errors) = (0, Vec::new());
        while let Some(reply) = pings.next().await {
            match reply {
                Ok(()) => there += 1,
                Err(error) => errors.push(error),
            }
            if there >= quorum(self.masters.len()) {
                *self.quorum_unreachable.lock() = None;
                return Ok(());
            }
        }
        Err(self.too_few(there, &errors))
    }

    /// For how long from a moment a quorum of earlier votes for a claim counts.
    #[cold]
    fn safe_without_renewal(&self, claim: &Claim, from: BootInstant) -> Duration {
        let tracked = self.claims.tracked(claim.id);
        let until = tracked.and_then(|tracked| tracked.quorum_until(quorum(self.masters.len())));
        until.map_or(Duration::ZERO, |until| until.duration_since(from))
    }

    /// Waits until it makes sense to ask again.
    async fn wait_before_retry(
        &self,
        tracked: &TrackedClaim,
        remaining: Option<Duration>,
        attempt: u32,
        listens: bool,
    ) {
        const FIRST: Duration = Duration::from_millis(10);
        /// Between the word of the first master and that of as many as decide.
        const SPREAD: Duration = Duration::from_millis(3);
        let longest = Duration::from_millis(match self.format {
            // What was not told, as a client died or gave up.
            WireFormat::Plain { .. } if listens => 600,
            WireFormat::Plain { .. } => 80,
            WireFormat::Fenced => 300,
        });
        let mut changed = pin!(tracked.changed.notified());
        changed.as_mut().enable();
        if tracked.standing().token().is_some() || tracked.standing() == Standing::Gone {
            return;
        }
        let (push, enough) = tracked.pushed_by(self.masters.len());
        if enough {
            return;
        }
        if !self.claims.is_foremost(tracked) {
            // Whoever is ahead asks for all; one that was ahead and is gone says so.
            let _ = timeout(Duration::from_secs(1), changed).await;
            return;
        }
        let pause = (FIRST * (1 << attempt.min(6)))
            .min(longest)
            .mul_f64(0.5 + fastrand::f64());
        let pause = remaining.map_or(pause, |remaining| {
            pause.min(remaining + Duration::from_millis(1))
        });
        let until = Instant::now() + if push { SPREAD } else { pause };
        if tokio::time::timeout_at(until, changed).await.is_err() || push {
            return;
        }
        // The first word has come; the others are on their way.
        let until = until.min(Instant::now() + SPREAD);
        while !tracked.pushed_by(self.masters.len()).1 && tracked.pushed_by(self.masters.len()).0 {
            let mut changed = pin!(tracked.changed.notified());
            changed.as_mut().enable();
            if tracked.pushed_by(self.masters.len()).1
                || tokio::time::timeout_at(until, changed).await.is_err()
            {
                return;
            }
        }
    }

    /// Of a claim that holds: waits until it does no more.
    async fn report_broken(&self, tracked: &Arc<TrackedClaim>, token: Token) -> Result<Standing> {
        loop {
            let mut changed = pin!(tracked.changed.notified());
            changed.as_mut().enable();
            if tracked.standing().token() != Some(token) {
                return Ok(tracked.standing());
            }
            // One master alone may have been told to let go; the others decide.
            if tracked.pushed_by(self.masters.len()).0 && !self.confirm(tracked, token).await? {
                self.claims.close(tracked.claim.id);
                return Ok(Standing::Gone);
            }
            changed.await;
        }
    }

    /// Of a claim that waits: waits until it does no more.
    async fn granted(&self, tracked: &Arc<TrackedClaim>) -> Result<Standing> {
        let (mut remaining, mut listening) = (None, None);
        for attempt in 0.. {
            // What happened before it listens is found by asking.
            if !self.starts_listening(tracked, &mut listening).await {
                self.wait_before_retry(tracked, remaining, attempt, listening.is_some())
                    .await;
            }
            if !matches!(tracked.standing(), Standing::Queued { .. }) {
                return Ok(tracked.standing());
            }
            if tracked.kept_until() <= BootInstant::now() {
                self.claims.close(tracked.claim.id);
                return Ok(Standing::Gone);
            }
            if !self.claims.is_foremost(tracked) {
                match self.quorum_unreachable.lock().clone() {
                    Some(error) => return Err(error),
                    None => continue,
                }
            }
            let sent_at = BootInstant::now();
            match self.try_acquire(tracked, VoteMode::AcquireOrNotify).await? {
                // Of what took so long too little may be left, whatever was heard of it meanwhile.
                AcquireOutcome::Won(token)
                    if BootInstant::now().duration_since(sent_at) > tracked.claim.lease / 4 =>
                {
                    if !self.confirm(tracked, token).await? {
                        self.claims.close(tracked.claim.id);
                        return Ok(Standing::Gone);
                    }
                    return Ok(Standing::Held { token });
                }
                AcquireOutcome::Won(token) => return Ok(Standing::Held { token }),
                AcquireOutcome::Contended(for_so_long) => remaining = for_so_long,
            }
        }
        unreachable!("nobody waits so often")
    }

    /// Makes sure that it is heard when the server has the lock free; says whether that is new.
    async fn starts_listening(
        &self,
        tracked: &TrackedClaim,
        listening: &mut Option<Listening>,
    ) -> bool {
        let Some(events) = self
            .events
            .as_ref()
            .filter(|_| self.claims.is_foremost(tracked))
        else {
            return false;
        };
        if listening.as_ref().is_some_and(Listening::is_open) {
            return false;
        }
        *listening = None;
        if let Ok((session, _)) = self.masters[0].session(true) {
            *listening = events.listen(&session, &tracked.keys.lock).await;
        }
        listening.is_some()
    }

    async fn server_statuses(&self, name: &Name) -> Result<Vec<(ServerStatus, Option<Holder>)>> {
        let keys = self.format.keys(name)?;
        let statuses = self.masters.iter().map(|master| {
            let key = &keys.lock;
            async move {
                let seen = timeout(
                    reply_timeout(READ_TIMEOUT) / 4,
                    self.inspect_master(master, key),
                )
                .await;
                let seen =
                    seen.unwrap_or_else(|_| Err(Error::unavailable("the server does not answer")));
                server_status(master, seen)
            }
        });
        let statuses: Vec<_> = join_all(statuses).await;
        let mut refused_by = statuses
            .iter()
            .filter_map(|(_, _, error)| error.as_ref().filter(|e| !e.is_unavailable()));
        if self.no_quorum_without(refused_by.clone().count()) {
            return Err(refused_by
                .next()
                .expect("there are too many of them")
                .clone());
        }
        let there = statuses
            .iter()
            .filter(|(_, _, error)| error.is_none())
            .count();
        if there < quorum(statuses.len()) {
            let errors = statuses.iter().filter_map(|(status, _, _)| {
                status
                    .error
                    .as_ref()
                    .map(|why| format!("{}: {why}", status.server))
            });
            return Err(self.too_few(there, &errors.collect::<Vec<_>>()));
        }
        Ok(statuses
            .into_iter()
            .map(|(status, holder, _)| (status, holder))
            .collect())
    }

    async fn inspect_master(&self, master: &Master, key: &str) -> Result<Inspected> {
        let (session, _) = master.session(master.caller_link.is_on_caller_runtime())?;
        let reply = self.format.inspect().run(&session, &[key], &[]).await?;
        let (record, remaining): (Vec<u8>, u64) =
            redis::from_redis_value(reply).map_err(|_| redis_client::protocol_error())?;
        self.format.read(&record, remaining)
    }
}

fn server_status(
    master: &Master,
    seen: Result<Inspected>,
) -> (ServerStatus, Option<Holder>, Option<Error>) {
    let quarantine = master.quarantine.remaining();
    let empty = ServerStatus {
        server: master.url.clone(),
        holder: None,
        last_token: None,
        remaining: Duration::ZERO,
        error: None,
    };
    match seen {
        Err(error) => (
            ServerStatus {
                error: Some(error.to_string()),
                ..empty
            },
            None,
            Some(error),
        ),
        Ok(Inspected {
            last_token: last,
            holder,
        }) => {
            let error = (!quarantine.is_zero()).then(|| {
                format!(
                    "started or emptied not long ago, so that its vote counts in {:.1} s only",
                    quarantine.as_secs_f64()
                )
            });
            let held = holder
                .as_ref()
                .and_then(|holder| Some((holder.id, Token::new(holder.token)?)));
            let remaining = holder
                .as_ref()
                .map_or(Duration::ZERO, |holder| holder.remaining);
            (
                ServerStatus {
                    holder: held,
                    last_token: Token::new(last),
                    remaining,
                    error,
                    ..empty
                },
                holder,
                None,
            )
        }
    }
}

#[async_trait]
impl Store for Redlock {
    fn guarantees(&self) -> Guarantees {
        let tokens = self.format != WireFormat::Plain { tokens: false };
        Guarantees {
            fifo: false,
            tokens,
            shares: false,
            lease_expiry: true,
            crash: CrashDetection::LeaseExpiry,
        }
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let tracked = self.tracked(claim)?;
        let entered = |standing| Entered {
            standing,
            lease: claim.lease,
        };
        match tracked.standing() {
            Standing::Held { token } if self.confirm(&tracked, token).await? => {
                return Ok(entered(Standing::Held { token }));
            }
            Standing::Queued { .. } if on_contention == OnContention::Queue => {
                tracked.keep_until(BootInstant::now().saturating_add(claim.lease));
                return Ok(entered(tracked.standing()));
            }
            _ => {}
        }
        let sent_at = BootInstant::now();
        let listens = on_contention == OnContention::Queue;
        if listens
            && self.claims.has_waiters(&tracked.keys.lock)
            && !self.claims.is_foremost(&tracked)
        {
            // Behind those of this client that wait already.
            self.claims
                .wait(&tracked, sent_at.saturating_add(claim.lease));
            return Ok(entered(tracked.standing()));
        }
        if listens {
            let head_start = self.claims.yield_to_notified(&tracked.keys.lock);
            if !head_start.is_zero() {
                tokio::time::sleep(head_start).await;
            }
        }
        match self
            .try_acquire(
                &tracked,
                if listens {
                    VoteMode::AcquireOrNotify
                } else {
                    VoteMode::Acquire
                },
            )
            .await?
        {
            AcquireOutcome::Won(token) => Ok(entered(Standing::Held { token })),
            AcquireOutcome::Contended(_) if listens => {
                self.claims
                    .wait(&tracked, sent_at.saturating_add(claim.lease));
                Ok(entered(tracked.standing()))
            }
            AcquireOutcome::Contended(_) => {
                self.claims.close(claim.id);
                Ok(entered(Standing::Gone))
            }
        }
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let Some(tracked) = self.claims.tracked(claim.id) else {
            return Ok(Standing::Gone);
        };
        match (tracked.standing(), seen) {
            (Standing::Held { token }, Standing::Held { token: state }) if token == state => {
                self.report_broken(&tracked, token).await
            }
            (Standing::Queued { .. }, Standing::Queued { .. }) => self.granted(&tracked).await,
            (standing, _) => Ok(standing),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        /// So many are asked for at a time: each is to be answered soon, however many there are in all.
        const NO_WAIT: usize = 64;
        let request = BootInstant::now();
        let renewals: Vec<_> = claims
            .iter()
            .map(|claim| self.renew_one(claim, request))
            .collect();
        let replies: Vec<_> = stream::iter(renewals).buffered(NO_WAIT).collect().await;
        if replies.iter().all(Result::is_err) {
            return replies.into_iter().collect();
        }

        // Each claim is answered by itself: one whose renewal failed is as safe as it was before.
        let reply = |(claim, reply): (&Claim, Result<Option<Duration>>)| {
            reply.unwrap_or_else(|_| Some(self.safe_without_renewal(claim, request)))
        };
        Ok(claims.iter().zip(replies).map(reply).collect())
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let tracked = self.claims.close(claim.id);
        let was_there = self.leave_all(claim, tracked.as_ref()).await?;
        self.claims.forget(claim.id);
        Ok(was_there || tracked.is_some_and(|tracked| tracked.has_waited()))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::default().with_votes(self)
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let statuses = self.server_statuses(name).await?;
        let mut votes: BTreeMap<_, (usize, &Holder)> = BTreeMap::new();
        for holder in statuses.iter().filter_map(|(_, holder)| holder.as_ref()) {
            votes
                .entry((holder.token, holder.id))
                .or_insert((0, holder))
                .0 += 1;
        }
        let holder = votes
            .values()
            .find(|(tally, _)| *tally >= quorum(statuses.len()))
            .map(|(_, holder)| *holder);
        let token = holder.and_then(|holder| Token::new(holder.token));
        let entries = holder.zip(token).map(|(holder, token)| Entry {
            id: holder.id,
            share: holder.share,
            standing: Standing::Held { token },
            info: holder.info.clone(),
        });
        let waiters = self
            .claims
            .waiters(&self.format.keys(name)?.lock, BootInstant::now());
        let last = token.or_else(|| {
            statuses
                .iter()
                .filter_map(|(status, _)| status.last_token)
                .max()
        });
        let entries = entries.into_iter().chain(waiters).collect();
        let mut statuses: Vec<ServerStatus> =
            statuses.into_iter().map(|(status, _)| status).collect();
        if statuses.len() == 1 {
            statuses.clear();
        }
        Ok(LockState {
            name: name.clone(),
            entries,
            last_token: last,
            external_holders: Vec::new(),
            servers: statuses,
        })
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        let pattern = self.format.pattern(prefix);
        let listing = self.masters.iter().map(|master| {
            let name_of = |key: &str| self.format.name_of(key);
            redis_client::list(
                &master.background_link,
                &pattern,
                self.format.list(),
                reply_timeout(READ_TIMEOUT),
                name_of,
                count_max,
            )
        });
        let mut counts: BTreeMap<Name, usize> = BTreeMap::new();
        let (mut there, mut refused_by, mut errors) = (0, 0, Vec::new());
        for (master, listed) in self.masters.iter().zip(join_all(listing).await) {
            match listed {
                Ok(names) => {
                    there += 1;
                    for name in names {
                        *counts.entry(name).or_default() += 1;
                    }
                }
                Err(error) => {
                    refused_by += usize::from(!error.is_unavailable());
                    if self.no_quorum_without(refused_by) {
                        return Err(error);
                    }
                    errors.push(format!("{}: {error}", master.url));
                }
            }
        }
        let quorum = quorum(self.masters.len());
        if there < quorum {
            return Err(self.too_few(there, &errors));
        }
        let held = counts.into_iter().filter(|(_, tally)| *tally >= quorum);
        Ok(held.map(|(name, _)| name).take(count_max).collect())
    }
}

impl Votes for Redlock {
    fn votes(&self, claim: &Claim) -> Vec<ServerVote> {
        if self.masters.len() == 1 {
            return Vec::new();
        }
        let (now, tracked) = (BootInstant::now(), self.claims.tracked(claim.id));
        let until = |at| tracked.as_ref().and_then(|tracked| tracked.vote_until(at));
        let remaining = |at| until(at).map_or(Duration::ZERO, |until| until.duration_since(now));
        let vote = |(at, master): (usize, &Master)| ServerVote {
            server: master.url.clone(),
            remaining: remaining(at),
        };
        self.masters.iter().enumerate().map(vote).collect()
    }
}
