//! Making a hold out of another one of the same claim.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::{Cohort, CohortState};
use crate::engine::Hold;
use crate::engine::events::HoldEvents;
use crate::engine::hold::{Origin, PassOn};
use crate::engine::validity::{End, Limit, LossListener, Validity};
use crate::runtime::clock::BootInstant;
use crate::{ClaimId, CrashRelease, LossReason, Token};

/// The right of a hold to be passed on.
#[derive(Debug)]
struct Membership {
    cohort: Arc<Cohort>,
    passes_left: u32,
}

impl PassOn for Membership {
    /// Passes the hold to the acquire that has waited longest.
    ///
    /// A lost hold is not passed on, nor is one whose renewals are late: the store then decides.
    fn pass(&self, hold: &Hold) -> bool {
        let may_pass = self.passes_left > 0 && is_renewed(hold);
        let mut state = self.cohort.state.lock();
        let claim = hold.claim().id;

        let Some(waiter) = may_pass.then(|| state.waiters.pop_front()).flatten() else {
            state.not_passable(claim, &self.cohort.acquisition_due);
            return false;
        };
        let next = NextHold {
            token: successor(hold.token()),
            passes_left: self.passes_left - 1,
            max_hold: waiter.max_hold,
        };
        let Some(next) = self.cohort.next_hold(&mut state, hold, &next) else {
            state.waiters.push_front(waiter);
            state.not_passable(claim, &self.cohort.acquisition_due);
            return false;
        };

        let undelivered = waiter.grant.send(Ok(next));
        drop(state);
        // A hold without a waiter is passed on.
        drop(undelivered);
        true
    }
}

/// The next acquire gets nothing from a lost hold: it acquires a claim of its own.
impl LossListener for Cohort {
    fn lost(&self, claim: ClaimId) {
        self.state.lock().not_passable(claim, &self.acquisition_due);
    }
}

struct NextHold {
    token: Token,
    passes_left: u32,
    max_hold: Option<Duration>,
}

impl Cohort {
    /// Makes the hold of an acquire that did not wait.
    pub(super) fn adopt(self: &Arc<Self>, hold: Hold, max_hold: Option<Duration>) -> Option<Hold> {
        let mut state = self.state.lock();
        let first = self.first_hold(&mut state, &hold, max_hold);
        drop(state);

        if first.is_some() {
            hold.forget();
        }
        first
    }

    /// Makes the first hold of a claim, with the smallest token of its block.
    pub(super) fn first_hold(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, CohortState>,
        hold: &Hold,
        max_hold: Option<Duration>,
    ) -> Option<Hold> {
        let reserved = hold.claim().reserved;
        let first = hold.token().get().checked_sub(u64::from(reserved))?;
        let next = NextHold {
            token: Token::new(first)?,
            passes_left: reserved,
            max_hold,
        };
        self.next_hold(state, hold, &next)
    }

    /// Makes the next hold of a claim. The hold before it is invalid from now on.
    ///
    /// Returns `None` if the claim was lost meanwhile.
    fn next_hold(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, CohortState>,
        hold: &Hold,
        next: &NextHold,
    ) -> Option<Hold> {
        let origin = hold.origin();
        let until = origin.validity.claim_ends_at();
        if until == BootInstant::from_nanos(0) {
            // The hold has ended: there is none to pass on, and no event of one.
            return None;
        }
        let claim = Arc::clone(&origin.validity.claim);
        let id = claim.id;

        let events = HoldEvents::begin(&origin.engine.calls, &claim, next.token);
        let listener = Arc::clone(self) as Arc<dyn LossListener>;
        let mut validity = Validity::held(claim, until)
            .with_events(events)
            .with_loss_listener(listener);
        if let Some(max_hold) = next.max_hold {
            validity = validity.with_limit(Limit {
                at: BootInstant::now().saturating_add(max_hold),
                reason: LossReason::MaxHoldExceeded,
            });
        }

        // A renewal or `break` may end the claim between any two of these steps.
        //
        // First the next validity takes the place of the present one in the renewals. In the other
        // order, the renewals could drop the present one as ended, and nothing would renew the
        // claim. From here on a loss ends the next validity, so its guard is lost from the
        // beginning.
        //
        // Then the present validity ends. If it was lost before, its guard may have reported the
        // loss, and no hold of the claim may follow. None of these steps looks at the clock: a loss
        // that is noticed in this thread would call the listener, which locks `state` a second
        // time.
        let validity = Arc::new(validity);
        let renewals = &origin.engine.renewals;
        if !renewals.replace(Arc::clone(&validity)) {
            // The claim was broken meanwhile.
            validity.end(End::Left);
            return None;
        }
        if origin.validity.hand_over().is_none() {
            renewals.remove(id);
            validity.end(End::Left);
            return None;
        }
        state.passable = (next.passes_left > 0).then_some(id);
        if state.needs_acquisition() {
            self.acquisition_due.notify_one();
        }

        let membership = Membership {
            cohort: Arc::clone(self),
            passes_left: next.passes_left,
        };
        let origin = Origin { validity, ..origin };
        Some(Hold::passable(origin, next.token, Box::new(membership)))
    }
}

fn successor(token: Token) -> Token {
    Token::new(token.get() + 1).expect("a successor is above zero")
}

/// Returns whether the last renewal got a reply, and at least half of the lease remains.
fn is_renewed(hold: &Hold) -> bool {
    let lease = hold.claim().lease;
    let length = match hold.guarantees().crash_release {
        CrashRelease::Within { grace } => lease.min(grace),
        CrashRelease::Immediate | CrashRelease::LeaseExpiry => lease,
    };
    let validity = hold.origin().validity;
    let until = validity
        .valid_until()
        .map_or(BootInstant::from_nanos(0), |_| validity.claim_ends_at());
    validity.late_since().is_none() && until.duration_since(BootInstant::now()) >= length / 2
}
