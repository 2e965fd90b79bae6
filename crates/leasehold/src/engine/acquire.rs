//! From a wish to a hold: deadline, try, cancellation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::calls::{REPLY_TIMEOUT, StoreCalls, timed_out};
use super::depart::{PendingEnter, depart};
use super::outage::Outage;
use super::validity::{Validity, safe_duration};
use super::{Engine, Hold};
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::runtime::detached::Detached;
use crate::{
    Claim, ClaimId, ClaimantInfo, CrashDetection, Entered, Error, LossReason, Name, OnContention,
    Result, Share, Standing, Token,
};

/// What is asked of a lock.
#[derive(Clone, Debug)]
pub(crate) struct AcquireOptions {
    pub(crate) name: Name,
    pub(crate) share: Share,
    pub(crate) lease: Duration,
    pub(crate) label: String,
    /// The lease is not renewed.
    pub(crate) no_renewal: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// How long to wait in line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    Forever,
    Never,
    AtMost(Duration),
}

impl WaitLimit {
    fn deadline(self) -> Option<Instant> {
        match self {
            // Beyond the clock's range is for ever.
            Self::AtMost(wait) if !wait.is_zero() => Instant::now().checked_add(wait),
            // No time to wait in line is time to ask: the store may have to wait for its disk.
            Self::AtMost(_) | Self::Forever | Self::Never => None,
        }
    }

    fn on_contention(self) -> OnContention {
        match self {
            Self::Never => OnContention::Fail,
            Self::AtMost(wait) if wait.is_zero() => OnContention::Fail,
            Self::Forever | Self::AtMost(_) => OnContention::Queue,
        }
    }
}

/// How often a grant is asked after that is over by the time of the answer.
const CONFIRMATIONS_MAX: u32 = 3;
/// A store that says nothing for as long is not just slow.
const NO_REPLY_MIN: Duration = Duration::from_secs(1);

/// `None` if it was not granted in time; then nothing is left in the line.
///
/// A store that does not reply for [`REPLY_TIMEOUT`] while the claim waits is unavailable. So is one that cannot be reached at
/// the deadline.
///
/// Dropping this future at any point leaves nothing either: what was under way is finished and undone in the background.
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    options: &AcquireOptions,
    wait: WaitLimit,
) -> Result<Option<Hold>> {
    let deadline = wait.deadline();
    let (mut backoff, mut outage) = (Backoff::default(), Outage::default());
    loop {
        let attempt = Attempt::begin(engine, options, wait.on_contention())?;
        match attempt.run(deadline, &mut outage).await? {
            Outcome::Granted(hold) => return Ok(Some(hold)),
            Outcome::Refused => return Ok(None),
            // The process slept, the store was away, or somebody cleared the line: in again at its end, while there is time.
            Outcome::Gone => {}
        }
        if !backoff.wait_before(deadline).await {
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
    options: &'a AcquireOptions,
    claim: Arc<Claim>,
    on_contention: OnContention,
    /// `Some` while the claim may be in the store without a hold that would release it.
    pending_entry: Option<PendingEntry>,
}

struct PendingEntry {
    entering: Option<PendingEnter>,
}

impl<'a> Attempt<'a> {
    fn begin(
        engine: &'a Arc<Engine>,
        options: &'a AcquireOptions,
        on_contention: OnContention,
    ) -> Result<Self> {
        let info = Arc::new(ClaimantInfo::here(&options.label)?);
        let (name, id, renewed) = (options.name.clone(), ClaimId::draw(), !options.no_renewal);
        let claim = Arc::new(Claim {
            name,
            id,
            share: options.share,
            lease: options.lease,
            auto_renew: renewed,
            info,
        });
        Ok(Self {
            engine,
            options,
            claim,
            on_contention,
            pending_entry: None,
        })
    }

    async fn run(mut self, deadline: Option<Instant>, outage: &mut Outage) -> Result<Outcome> {
        let started = Instant::now();
        let (sent_at, entered) = match self.enter(deadline, outage).await {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(Outcome::Refused),
            Err(error) => {
                return outage
                    .entering_failed(started, error)
                    .map(|()| Outcome::Gone);
            }
        };
        outage.entered();
        match entered.standing {
            Standing::Held { token } => {
                self.confirm_if_stale(
                    token,
                    sent_at,
                    sent_at.saturating_add(safe_duration(entered.lease)),
                    entered.lease,
                )
                .await
            }
            Standing::Gone if self.on_contention == OnContention::Fail => {
                self.pending_entry = None;
                Ok(Outcome::Refused)
            }
            Standing::Gone => Ok(Outcome::Gone),
            Standing::Queued { .. } => self.wait(sent_at, entered, deadline, outage).await,
        }
    }

    /// `None` if the deadline came too soon to say that the store does not answer.
    async fn enter(
        &mut self,
        deadline: Option<Instant>,
        outage: &Outage,
    ) -> Result<Option<(BootInstant, Entered)>> {
        let (calls, claim, on_contention) = (
            self.engine.calls.clone(),
            Arc::clone(&self.claim),
            self.on_contention,
        );
        let entering = Detached::new(async move { calls.enter(&claim, on_contention).await });
        let pending_entry = self.pending_entry.insert(PendingEntry {
            entering: Some(entering),
        });
        let entering = pending_entry.entering.as_mut().expect("just put there");
        let started = Instant::now();
        let listen_until = earlier(
            deadline,
            outage.ends_at().unwrap_or(started + REPLY_TIMEOUT),
        );
        let Ok(reply) = timeout_at(listen_until, entering).await else {
            let waited = started.elapsed();
            return match outage.error() {
                Some(error) => Err(error),
                None if waited < NO_REPLY_MIN => Ok(None),
                None => Err(timed_out(waited)),
            };
        };
        pending_entry.entering = None;
        reply.map(Some)
    }

    async fn wait(
        self,
        sent_at: BootInstant,
        entered: Entered,
        deadline: Option<Instant>,
        outage: &mut Outage,
    ) -> Result<Outcome> {
        let valid_until = sent_at.saturating_add(safe_duration(entered.lease));
        let validity =
            Arc::new(Validity::new(Arc::clone(&self.claim), valid_until, None, true).waiting());
        self.engine.renewals.add(Arc::clone(&validity), sent_at);
        let granted = wait_for_grant(self.engine, &validity, entered.standing, outage);
        let waited = match deadline {
            Some(deadline) => timeout_at(deadline, granted).await,
            None => Ok(granted.await),
        };
        match waited {
            Ok(Ok(Some(token))) => match validity.hand_over() {
                // A lease that is to run in full runs from now on.
                Some(until) if self.options.no_renewal && until != BootInstant::FAR_FUTURE => {
                    self.confirm(token).await
                }
                Some(until) => {
                    let (until, lease) =
                        hold_from(until, entered.lease, self.engine.calls.guarantees().crash);
                    self.confirm_if_stale(token, BootInstant::now(), until, lease)
                        .await
                }
                // The renewal task has the claim leave, whatever the store still says of it.
                None => Ok(Outcome::Gone),
            },
            Ok(Ok(None)) => Ok(Outcome::Gone),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => match (self.leave(outage.is_on()).await, outage.error()) {
                (true, _) => Ok(Outcome::Refused),
                (false, error) => Err(error.unwrap_or_else(|| timed_out(NO_REPLY_MIN))),
            },
        }
    }

    /// A grant is trusted from the last answered question about its claim, whenever the grant itself is heard of. If too
    /// little of that is left, the store is asked once more.
    async fn confirm_if_stale(
        self,
        token: Token,
        sent_at: BootInstant,
        until: BootInstant,
        true_lease: Duration,
    ) -> Result<Outcome> {
        if until.duration_since(BootInstant::now()) >= self.options.lease.min(true_lease) / 2 {
            return Ok(self.granted(token, sent_at, until));
        }
        self.confirm(token).await
    }

    async fn confirm(self, token: Token) -> Result<Outcome> {
        for _ in 0..CONFIRMATIONS_MAX {
            let (sent_at, lease) = self.engine.calls.confirm(&self.claim).await?;
            let Some(lease) = lease else {
                return Ok(Outcome::Gone);
            };
            let until = sent_at.saturating_add(safe_duration(lease));
            if until > BootInstant::now() {
                return Ok(self.granted(token, sent_at, until));
            }
        }
        Err(replies_too_slow(self.engine.calls.url(), &self.claim))
    }

    fn granted(mut self, token: Token, sent_at: BootInstant, until: BootInstant) -> Outcome {
        let fixed_end = self.options.no_renewal.then(|| {
            (
                sent_at.saturating_add(safe_duration(self.options.lease)),
                LossReason::LeaseExpired,
            )
        });
        let max_hold_end = self.options.max_hold.map(|most| {
            (
                BootInstant::now().saturating_add(most),
                LossReason::MaxHoldExceeded,
            )
        });
        // A store that keeps claims for less than a fixed lease is asked until that is over.
        let renewed = fixed_end.is_none_or(|(at, _)| until < at);
        let limit = fixed_end
            .into_iter()
            .chain(max_hold_end)
            .min_by_key(|(at, _)| *at);
        let validity = Arc::new(Validity::new(
            Arc::clone(&self.claim),
            until,
            limit,
            renewed,
        ));
        self.engine.renewals.add(Arc::clone(&validity), sent_at);
        self.pending_entry = None;
        Outcome::Granted(Hold::new(Arc::clone(self.engine), validity, token))
    }

    /// Leaves, and waits a little for it, so that a caller who gave up finds nothing of his own in the line. Says whether the
    /// store has replied.
    async fn leave(mut self, is_unreachable: bool) -> bool {
        /// For a store that was unreachable to be back by the deadline.
        const LAST_TRY: Duration = Duration::from_millis(250);
        let Some(departing) = self.start_departure() else {
            return true;
        };
        // Beyond that it goes on in the background.
        let reply = timeout(
            if is_unreachable {
                LAST_TRY
            } else {
                NO_REPLY_MIN
            },
            departing,
        )
        .await;
        reply.is_ok_and(|reply| !reply.is_err_and(|error| error.is_unavailable()))
    }

    fn start_departure(&mut self) -> Option<Detached<Result<bool>>> {
        let pending_entry = self.pending_entry.take()?;
        self.engine.renewals.remove(self.claim.id);
        Some(Detached::new(depart(
            self.engine.calls.clone(),
            Arc::clone(&self.claim),
            pending_entry.entering,
        )))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        drop(self.start_departure());
    }
}

/// Waits until the claim is granted (its token) or gone (`None`). Errors are waited out while the claim is trusted and the
/// outage is short.
async fn wait_for_grant(
    engine: &Engine,
    validity: &Validity,
    seen: Standing,
    outage: &mut Outage,
) -> Result<Option<Token>> {
    loop {
        let has_ended = tokio::select! {
            biased;
            granted = granted(engine, validity, seen, outage) => return granted,
            _ = validity.ended() => true,
            () = late_for_long(validity) => false,
        };
        if let Some(since) = validity.late_since()
            && (has_ended || !is_renewed_at_last(engine.calls(), validity).await?)
        {
            let waited = BootInstant::now().duration_since(since);
            outage.began_before(waited, timed_out(waited))?;
        }
        if has_ended {
            return Ok(None);
        }
    }
}

/// One more request before renewals that were late for long are taken for an outage.
async fn is_renewed_at_last(calls: &StoreCalls, validity: &Validity) -> Result<bool> {
    match calls
        .renew(std::slice::from_ref(&*validity.claim), NO_REPLY_MIN)
        .await
    {
        Ok(_) => {
            validity.set_late(false);
            Ok(true)
        }
        Err(error) if error.is_unavailable() => Ok(false),
        Err(error) => Err(error),
    }
}

async fn granted(
    engine: &Engine,
    validity: &Validity,
    mut seen: Standing,
    outage: &mut Outage,
) -> Result<Option<Token>> {
    let (calls, mut backoff) = (engine.calls(), Backoff::default());
    loop {
        match calls.changed(&validity.claim, seen).await {
            Ok(Standing::Held { token }) => return Ok(Some(token)),
            Ok(Standing::Gone) => return Ok(None),
            Ok(queued @ Standing::Queued { .. }) => seen = queued,
            Err(error) => {
                outage.failed(error)?;
                // Those who wait without requests of their own are to notice it too.
                engine.renewals.hasten();
                if !replies_again(calls, &validity.claim, outage, &mut backoff).await? {
                    return Ok(None);
                }
            }
        }
    }
}

/// Waits until the store replies to a renewal of the claim; `false` if it says that the claim is gone, which a client may
/// know without the store.
async fn replies_again(
    calls: &StoreCalls,
    claim: &Claim,
    outage: &mut Outage,
    backoff: &mut Backoff,
) -> Result<bool> {
    loop {
        backoff.wait().await;
        match calls.renew(std::slice::from_ref(claim), NO_REPLY_MIN).await {
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
async fn late_for_long(validity: &Validity) {
    loop {
        let since = validity.late().await;
        tokio::time::sleep(
            Outage::LONGEST.saturating_sub(BootInstant::now().duration_since(since)),
        )
        .await;
        if validity.late_since() == Some(since) {
            return;
        }
    }
}

/// The error of a grant that is over whenever it is heard of.
fn replies_too_slow(url: &str, claim: &Claim) -> Error {
    Error::unavailable("the store's answers take longer than what it grants lasts")
        .help("use a longer lease, or a longer crash-grace where there is one")
        .during("acquire", url, Some(claim.name.as_str()))
}

/// Until when a grant that was pushed counts, and for how long a hold does: a waiter's claim counts until `until`, a lease
/// after its last answered request. Its hold counts from that request too, but never for longer than a store waits for a
/// crashed holder.
#[must_use]
pub fn hold_from(
    until: BootInstant,
    lease: Duration,
    crash: CrashDetection,
) -> (BootInstant, Duration) {
    let CrashDetection::Within(grace) = crash else {
        return (until, lease);
    };
    let held = lease.min(grace);
    (
        until.min(
            until
                .before(safe_duration(lease))
                .saturating_add(safe_duration(held)),
        ),
        held,
    )
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
    Err(Error::invalid(format!(
        "a lease lasts from {MIN:?} to 24 hours, not {lease:?}"
    )))
}
