//! From acquire options to a hold: deadlines, attempts, cancellation.

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::calls::{REPLY_TIMEOUT, Timed, timed_out};
use super::depart::{PendingEntry, depart};
use super::events::{AcquireEvents, HoldEvents};
use super::limits::{AcquireOptions, Outage, WaitLimit};
use super::validity::{Limit, Validity, hold_from, safe_duration};
use super::wait::{read_refusal, wait_for_grant};
use super::{Engine, Hold};
use crate::claim::draw_part_of;
use crate::runtime::background::Detached;
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::store::claimant_here;
use crate::{
    Claim, Entered, Error, LossReason, Name, OnContention, Refused, Result, Standing, Token,
};

/// How an acquire ended if nothing failed.
pub(crate) type Acquired = Result<Hold, Refused>;

/// Acquires a lock. Returns who holds it if it was not granted in time; the claim is then not
/// queued.
///
/// The store counts as unavailable if it sends no reply for [`REPLY_TIMEOUT`] while the claim
/// waits, if it cannot be reached at the deadline, or at the end of the reply timeout after it.
///
/// # Cancel safety
/// Dropping the future at any point leaves no entry behind: the background completes the request
/// that is under way and undoes it.
pub(crate) async fn acquire(
    engine: &Arc<Engine>,
    options: &AcquireOptions,
    limit: WaitLimit,
) -> Result<Acquired> {
    let events = AcquireEvents::begin(&engine.calls, &options.name);
    let acquired = {
        let acquiring = attempt_until_granted(engine, options, limit, &events, Outage::default());
        let acquiring = pin!(acquiring.instrument(events.span()));
        limit.bound(options.reply_timeout, acquiring).await
    };
    record_end(events, &acquired, |hold| hold);
    acquired
}

/// Records how an acquire ended, in its span and in the metrics.
pub(super) fn record_end<T>(
    events: AcquireEvents,
    acquired: &Result<Result<T, Refused>>,
    hold_of: impl FnOnce(&T) -> &Hold,
) {
    match acquired {
        Ok(Ok(granted)) => {
            let hold = hold_of(granted);
            hold.log_grant(&events.granted(hold.token()));
        }
        Ok(Err(_)) => events.refused(),
        Err(error) => events.failed(error),
    }
}

pub(super) async fn attempt_until_granted(
    engine: &Arc<Engine>,
    options: &AcquireOptions,
    limit: WaitLimit,
    events: &AcquireEvents,
    mut outage: Outage,
) -> Result<Acquired> {
    let deadline = limit.deadline();
    let mut backoff = None;
    let mut expired = 0;

    loop {
        let attempt = Attempt::begin(engine, options, limit.on_contention(), events)?;
        match attempt.run(deadline, &mut outage).await? {
            Outcome::Granted(hold) => return Ok(Ok(hold)),
            Outcome::Refused(refused) => return Ok(Err(refused)),
            // The process slept, the store was unreachable, or an operator removed the entry. Until
            // the deadline, the next attempt enters at the end of the queue.
            Outcome::Gone => expired = 0,
            Outcome::Expired => {
                expired += 1;
                if expired == CONFIRMATIONS_MAX {
                    return Err(replies_too_slow(engine.calls.url(), &options.name));
                }
            }
        }

        let pauses = backoff.get_or_insert_with(Backoff::default);
        if !pauses.wait_before(deadline).await {
            if let Some(error) = outage.into_error() {
                return Err(error);
            }
            let refused = read_refusal(&engine.calls, options, None, Instant::now());
            return Ok(Err(refused.await));
        }
    }
}

/// A claim that has not been granted yet. Dropping the attempt makes the claim leave.
struct Attempt<'a> {
    engine: &'a Arc<Engine>,
    options: &'a AcquireOptions,
    claim: Arc<Claim>,
    on_contention: OnContention,
    events: &'a AcquireEvents,
    pending_entry: PendingEntry,
    /// The reply to the request to enter that was sent while the store was opened.
    first: Option<Timed<Entered>>,
}

/// Returns a new claim with these options.
pub(super) fn claim_of(options: &AcquireOptions) -> Result<Claim> {
    let mut info = claimant_here(&options.label)?;
    info.is_candidate = options.is_candidate;

    let mut claim = Claim::new(options.name.clone(), options.share, Arc::new(info));
    if let Some(whole) = options.part_of {
        claim.id = draw_part_of(whole);
    }
    claim.lease = options.lease;
    claim.auto_renew = !options.no_renewal;
    claim.reserved = options.reserved;
    Ok(claim)
}

enum Outcome {
    Granted(Hold),
    Refused(Refused),
    Gone,
    /// The lease of the grant was over when the client confirmed it.
    Expired,
}

impl<'a> Attempt<'a> {
    fn begin(
        engine: &'a Arc<Engine>,
        options: &'a AcquireOptions,
        on_contention: OnContention,
        events: &'a AcquireEvents,
    ) -> Result<Self> {
        let claim = Arc::new(claim_of(options)?);
        let (claim, pending_entry, first) = match engine.take_first(&claim, on_contention) {
            Some((claim, entered)) => (claim, PendingEntry::Replied, Some(entered)),
            None => (claim, PendingEntry::Absent, None),
        };
        Ok(Self {
            engine,
            options,
            claim,
            on_contention,
            events,
            pending_entry,
            first,
        })
    }

    async fn run(mut self, deadline: Option<Instant>, outage: &mut Outage) -> Result<Outcome> {
        let started = Instant::now();
        let entered = match self.enter(deadline, outage).await {
            Ok(entered) => entered,
            Err(error) => {
                outage.entering_failed(started, error)?;
                return Ok(Outcome::Gone);
            }
        };
        outage.entered();

        match entered.reply.standing {
            Standing::Held { token } => {
                let grant = Grant::replied(token, &entered);
                self.confirm_if_stale(grant).await
            }
            Standing::Gone if self.on_contention == OnContention::Fail => {
                self.pending_entry = PendingEntry::Absent;
                self.refused(entered.reply.refused, started).await
            }
            Standing::Gone => Ok(Outcome::Gone),
            Standing::Queued { .. } => self.wait(entered, deadline, outage).await,
        }
    }

    /// Sends the request to enter.
    async fn enter(
        &mut self,
        deadline: Option<Instant>,
        outage: &Outage,
    ) -> Result<Timed<Entered>> {
        if let Some(entered) = self.first.take() {
            return Ok(entered);
        }
        let started = Instant::now();
        let outage_ends_at = outage.ends_at().unwrap_or(started + REPLY_TIMEOUT);
        let give_up_at = match deadline {
            None => outage_ends_at,
            Some(deadline) if outage.is_on() => outage_ends_at.min(deadline),
            // Only a reply shows whether the lock is held. So a store that is merely slow may reply
            // after the deadline.
            Some(deadline) => {
                outage_ends_at.min(deadline.max(started + self.options.reply_timeout))
            }
        };

        let calls = self.engine.calls.clone();
        let claim = Arc::clone(&self.claim);
        let on_contention = self.on_contention;
        let entering = async move { calls.enter(&claim, on_contention).await };
        let entering = self.pending_entry.begin(Detached::new(entering));

        let Ok(reply) = timeout_at(give_up_at, entering).await else {
            return Err(outage
                .error()
                .unwrap_or_else(|| timed_out(started.elapsed())));
        };
        self.pending_entry = PendingEntry::Replied;
        reply
    }

    /// Waits in the queue for the grant.
    async fn wait(
        self,
        entered: Timed<Entered>,
        deadline: Option<Instant>,
        outage: &mut Outage,
    ) -> Result<Outcome> {
        let lease = entered.reply.lease;
        let valid_until = entered.sent_at.saturating_add(safe_duration(lease));
        let validity = Arc::new(Validity::waiting(Arc::clone(&self.claim), valid_until));
        self.engine
            .renewals
            .add(Arc::clone(&validity), entered.sent_at);

        let ahead = ahead(entered.reply.standing);
        let _waiting = self.events.queued(ahead);
        let granted = wait_for_grant(self.engine, &validity, ahead, outage);
        let waited = match deadline {
            Some(deadline) => timeout_at(deadline, granted).await,
            None => Ok(granted.await),
        };

        match waited {
            Ok(Ok(Some(token))) => self.take_over(&validity, token, lease).await,
            Ok(Ok(None)) => Ok(Outcome::Gone),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Box::pin(self.give_up(outage)).await,
        }
    }

    /// Replaces the validity of the waiting claim with that of a hold.
    ///
    /// Two tasks may decide the fate of the claim at the same moment: this one has its grant, and
    /// the renewal task may have found that its validity has passed, after which it makes the claim
    /// leave. The first of them to end the validity decides. If the renewal task was first, the
    /// grant must not be used, although the store may still have it: the leave that is under way
    /// would free a lock that this process works under. If this task was first, the renewal task
    /// finds that the validity was left, and sends no leave.
    async fn take_over(self, waiting: &Validity, token: Token, lease: Duration) -> Result<Outcome> {
        let Some(until) = waiting.hand_over() else {
            // The claim leaves, in every state that the store has it in: the drop of this attempt
            // sees to that even if the renewal task does not.
            self.events.hand_over_missed(&self.claim);
            return Ok(Outcome::Gone);
        };

        // A lease that is not renewed runs in full, beginning now.
        if self.options.no_renewal && until != BootInstant::FAR_FUTURE {
            return self.confirm(token).await;
        }

        let crash = self.engine.calls.guarantees().crash_release;
        let (valid_until, lease) = hold_from(until, lease, &crash);
        self.confirm_if_stale(Grant {
            token,
            sent_at: BootInstant::now(),
            valid_until,
            lease,
        })
        .await
    }

    /// Returns the refusal of a request to enter that was sent after `started`.
    async fn refused(self, refused: Option<Box<Refused>>, started: Instant) -> Result<Outcome> {
        let refused = match refused {
            Some(refused) => *refused,
            None => read_refusal(&self.engine.calls, self.options, None, started).await,
        };
        Ok(Outcome::Refused(refused))
    }

    /// Leaves the queue at the deadline.
    ///
    /// The lock is inspected just before, in the round trip of leaving, so that the caller receives
    /// the holder at the deadline and not the one that was first in the way.
    async fn give_up(self, outage: &Outage) -> Result<Outcome> {
        if let Some(error) = outage.error() {
            return Err(error);
        }

        let claim = Some(self.claim.id);
        let reading = read_refusal(&self.engine.calls, self.options, claim, Instant::now());
        let (refused, left) = tokio::join!(biased; reading, self.leave());
        match left {
            Err(error) if error.is_unavailable() => Err(error),
            // A reply of any kind shows that the store has not granted the lock in time.
            Ok(_) | Err(_) => Ok(Outcome::Refused(refused)),
        }
    }

    /// Leaves, and waits for the reply, so that a caller that gave up finds no entry of its own in
    /// the queue.
    ///
    /// If the reply does not come, the limit of the whole acquire ends the wait. The departure then
    /// continues in the background.
    async fn leave(mut self) -> Result<bool> {
        match self.start_departure() {
            Some(departing) => departing.await,
            None => Ok(false),
        }
    }

    /// Returns the hold of a grant, after another request if too little of its validity is left.
    ///
    /// The validity of a grant begins at the last request about the claim that got a reply. It does
    /// not begin when the client receives the grant. The hold must survive an outage of 0.6 of its
    /// validity that begins before its first renewal.
    async fn confirm_if_stale(self, grant: Grant) -> Result<Outcome> {
        let remaining = grant.valid_until.duration_since(BootInstant::now());
        if remaining >= self.options.lease.min(grant.lease) / 10 * 7 {
            return Ok(self.granted(&grant));
        }
        self.confirm(grant.token).await
    }

    async fn confirm(self, token: Token) -> Result<Outcome> {
        for tries_left in (0..CONFIRMATIONS_MAX).rev() {
            let renewed = self.engine.calls.confirm(&self.claim).await?;
            let Some(lease) = renewed.reply else {
                self.events.hand_over_missed(&self.claim);
                return Ok(Outcome::Expired);
            };

            let sent_at = renewed.sent_at;
            let valid_until = sent_at.saturating_add(safe_duration(lease));
            let remaining = valid_until.duration_since(BootInstant::now());
            // A pause of this process may take most of a lease that no renewal extends.
            let is_short = self.options.no_renewal && tries_left > 0 && remaining < lease / 2;
            if !remaining.is_zero() && !is_short {
                return Ok(self.granted(&Grant {
                    token,
                    sent_at,
                    valid_until,
                    lease,
                }));
            }
        }
        Err(replies_too_slow(self.engine.calls.url(), &self.claim.name))
    }

    fn granted(mut self, grant: &Grant) -> Outcome {
        let fixed_end = self.options.no_renewal.then(|| self.fixed_end(grant));
        let max_hold_end = self.options.max_hold.map(|max_hold| Limit {
            at: BootInstant::now().saturating_add(max_hold),
            reason: LossReason::MaxHoldExceeded,
        });

        let mut validity = Validity::held(Arc::clone(&self.claim), grant.valid_until);
        // Holds that are passed on have events of their own.
        if self.options.reserved == 0 && self.options.part_of.is_none() {
            let events = HoldEvents::begin(&self.engine.calls, &self.claim, grant.token);
            validity = validity.with_events(events);
        }
        // A store may keep claims for less than a fixed lease. The client then renews the claim
        // until the fixed lease ends.
        if fixed_end.is_some_and(|end| end.at <= grant.valid_until) {
            validity = validity.without_renewal();
        }
        let ends = fixed_end.into_iter().chain(max_hold_end);
        if let Some(limit) = ends.min_by_key(|limit| limit.at) {
            validity = validity.with_limit(limit);
        }

        let validity = Arc::new(validity);
        self.engine
            .renewals
            .add(Arc::clone(&validity), grant.sent_at);
        self.pending_entry = PendingEntry::Absent;
        Outcome::Granted(Hold::new(Arc::clone(self.engine), validity, grant.token))
    }

    /// Returns when a lease that is not renewed ends.
    ///
    /// A store without leases does not end it. So it runs in full, beginning now.
    fn fixed_end(&self, grant: &Grant) -> Limit {
        let begins_at = if self.engine.calls.guarantees().lease_expiry {
            grant.sent_at
        } else {
            BootInstant::now()
        };
        Limit {
            at: begins_at.saturating_add(safe_duration(self.options.lease)),
            reason: LossReason::LeaseExpired,
        }
    }

    fn start_departure(&mut self) -> Option<Detached<Result<bool>>> {
        let pending_entry = self.pending_entry.take()?;
        self.engine.renewals.remove(self.claim.id);

        let calls = self.engine.calls.clone();
        let claim = Arc::clone(&self.claim);
        Some(Detached::new(depart(calls, claim, pending_entry)))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        drop(self.start_departure());
    }
}

/// A grant, as far as the client may trust it.
struct Grant {
    token: Token,
    sent_at: BootInstant,
    valid_until: BootInstant,
    lease: Duration,
}

impl Grant {
    /// The grant in the reply to the request to enter.
    fn replied(token: Token, entered: &Timed<Entered>) -> Self {
        let lease = entered.reply.lease;
        Self {
            token,
            sent_at: entered.sent_at,
            valid_until: entered.sent_at.saturating_add(safe_duration(lease)),
            lease,
        }
    }
}

fn ahead(standing: Standing) -> u32 {
    match standing {
        Standing::Queued { ahead } => ahead,
        Standing::Held { .. } | Standing::Gone => 0,
    }
}

/// The error for a grant that had expired at each attempt before the client received it.
fn replies_too_slow(url: &str, name: &Name) -> Error {
    Error::unavailable("the store replies too slowly: its grants expire before they arrive")
        .help("use a longer lease, or a longer crash-grace if the store has one")
        .during("acquire", url, Some(name.as_str()))
}

/// How often a client confirms a grant that has expired when the reply arrives, or a lease of which
/// the reply leaves less than half; and how many grants in turn may be gone when it confirms them.
const CONFIRMATIONS_MAX: u32 = 3;
