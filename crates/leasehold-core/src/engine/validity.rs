//! How long this process may rely on its claim.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::events::{HoldEvents, contained};
use crate::runtime::clock::BootInstant;
use crate::runtime::fork;
use crate::{Claim, ClaimId, CrashRelease, Error, LossReason, RenewalStatus, Result};

/// The validity of one claim. It lasts until a given time, and never starts again after its end.
///
/// ```text
/// Valid ──extend──► Valid
///   ├── the time passes, revoked, limit, fork ──► Lost(reason)
///   └── leave ──────────────────────────────────► Left
/// ```
/// `valid_until` is when the claim ends without a renewal, regardless of the limit. It is 0 after
/// the end. It is set after `ending`, so a reader that finds 0 finds the
/// ending too.
#[derive(Debug)]
pub(crate) struct Validity {
    pub(crate) claim: Arc<Claim>,
    valid_until: AtomicU64,
    ending: OnceLock<End>,
    has_ended: Notify,
    /// No renewal extends the validity beyond this limit.
    limit: Option<Limit>,
    auto_renew: bool,
    phase: Phase,
    /// Since when renewals have had no reply, in nanoseconds; 0 if the last one got a reply.
    late: AtomicU64,
    became_late: Notify,
    /// For the log; `None` while the claim waits.
    events: Option<HoldEvents>,
    loss_listener: Option<Arc<dyn LossListener>>,
}

/// Is notified at once when a hold is lost.
pub(super) trait LossListener: fmt::Debug + Send + Sync {
    /// Called once, in the call that ends the validity. It must not block.
    fn lost(&self, claim: ClaimId);
}

/// The end of a validity that no renewal moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) at: BootInstant,
    pub(crate) reason: LossReason,
}

/// Whether the claim holds or waits: a holder renews more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Held,
}

/// How a validity ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client gave the claim back.
    Left,
    /// The claim ended against the client's will.
    Lost(LossReason),
}

impl Validity {
    /// Creates the validity of a holder, with renewal.
    pub(crate) fn held(claim: Arc<Claim>, valid_until: BootInstant) -> Self {
        Self {
            claim,
            valid_until: AtomicU64::new(valid_until.as_nanos()),
            ending: OnceLock::new(),
            has_ended: Notify::new(),
            limit: None,
            auto_renew: true,
            phase: Phase::Held,
            late: AtomicU64::new(0),
            became_late: Notify::new(),
            events: None,
            loss_listener: None,
        }
    }

    /// Creates the validity of a waiter, with renewal.
    pub(crate) fn waiting(claim: Arc<Claim>, valid_until: BootInstant) -> Self {
        Self {
            phase: Phase::Waiting,
            ..Self::held(claim, valid_until)
        }
    }

    /// Ends the validity at the limit, if not earlier.
    pub(crate) fn with_limit(self, limit: Limit) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    pub(crate) fn without_renewal(self) -> Self {
        Self {
            auto_renew: false,
            ..self
        }
    }

    /// Logs and counts the end of the hold by these events.
    pub(crate) fn with_events(self, events: HoldEvents) -> Self {
        Self {
            events: Some(events),
            ..self
        }
    }

    /// Notifies the listener of a loss.
    pub(super) fn with_loss_listener(self, listener: Arc<dyn LossListener>) -> Self {
        Self {
            loss_listener: Some(listener),
            ..self
        }
    }

    pub(crate) fn events(&self) -> Option<&HoldEvents> {
        self.events.as_ref()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns whether the renewal task extends it.
    pub(crate) fn auto_renews(&self) -> bool {
        self.auto_renew
    }

    /// Returns the end of the validity; `None` if that is in the past.
    ///
    /// It reads the clock, and records the loss if the time has passed.
    pub(crate) fn valid_until(&self) -> Option<BootInstant> {
        if fork::is_forked() {
            // The hold is that of the parent, which alone logs and counts its end. An end before
            // the fork stays the reason.
            let _ = self.ending.set(End::Lost(LossReason::Forked));
            return None;
        }
        self.valid_until_here()
    }

    /// As [`valid_until`](Self::valid_until), in a step that has checked for a fork.
    fn valid_until_here(&self) -> Option<BootInstant> {
        let claim_ends_at = self.claim_ends_at();
        if claim_ends_at.as_nanos() == 0 {
            return None;
        }
        let until = self.limited(claim_ends_at);
        if BootInstant::now() < until {
            return Some(until);
        }

        self.end(End::Lost(self.loss_at(until)));
        None
    }

    /// Returns how long it lasts from now; `Duration::MAX` if it has no end.
    pub(crate) fn remaining(&self) -> Duration {
        self.valid_until().map_or(Duration::ZERO, |until| {
            until.duration_since(BootInstant::now())
        })
    }

    /// Returns when it ends by itself, whether or not the end has been recorded.
    pub(crate) fn expires_at(&self) -> BootInstant {
        self.limited(self.claim_ends_at())
    }

    /// Returns when the claim ends without a renewal, regardless of the limit; 0 after the end.
    pub(crate) fn claim_ends_at(&self) -> BootInstant {
        BootInstant::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// Extends the validity unless it has ended; returns whether it is still valid.
    ///
    /// An end that a caller has seen is final, because of the order in which `end` writes: the
    /// reason, and then 0. If the 0 comes before the exchange, the exchange finds another value
    /// than `current` and fails. If it comes after the exchange, it overwrites the extension, and a
    /// caller in between sees the validity as it was just before that end.
    ///
    /// The time may also pass between the look at the clock and the exchange without any caller who
    /// notices. Then nobody has acted on a loss, and the extension is right: the reply proves that
    /// the store keeps the claim until `until`.
    pub(crate) fn extend(&self, until: BootInstant) -> bool {
        loop {
            let current = self.claim_ends_at().as_nanos();
            if self.valid_until().is_none() {
                return false;
            }
            let longer = until.as_nanos().max(current);
            let exchanged = self.valid_until.compare_exchange(
                current,
                longer,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if exchanged.is_ok() {
                return true;
            }
        }
    }

    /// Ends the validity for good; returns whether this call ended it.
    pub(crate) fn end(&self, ending: End) -> bool {
        let is_first = self.ending.set(ending).is_ok();
        self.valid_until.store(0, Ordering::Release);

        if is_first {
            if let Some(events) = &self.events {
                contained(|| events.ended(&self.claim, ending.loss()));
            }
            self.has_ended.notify_waiters();
            if let (End::Lost(_), Some(listener)) = (ending, &self.loss_listener) {
                listener.lost(self.claim.id);
            }
        }
        is_first
    }

    /// Records that the store no longer has the claim.
    ///
    /// If the validity had already expired, the end of the lease stays the reason for the loss.
    pub(crate) fn revoke(&self) -> bool {
        self.valid_until().is_some() && self.end(End::Lost(LossReason::Revoked))
    }

    /// Ends this validity because another one of the same claim replaces it; returns until when the
    /// claim was valid, regardless of the limit of this validity.
    ///
    /// Returns `None` if it had already ended: the renewal task may then be making the claim leave.
    pub(crate) fn hand_over(&self) -> Option<BootInstant> {
        let until = self.claim_ends_at();
        self.end(End::Left).then_some(until)
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> End {
        loop {
            let has_ended = self.has_ended.notified();
            if let Some(ending) = self.ending() {
                return ending;
            }
            has_ended.await;
        }
    }

    /// Returns how it ended; `None` while it is valid.
    pub(crate) fn ending(&self) -> Option<End> {
        self.valid_until();
        self.recorded_end()
    }

    /// As [`ending`](Self::ending), in a step that has checked for a fork.
    pub(crate) fn ending_here(&self) -> Option<End> {
        self.valid_until_here();
        self.recorded_end()
    }

    /// Returns how it ended, as far as that was noticed.
    pub(crate) fn recorded_end(&self) -> Option<End> {
        self.ending.get().copied()
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.valid_until() {
            Some(_) => Ok(()),
            None => Err(self.error()),
        }
    }

    /// Returns the error of using the claim after the end.
    pub(crate) fn error(&self) -> Error {
        match self.ending().and_then(End::loss) {
            Some(reason) => reason.error(),
            None => Error::lost("the lock has been released"),
        }
    }

    /// Records whether the last renewal got a reply.
    pub(crate) fn set_late(&self, is_late: bool) {
        if !is_late {
            self.late.store(0, Ordering::Release);
        } else if self.late_since().is_none() {
            let now = BootInstant::now().as_nanos();
            self.late.store(now, Ordering::Release);
            self.became_late.notify_waiters();
        }
    }

    /// Returns since when renewals have had no reply.
    pub(crate) fn late_since(&self) -> Option<BootInstant> {
        let late = self.late.load(Ordering::Acquire);
        (late != 0).then(|| BootInstant::from_nanos(late))
    }

    /// Waits until a renewal has no reply; returns since when.
    pub(crate) async fn late(&self) -> BootInstant {
        loop {
            let mut became_late = std::pin::pin!(self.became_late.notified());
            became_late.as_mut().enable();

            if let Some(since) = self.late_since() {
                return since;
            }
            became_late.await;
        }
    }

    pub(crate) fn renewal(&self) -> RenewalStatus {
        if !self.auto_renew || self.valid_until().is_none() {
            return RenewalStatus::Off;
        }
        match self.late_since() {
            Some(_) => RenewalStatus::Late,
            None => RenewalStatus::OnTime,
        }
    }

    fn limited(&self, claim_ends_at: BootInstant) -> BootInstant {
        self.limit
            .map_or(claim_ends_at, |limit| limit.at.min(claim_ends_at))
    }

    fn loss_at(&self, until: BootInstant) -> LossReason {
        match self.limit {
            Some(limit) if limit.at == until => limit.reason,
            _ => LossReason::RenewalTimedOut,
        }
    }
}

impl End {
    pub(crate) fn loss(self) -> Option<LossReason> {
        match self {
            Self::Left => None,
            Self::Lost(reason) => Some(reason),
        }
    }
}

/// Returns for how long a client may rely on a lease, from before its request.
///
/// It is the lease minus the drift between two clocks (500 ppm) and the resolution of a store's
/// timers.
#[must_use]
pub fn safe_duration(lease: Duration) -> Duration {
    const GRAIN: Duration = Duration::from_millis(2);
    if lease == Duration::MAX {
        return lease;
    }

    let drift = lease / 2_000;
    lease.saturating_sub(drift).saturating_sub(GRAIN)
}

/// Returns until when a grant that the store pushed is valid, and the lease of its hold.
///
/// A waiting claim is valid until `until`, which is one lease after its last request that got a
/// reply. The validity of the hold begins at that request too. Its lease is never longer than the
/// time for which the store waits for a crashed holder.
#[must_use]
pub fn hold_from(
    until: BootInstant,
    lease: Duration,
    crash: &CrashRelease,
) -> (BootInstant, Duration) {
    let CrashRelease::Within { grace } = *crash else {
        return (until, lease);
    };

    let held = lease.min(grace);
    let sent_at = until.before(safe_duration(lease));
    let held_until = sent_at.saturating_add(safe_duration(held));
    (until.min(held_until), held)
}
