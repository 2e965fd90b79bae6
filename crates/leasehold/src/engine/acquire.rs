//! From a wish to a hold: deadline, try, cancellation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::call::{ANSWER_MAX, Door, Pauses, silent};
use super::depart::{Entering, depart};
use super::outage::Outage;
use super::stay::{Stay, trusted};
use super::{Engine, Hold};
use crate::background::Finish;
use crate::clock::Moment;
use crate::{Claim, ClaimId, Crash, Entered, Error, Loss, Name, Note, Patience, Result, Share, Standing, Token};

/// What is asked of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: Name,
    pub(crate) share: Share,
    pub(crate) lease: Duration,
    pub(crate) label: String,
    /// The lease is not renewed.
    pub(crate) fixed: bool,
    pub(crate) hold_max: Option<Duration>,
}

/// How long to wait in line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Forever,
    Never,
    AtMost(Duration),
}

impl Wait {
    fn deadline(self) -> Option<Instant> {
        match self {
            // Beyond the clock's range is for ever.
            Self::AtMost(wait) if !wait.is_zero() => Instant::now().checked_add(wait),
            // No time to wait in line is time to ask: the store may have to wait for its disk.
            Self::AtMost(_) | Self::Forever | Self::Never => None,
        }
    }

    fn patience(self) -> Patience {
        match self {
            Self::Never => Patience::Refuse,
            Self::AtMost(wait) if wait.is_zero() => Patience::Refuse,
            Self::Forever | Self::AtMost(_) => Patience::Queue,
        }
    }
}

/// How often a grant is asked after that is over by the time of the answer.
const CONFIRMATIONS_MAX: u32 = 3;
/// A store that says nothing for as long is not just slow.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// `None` if it was not granted in time; then nothing is left in the line.
///
/// A store that does not reply for [`ANSWER_MAX`] while the claim waits is unavailable. So is one that cannot be reached at
/// the deadline.
///
/// Dropping this future at any point leaves nothing either: what was under way is finished and undone in the background.
pub(crate) async fn acquire(engine: &Arc<Engine>, ask: &Ask, wait: Wait) -> Result<Option<Hold>> {
    let deadline = wait.deadline();
    let (mut pauses, mut outage) = (Pauses::default(), Outage::default());
    loop {
        let attempt = Attempt::begin(engine, ask, wait.patience())?;
        match attempt.run(deadline, &mut outage).await? {
            Outcome::Granted(hold) => return Ok(Some(hold)),
            Outcome::Refused => return Ok(None),
            // The process slept, the store was away, or somebody cleared the line: in again at its end, while there is time.
            Outcome::Gone => {}
        }
        if !pauses.next_before(deadline).await {
            return outage.into_error().map_or(Ok(None), Err);
        }
    }
}

enum Outcome {
    Granted(Hold),
    Refused,
    Gone,
}

/// One claim on its way to a grant. Dropping it makes the claim leave, after its request to enter has been answered.
struct Attempt<'a> {
    engine: &'a Arc<Engine>,
    ask: &'a Ask,
    claim: Arc<Claim>,
    patience: Patience,
    /// `Some` while the claim may be in the store without a hold that would release it.
    stake: Option<Stake>,
}

struct Stake {
    entering: Option<Entering>,
}

impl<'a> Attempt<'a> {
    fn begin(engine: &'a Arc<Engine>, ask: &'a Ask, patience: Patience) -> Result<Self> {
        let note = Arc::new(Note::here(&ask.label)?);
        let (name, id, renewed) = (ask.name.clone(), ClaimId::draw(), !ask.fixed);
        let claim = Arc::new(Claim { name, id, share: ask.share, lease: ask.lease, renewed, note });
        Ok(Self { engine, ask, claim, patience, stake: None })
    }

    async fn run(mut self, deadline: Option<Instant>, outage: &mut Outage) -> Result<Outcome> {
        let started = Instant::now();
        let (asked, entered) = match self.enter(deadline, outage).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(Outcome::Refused),
            Err(error) => return outage.entering_failed(started, error).map(|()| Outcome::Gone),
        };
        outage.entered();
        match entered.standing {
            Standing::Held { token } => {
                self.confirmed(token, asked, asked.after(trusted(entered.lease)), entered.lease).await
            }
            Standing::Gone if self.patience == Patience::Refuse => {
                self.stake = None;
                Ok(Outcome::Refused)
            }
            Standing::Gone => Ok(Outcome::Gone),
            Standing::Queued { .. } => self.wait(asked, entered, deadline, outage).await,
        }
    }

    /// `None` if the deadline came too soon to say that the store does not answer.
    async fn enter(&mut self, deadline: Option<Instant>, outage: &Outage) -> Result<Option<(Moment, Entered)>> {
        let (door, claim, patience) = (self.engine.door.clone(), Arc::clone(&self.claim), self.patience);
        let entering = Finish::new(async move { door.enter(&claim, patience).await });
        let stake = self.stake.insert(Stake { entering: Some(entering) });
        let entering = stake.entering.as_mut().expect("just put there");
        let started = Instant::now();
        let listen_until = earlier(deadline, outage.ends_at().unwrap_or(started + ANSWER_MAX));
        let Ok(answer) = timeout_at(listen_until, entering).await else {
            let silence = started.elapsed();
            return match outage.error() {
                Some(error) => Err(error),
                None if silence < SILENCE_MIN => Ok(None),
                None => Err(silent(silence)),
            };
        };
        stake.entering = None;
        answer.map(Some)
    }

    async fn wait(
        self,
        asked: Moment,
        entered: Entered,
        deadline: Option<Instant>,
        outage: &mut Outage,
    ) -> Result<Outcome> {
        let valid_until = asked.after(trusted(entered.lease));
        let stay = Arc::new(Stay::new(Arc::clone(&self.claim), valid_until, None, true).waiting());
        self.engine.renewals.add(Arc::clone(&stay), asked);
        let granted = stands(self.engine, &stay, entered.standing, outage);
        let waited = match deadline {
            Some(deadline) => timeout_at(deadline, granted).await,
            None => Ok(granted.await),
        };
        match waited {
            Ok(Ok(Some(token))) => match stay.taken_over() {
                // A lease that is to run in full runs from now on.
                Some(until) if self.ask.fixed && until != Moment::NEVER => self.asked_again(token).await,
                Some(until) => {
                    let (until, lease) = hold_from(until, entered.lease, self.engine.door.promises().crash);
                    self.confirmed(token, Moment::now(), until, lease).await
                }
                // The renewal task has the claim leave, whatever the store still says of it.
                None => Ok(Outcome::Gone),
            },
            Ok(Ok(None)) => Ok(Outcome::Gone),
            Ok(Err(error)) => Err(error),
            Err(_too_late) => match (self.leave(outage.is_on()).await, outage.error()) {
                (true, _) => Ok(Outcome::Refused),
                (false, error) => Err(error.unwrap_or_else(|| silent(SILENCE_MIN))),
            },
        }
    }

    /// A grant is trusted from the last answered question about its claim, whenever the grant itself is heard of. If too
    /// little of that is left, the store is asked once more.
    async fn confirmed(self, token: Token, asked: Moment, until: Moment, true_lease: Duration) -> Result<Outcome> {
        if until.since(Moment::now()) >= self.ask.lease.min(true_lease) / 2 {
            return Ok(self.granted(token, asked, until));
        }
        self.asked_again(token).await
    }

    async fn asked_again(self, token: Token) -> Result<Outcome> {
        for _ in 0..CONFIRMATIONS_MAX {
            let (asked, lease) = self.engine.door.confirm(&self.claim).await?;
            let Some(lease) = lease else { return Ok(Outcome::Gone) };
            let until = asked.after(trusted(lease));
            if until > Moment::now() {
                return Ok(self.granted(token, asked, until));
            }
        }
        Err(too_slow(self.engine.door.place(), &self.claim))
    }

    fn granted(mut self, token: Token, asked: Moment, until: Moment) -> Outcome {
        let fixed = self.ask.fixed.then(|| (asked.after(trusted(self.ask.lease)), Loss::LeaseOver));
        let longest = self.ask.hold_max.map(|most| (Moment::now().after(most), Loss::HeldTooLong));
        // A store that keeps claims for less than a fixed lease is asked until that is over.
        let renewed = fixed.is_none_or(|(at, _)| until < at);
        let limit = fixed.into_iter().chain(longest).min_by_key(|(at, _)| *at);
        let stay = Arc::new(Stay::new(Arc::clone(&self.claim), until, limit, renewed));
        self.engine.renewals.add(Arc::clone(&stay), asked);
        self.stake = None;
        Outcome::Granted(Hold::new(Arc::clone(self.engine), stay, token))
    }

    /// Leaves, and waits a little for it, so that a caller who gave up finds nothing of his own in the line. Says whether the
    /// store has replied.
    async fn leave(mut self, is_unreachable: bool) -> bool {
        /// For a store that was unreachable to be back by the deadline.
        const LAST_TRY: Duration = Duration::from_millis(250);
        let Some(departing) = self.departing() else { return true };
        // Beyond that it goes on in the background.
        let answer = timeout(if is_unreachable { LAST_TRY } else { SILENCE_MIN }, departing).await;
        answer.is_ok_and(|answer| !answer.is_err_and(|error| error.is_unavailable()))
    }

    fn departing(&mut self) -> Option<Finish<Result<bool>>> {
        let stake = self.stake.take()?;
        self.engine.renewals.remove(self.claim.id);
        Some(Finish::new(depart(self.engine.door.clone(), Arc::clone(&self.claim), stake.entering)))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        drop(self.departing());
    }
}

/// Waits until the claim is granted (its token) or gone (`None`). Errors are waited out while the claim is trusted and the
/// outage is short.
async fn stands(engine: &Engine, stay: &Stay, seen: Standing, outage: &mut Outage) -> Result<Option<Token>> {
    loop {
        let has_ended = tokio::select! {
            biased;
            granted = granted(engine, stay, seen, outage) => return granted,
            _ = stay.ended() => true,
            () = late_for_long(stay) => false,
        };
        if let Some(since) = stay.late_since()
            && (has_ended || !is_renewed_at_last(engine.door(), stay).await?)
        {
            let silence = Moment::now().since(since);
            outage.began_before(silence, silent(silence))?;
        }
        if has_ended {
            return Ok(None);
        }
    }
}

/// One more request before renewals that were late for long are taken for an outage.
async fn is_renewed_at_last(door: &Door, stay: &Stay) -> Result<bool> {
    match door.renew(std::slice::from_ref(&*stay.claim), SILENCE_MIN).await {
        Ok(_) => {
            stay.set_late(false);
            Ok(true)
        }
        Err(error) if error.is_unavailable() => Ok(false),
        Err(error) => Err(error),
    }
}

async fn granted(engine: &Engine, stay: &Stay, mut seen: Standing, outage: &mut Outage) -> Result<Option<Token>> {
    let (door, mut pauses) = (engine.door(), Pauses::default());
    loop {
        match door.changed(&stay.claim, seen).await {
            Ok(Standing::Held { token }) => return Ok(Some(token)),
            Ok(Standing::Gone) => return Ok(None),
            Ok(queued @ Standing::Queued { .. }) => seen = queued,
            Err(error) => {
                outage.failed(error)?;
                // Those who wait without requests of their own are to notice it too.
                engine.renewals.hasten();
                if !replies_again(door, &stay.claim, outage, &mut pauses).await? {
                    return Ok(None);
                }
            }
        }
    }
}

/// Waits until the store replies to a renewal of the claim; `false` if it says that the claim is gone, which a client may
/// know without the store.
async fn replies_again(door: &Door, claim: &Claim, outage: &mut Outage, pauses: &mut Pauses) -> Result<bool> {
    loop {
        pauses.next().await;
        match door.renew(std::slice::from_ref(claim), SILENCE_MIN).await {
            Ok(leases) if leases.iter().all(Option::is_none) => return Ok(false),
            Ok(_) => {
                outage.is_over();
                return Ok(true);
            }
            Err(error) => outage.failed(error)?,
        }
    }
}

/// Waits until renewals have been late for as long as an outage may last.
async fn late_for_long(stay: &Stay) {
    loop {
        let since = stay.late().await;
        tokio::time::sleep(Outage::LONGEST.saturating_sub(Moment::now().since(since))).await;
        if stay.late_since() == Some(since) {
            return;
        }
    }
}

/// The error of a grant that is over whenever it is heard of.
fn too_slow(place: &str, claim: &Claim) -> Error {
    Error::unavailable("the store's answers take longer than what it grants lasts")
        .remedy("use a longer lease, or a longer crash-grace where there is one")
        .at("acquire", place, Some(claim.name.as_str()))
}

/// Until when a grant that was pushed counts, and for how long a hold does: a waiter's claim counts until `until`, a lease
/// after its last answered request. Its hold counts from that request too, but never for longer than a store waits for a
/// crashed holder.
#[must_use]
pub fn hold_from(until: Moment, lease: Duration, crash: Crash) -> (Moment, Duration) {
    let Crash::Within(grace) = crash else { return (until, lease) };
    let held = lease.min(grace);
    (until.min(until.before(trusted(lease)).after(trusted(held))), held)
}

fn earlier(deadline: Option<Instant>, other: Instant) -> Instant {
    deadline.map_or(other, |deadline| deadline.min(other))
}

/// Leases that make sense: shorter ones could not be renewed in time, longer ones would outlive their reason.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(24 * 60 * 60);
    if (MIN..=MAX).contains(&lease) {
        return Ok(());
    }
    Err(Error::invalid(format!("a lease lasts from {MIN:?} to 24 hours, not {lease:?}")))
}
