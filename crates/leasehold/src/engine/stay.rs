//! One claim's time in a line, as its own process may trust it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Moment;
use crate::{Claim, Error, Loss, Renewal};

/// Trusted from a request to `until`, and never again once that has passed or an ending was named.
///
/// ```text
/// Trusted ──extend──► Trusted
///    ├── until passes, gone, limit ──► Lost(why)
///    └── leave ──────────────────────► Left
/// ```
/// `until` is 0 once over. It is set after `ending`, so whoever reads 0 finds the ending.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(crate) claim: Arc<Claim>,
    until: AtomicU64,
    ending: OnceLock<Ending>,
    over: Notify,
    /// No renewal reaches beyond this.
    limit: Option<(Moment, Loss)>,
    renewed: bool,
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

impl Stay {
    pub(crate) fn new(claim: Arc<Claim>, until: Moment, limit: Option<(Moment, Loss)>, renewed: bool) -> Self {
        let stay = Self {
            claim,
            until: AtomicU64::new(0),
            ending: OnceLock::new(),
            over: Notify::new(),
            limit,
            renewed,
            phase: Phase::Held,
            late: AtomicU64::new(0),
            became_late: Notify::new(),
        };
        stay.until.store(stay.limited(until).as_nanos(), Ordering::Release);
        stay
    }

    /// The stay of a claim that waits, which [`new`](Self::new) makes one of a holder.
    pub(crate) fn waiting(self) -> Self {
        Self { phase: Phase::Waiting, ..self }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the renewal task keeps it alive.
    pub(crate) fn is_renewed(&self) -> bool {
        self.renewed
    }

    /// Until when it may be trusted; `None` once over. Reads the clock, and so ends what has run out.
    pub(crate) fn until(&self) -> Option<Moment> {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return None;
        }
        if Moment::now().as_nanos() < until {
            return Some(Moment::from_nanos(until));
        }
        self.end(Ending::Lost(self.loss_at(until)));
        None
    }

    /// Notes whether the last question to renew it was answered.
    pub(crate) fn set_late(&self, late: bool) {
        if !late {
            self.late.store(0, Ordering::Release);
        } else if self.late_since().is_none() {
            self.late.store(Moment::now().as_nanos(), Ordering::Release);
            self.became_late.notify_waiters();
        }
    }

    /// Since when renewals have had no reply.
    pub(crate) fn late_since(&self) -> Option<Moment> {
        let late = self.late.load(Ordering::Acquire);
        (late != 0).then(|| Moment::from_nanos(late))
    }

    /// Waits until a renewal has no reply; since when that is so.
    pub(crate) async fn late(&self) -> Moment {
        loop {
            let mut became_late = std::pin::pin!(self.became_late.notified());
            became_late.as_mut().enable();
            if let Some(since) = self.late_since() {
                return since;
            }
            became_late.await;
        }
    }

    pub(crate) fn renewal(&self) -> Renewal {
        if !self.renewed || self.until().is_none() {
            return Renewal::Off;
        }
        if self.late_since().is_some() { Renewal::Late } else { Renewal::OnTime }
    }

    /// When it ends by itself, whether or not that has been noticed.
    pub(crate) fn ends_at(&self) -> Moment {
        Moment::from_nanos(self.until.load(Ordering::Acquire))
    }

    /// Trusts it longer, unless it is already over; says whether it still is trusted.
    pub(crate) fn extend(&self, until: Moment) -> bool {
        let until = self.limited(until).as_nanos();
        loop {
            let Some(current) = self.until() else { return false };
            let current = current.as_nanos();
            let longer = until.max(current);
            if self.until.compare_exchange(current, longer, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return true;
            }
        }
    }

    /// Ends it for good; says whether this call did.
    pub(crate) fn end(&self, ending: Ending) -> bool {
        let first = self.ending.set(ending).is_ok();
        self.until.store(0, Ordering::Release);
        if first {
            self.over.notify_waiters();
        }
        first
    }

    /// The store no longer has the claim. If its time had run out before, that is why.
    pub(crate) fn gone(&self) -> bool {
        self.until().is_some() && self.end(Ending::Lost(Loss::Gone))
    }

    /// Ends it for what takes its place; until when it could be trusted. `None` if it was over, and whoever saw to that may
    /// be having the claim leave.
    pub(crate) fn taken_over(&self) -> Option<Moment> {
        let until = self.ends_at();
        self.end(Ending::Left).then_some(until)
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> Ending {
        loop {
            let over = self.over.notified();
            if let Some(ending) = self.ending() {
                return ending;
            }
            over.await;
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.until();
        self.ending.get().copied()
    }

    pub(crate) fn check(&self) -> crate::Result<()> {
        if self.until().is_some() { Ok(()) } else { Err(self.over()) }
    }

    /// The error of using it when it is over.
    pub(crate) fn over(&self) -> Error {
        match self.ending().and_then(Ending::loss) {
            Some(loss) => loss.error(),
            None => Error::lost("the lock has been released"),
        }
    }

    fn limited(&self, until: Moment) -> Moment {
        self.limit.map_or(until, |(limit, _)| limit.min(until))
    }

    fn loss_at(&self, until: u64) -> Loss {
        match self.limit {
            Some((limit, loss)) if limit.as_nanos() == until => loss,
            _ => Loss::Unrenewed,
        }
    }
}

/// How a stay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By its own will.
    Left,
    /// Against it.
    Lost(Loss),
}

impl Ending {
    pub(crate) fn loss(self) -> Option<Loss> {
        match self {
            Self::Left => None,
            Self::Lost(loss) => Some(loss),
        }
    }
}

/// How long a lease may be trusted, from before the question: less what two clocks may differ in rate (500 ppm) and
/// in the grain of a store's timers.
#[must_use]
pub fn trusted(lease: Duration) -> Duration {
    const GRAIN: Duration = Duration::from_millis(2);
    if lease == Duration::MAX { lease } else { lease.saturating_sub(lease / 2_000).saturating_sub(GRAIN) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimId, Name, Note, Share};

    const HOUR: Duration = Duration::from_secs(3600);

    fn stay(until: Moment, limit: Option<(Moment, Loss)>) -> Stay {
        let (name, note) = (Name::parse("a").expect("a good name"), Note::here("").expect("a good label"));
        Stay::new(
            Arc::new(Claim {
                name,
                id: ClaimId::draw(),
                share: Share::MUTEX,
                lease: HOUR,
                renewed: true,
                note: note.into(),
            }),
            until,
            limit,
            true,
        )
    }

    #[test]
    fn what_has_run_out_never_comes_back() {
        let stay = stay(Moment::now(), None);
        assert!(!stay.extend(Moment::now().after(HOUR)), "a late answer revived it");
        assert_eq!(stay.ending(), Some(Ending::Lost(Loss::Unrenewed)));
        assert!(stay.check().expect_err("over").is_lost());
    }

    #[test]
    fn no_answer_makes_it_shorter_and_none_reaches_beyond_the_limit() {
        let now = Moment::now();
        let stay = stay(now.after(HOUR), Some((now.after(2 * HOUR), Loss::LeaseOver)));
        assert!(stay.extend(now.after(HOUR / 2)));
        assert_eq!(stay.until(), Some(now.after(HOUR)));
        assert!(stay.extend(now.after(9 * HOUR)));
        assert_eq!(stay.until(), Some(now.after(2 * HOUR)));
    }

    #[test]
    fn the_limit_names_the_loss() {
        let now = Moment::now();
        let stay = stay(now.after(HOUR), Some((now, Loss::HeldTooLong)));
        assert_eq!(stay.ending(), Some(Ending::Lost(Loss::HeldTooLong)));
    }

    #[test]
    fn a_lease_that_has_run_out_is_not_called_gone() {
        let now = Moment::now();
        let stay = stay(now.after(HOUR), Some((now, Loss::LeaseOver)));
        stay.gone();
        assert_eq!(stay.ending(), Some(Ending::Lost(Loss::LeaseOver)));
    }

    #[test]
    fn the_first_ending_counts() {
        let stay = stay(Moment::NEVER, None);
        assert!(stay.end(Ending::Left) && !stay.gone());
        assert_eq!((stay.ending(), stay.until()), (Some(Ending::Left), None));
    }

    #[test]
    fn a_lease_is_trusted_for_less_than_it_lasts() {
        assert!(trusted(HOUR) + Duration::from_secs(1) < HOUR);
        assert_eq!(trusted(Duration::MAX), Duration::MAX);
        assert_eq!(trusted(Duration::from_millis(1)), Duration::ZERO);
    }
}
