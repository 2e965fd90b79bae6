//! One claim's time in a line, as its own process may trust it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::runtime::clock::BootInstant;
use crate::{Claim, Error, LossReason, RenewalStatus};

/// Trusted from a request to `until`, and never again once that has passed or an ending was named.
///
/// ```text
/// Trusted ──extend──► Trusted
///    ├── until passes, gone, limit ──► Lost(why)
///    └── leave ──────────────────────► Left
/// ```
/// `until` is 0 once over. It is set after `ending`, so whoever reads 0 finds the ending.
#[derive(Debug)]
pub(crate) struct Validity {
    pub(crate) claim: Arc<Claim>,
    valid_until: AtomicU64,
    ending: OnceLock<End>,
    error: Notify,
    /// No renewal reaches beyond this.
    limit: Option<(BootInstant, LossReason)>,
    auto_renew: bool,
    phase: Phase,
    /// Since when its renewals have had no reply, in nanoseconds; 0 if the last one had.
    late: AtomicU64,
    became_late: Notify,
}

/// Whether the claim holds or waits: a holder is renewed more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Held,
}

impl Validity {
    pub(crate) fn new(
        claim: Arc<Claim>,
        until: BootInstant,
        limit: Option<(BootInstant, LossReason)>,
        renewed: bool,
    ) -> Self {
        let validity = Self {
            claim,
            valid_until: AtomicU64::new(0),
            ending: OnceLock::new(),
            error: Notify::new(),
            limit,
            auto_renew: renewed,
            phase: Phase::Held,
            late: AtomicU64::new(0),
            became_late: Notify::new(),
        };
        validity
            .valid_until
            .store(validity.is_limited(until).as_nanos(), Ordering::Release);
        validity
    }

    /// The stay of a claim that waits, which [`new`](Self::new) makes one of a holder.
    pub(crate) fn waiting(self) -> Self {
        Self {
            phase: Phase::Waiting,
            ..self
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the renewal task keeps it alive.
    pub(crate) fn auto_renews(&self) -> bool {
        self.auto_renew
    }

    /// Until when it may be trusted; `None` once over. Reads the clock, and so ends what has run out.
    pub(crate) fn valid_until(&self) -> Option<BootInstant> {
        let until = self.valid_until.load(Ordering::Acquire);
        if until == 0 {
            return None;
        }
        if BootInstant::now().as_nanos() < until {
            return Some(BootInstant::from_nanos(until));
        }
        self.end(End::Lost(self.loss_at(until)));
        None
    }

    /// Notes whether the last question to renew it was answered.
    pub(crate) fn set_late(&self, late: bool) {
        if !late {
            self.late.store(0, Ordering::Release);
        } else if self.late_since().is_none() {
            self.late
                .store(BootInstant::now().as_nanos(), Ordering::Release);
            self.became_late.notify_waiters();
        }
    }

    /// Since when renewals have had no reply.
    pub(crate) fn late_since(&self) -> Option<BootInstant> {
        let late = self.late.load(Ordering::Acquire);
        (late != 0).then(|| BootInstant::from_nanos(late))
    }

    /// Waits until a renewal has no reply; since when that is so.
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
        if self.late_since().is_some() {
            RenewalStatus::Late
        } else {
            RenewalStatus::OnTime
        }
    }

    /// When it ends by itself, whether or not that has been noticed.
    pub(crate) fn expires_at(&self) -> BootInstant {
        BootInstant::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// Trusts it longer, unless it is already over; says whether it still is trusted.
    pub(crate) fn extend(&self, until: BootInstant) -> bool {
        let until = self.is_limited(until).as_nanos();
        loop {
            let Some(current) = self.valid_until() else {
                return false;
            };
            let current = current.as_nanos();
            let longer = until.max(current);
            if self
                .valid_until
                .compare_exchange(current, longer, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// Ends it for good; says whether this call did.
    pub(crate) fn end(&self, ending: End) -> bool {
        let first = self.ending.set(ending).is_ok();
        self.valid_until.store(0, Ordering::Release);
        if first {
            self.error.notify_waiters();
        }
        first
    }

    /// The store no longer has the claim. If its time had run out before, that is why.
    pub(crate) fn revoke(&self) -> bool {
        self.valid_until().is_some() && self.end(End::Lost(LossReason::Revoked))
    }

    /// Ends it for what takes its place; until when it could be trusted. `None` if it was over, and whoever saw to that may
    /// be having the claim leave.
    pub(crate) fn hand_over(&self) -> Option<BootInstant> {
        let until = self.expires_at();
        self.end(End::Left).then_some(until)
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> End {
        loop {
            let intercepted = self.error.notified();
            if let Some(ending) = self.ending() {
                return ending;
            }
            intercepted.await;
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ending(&self) -> Option<End> {
        self.valid_until();
        self.ending.get().copied()
    }

    pub(crate) fn check(&self) -> crate::Result<()> {
        if self.valid_until().is_some() {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    /// The error of using it when it is over.
    pub(crate) fn error(&self) -> Error {
        match self.ending().and_then(End::loss) {
            Some(loss) => loss.error(),
            None => Error::lost("the lock has been released"),
        }
    }

    fn is_limited(&self, until: BootInstant) -> BootInstant {
        self.limit.map_or(until, |(limit, _)| limit.min(until))
    }

    fn loss_at(&self, until: u64) -> LossReason {
        match self.limit {
            Some((limit, loss)) if limit.as_nanos() == until => loss,
            _ => LossReason::RenewalTimedOut,
        }
    }
}

/// How a stay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By its own will.
    Left,
    /// Against it.
    Lost(LossReason),
}

impl End {
    pub(crate) fn loss(self) -> Option<LossReason> {
        match self {
            Self::Left => None,
            Self::Lost(loss) => Some(loss),
        }
    }
}

/// How long a lease may be trusted, from before the question: less what two clocks may differ in rate (500 ppm) and
/// in the grain of a store's timers.
#[must_use]
pub fn safe_duration(lease: Duration) -> Duration {
    const GRAIN: Duration = Duration::from_millis(2);
    if lease == Duration::MAX {
        lease
    } else {
        lease.saturating_sub(lease / 2_000).saturating_sub(GRAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimId, ClaimantInfo, Name, Share};

    const HOUR: Duration = Duration::from_secs(3600);

    fn validity(until: BootInstant, limit: Option<(BootInstant, LossReason)>) -> Validity {
        let (name, info) = (
            Name::parse("a").expect("a good name"),
            ClaimantInfo::here("").expect("a good label"),
        );
        Validity::new(
            Arc::new(Claim {
                name,
                id: ClaimId::draw(),
                share: Share::MUTEX,
                lease: HOUR,
                auto_renew: true,
                info: info.into(),
            }),
            until,
            limit,
            true,
        )
    }

    #[test]
    fn expired_validity_is_not_revived_by_a_late_reply() {
        let validity = validity(BootInstant::now(), None);
        assert!(
            !validity.extend(BootInstant::now().saturating_add(HOUR)),
            "a late answer revived it"
        );
        assert_eq!(
            validity.ending(),
            Some(End::Lost(LossReason::RenewalTimedOut))
        );
        assert!(validity.check().expect_err("over").is_lost());
    }

    #[test]
    fn extension_never_shortens_and_never_exceeds_the_limit() {
        let now = BootInstant::now();
        let validity = validity(
            now.saturating_add(HOUR),
            Some((now.saturating_add(2 * HOUR), LossReason::LeaseExpired)),
        );
        assert!(validity.extend(now.saturating_add(HOUR / 2)));
        assert_eq!(validity.valid_until(), Some(now.saturating_add(HOUR)));
        assert!(validity.extend(now.saturating_add(9 * HOUR)));
        assert_eq!(validity.valid_until(), Some(now.saturating_add(2 * HOUR)));
    }

    #[test]
    fn expired_limit_gives_its_loss_reason() {
        let now = BootInstant::now();
        let validity = validity(
            now.saturating_add(HOUR),
            Some((now, LossReason::MaxHoldExceeded)),
        );
        assert_eq!(
            validity.ending(),
            Some(End::Lost(LossReason::MaxHoldExceeded))
        );
    }

    #[test]
    fn expired_lease_is_not_reported_as_revoked() {
        let now = BootInstant::now();
        let validity = validity(
            now.saturating_add(HOUR),
            Some((now, LossReason::LeaseExpired)),
        );
        validity.revoke();
        assert_eq!(validity.ending(), Some(End::Lost(LossReason::LeaseExpired)));
    }

    #[test]
    fn first_end_of_validity_is_kept() {
        let validity = validity(BootInstant::FAR_FUTURE, None);
        assert!(validity.end(End::Left) && !validity.revoke());
        assert_eq!(
            (validity.ending(), validity.valid_until()),
            (Some(End::Left), None)
        );
    }

    #[test]
    fn safe_duration_is_shorter_than_the_lease() {
        assert!(safe_duration(HOUR) + Duration::from_secs(1) < HOUR);
        assert_eq!(safe_duration(Duration::MAX), Duration::MAX);
        assert_eq!(safe_duration(Duration::from_millis(1)), Duration::ZERO);
    }
}
