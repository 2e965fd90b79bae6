//! The state of one of this client's claims. The server knows only a claim that holds.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::keys::RedissonKeys;
use crate::runtime::clock::BootInstant;
use crate::{Claim, Share, Standing, Token};

/// After this time the server is certain to refuse a request to lock: its deadline has passed,
/// unless the server's clock was set back.
pub(super) const LATE_MAX: Duration = Duration::from_secs(7);

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct LocalClaim {
    pub(super) claim: Claim,
    pub(super) keys: RedissonKeys,
    state: Mutex<LocalState>,
    /// Notified when a waiting or holding task must check the state again.
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct LocalState {
    standing: Standing,
    share: Share,
    /// The field of the hash, once the claim has held.
    field: Option<String>,
    /// Until when this client keeps a waiting claim, or remembers one that is gone.
    until: BootInstant,
    /// Whether the claim has waited without a grant.
    has_waited: bool,
    /// When the requests to lock were sent that have no reply. Their futures may be dropped.
    unanswered: Vec<BootInstant>,
}

impl LocalClaim {
    pub(super) fn new(claim: Claim, keys: RedissonKeys) -> Self {
        let state = LocalState {
            standing: Standing::Gone,
            share: claim.share,
            field: None,
            until: BootInstant::FAR_FUTURE,
            has_waited: false,
            unanswered: Vec::new(),
        };
        Self {
            claim,
            keys,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// Returns the part of the capacity that the claim takes. A writer may become a reader.
    pub(super) fn share(&self) -> Share {
        self.state.lock().share
    }

    pub(super) fn set_share(&self, share: Share) {
        self.state.lock().share = share;
    }

    /// Returns the field of the hash, if the claim has held.
    pub(super) fn field(&self) -> Option<String> {
        self.state.lock().field.clone()
    }

    /// Returns until when this client keeps the waiting claim.
    pub(super) fn kept_until(&self) -> BootInstant {
        self.state.lock().until
    }

    pub(super) fn keep_until(&self, until: BootInstant) {
        self.state.lock().until = until;
    }

    /// Whether the claim waited when it was closed.
    pub(super) fn has_waited(&self) -> bool {
        self.state.lock().has_waited
    }

    /// Whether no task uses this claim any more, and its last lease has ended.
    pub(super) fn is_over(&self, now: BootInstant) -> bool {
        let state = self.state.lock();
        state.standing == Standing::Gone && state.until <= now
    }

    pub(super) fn set_waiting(&self, until: BootInstant) {
        let mut state = self.state.lock();
        state.standing = Standing::Queued { ahead: 1 };
        state.until = until;
        state.has_waited = true;
    }

    /// Records the grant. A claim that is gone by now stays gone: its leave follows.
    pub(super) fn set_held(&self, token: Token, field: String) {
        let mut state = self.state.lock();
        state.standing = Standing::Held { token };
        state.field = Some(field);
        state.has_waited = false;
    }

    pub(super) fn set_gone(&self) {
        let mut state = self.state.lock();
        state.standing = Standing::Gone;
        state.until = BootInstant::now().saturating_add(self.claim.lease);
    }

    /// Records that a request to lock is about to be sent, and returns when.
    pub(super) fn request_sent(&self) -> BootInstant {
        let now = BootInstant::now();
        let mut state = self.state.lock();
        state
            .unanswered
            .retain(|sent_at| !is_settled(*sent_at, now));
        state.unanswered.push(now);
        now
    }

    /// Records that the server has replied to the request that was sent at this time.
    pub(super) fn replied(&self, sent_at: BootInstant) {
        let mut state = self.state.lock();
        let found = state.unanswered.iter().position(|sent| *sent == sent_at);
        if let Some(found) = found {
            state.unanswered.swap_remove(found);
        }
    }

    /// Whether a request to lock has had no reply.
    pub(super) fn has_unanswered(&self) -> bool {
        !self.state.lock().unanswered.is_empty()
    }

    /// Whether a request to lock before this one may have taken the lock.
    pub(super) fn has_earlier(&self, sent_at: BootInstant) -> bool {
        let state = self.state.lock();
        state.field.is_some() || state.unanswered.iter().any(|earlier| *earlier != sent_at)
    }

    /// Whether a request to lock may still be executed.
    pub(super) fn may_lock_late(&self) -> bool {
        let now = BootInstant::now();
        let state = self.state.lock();
        let mut unanswered = state.unanswered.iter();
        unanswered.any(|sent_at| !is_settled(*sent_at, now))
    }

    /// Renews a waiting claim for a lease from `sent_at`.
    ///
    /// Returns the claim's standing. For a waiting claim that this client still keeps, it also
    /// returns how long the claim is valid from `sent_at`.
    ///
    /// A request without a reply may have granted the lock as soon as it was sent. The lease then
    /// counts from the time at which that request was sent.
    pub(super) fn renew_waiting(
        &self,
        sent_at: BootInstant,
        lease: Duration,
    ) -> (Standing, Option<Duration>) {
        let mut state = self.state.lock();
        let is_queued = matches!(state.standing, Standing::Queued { .. });
        if !is_queued || state.until <= sent_at {
            return (state.standing, None);
        }

        state.until = sent_at.saturating_add(lease);
        let earliest = state.unanswered.iter().min();
        let remaining = earliest.map_or(lease, |earliest| {
            lease.saturating_sub(sent_at.duration_since(*earliest))
        });
        (state.standing, Some(remaining))
    }
}

/// Whether the server has executed or refused a request that was sent at this time.
fn is_settled(sent_at: BootInstant, now: BootInstant) -> bool {
    sent_at.saturating_add(LATE_MAX) <= now
}

#[cfg(test)]
mod tests {
    use super::super::keys::KeyMapper;
    use super::*;
    use crate::conformance::support::claim;

    fn local_claim() -> LocalClaim {
        let claim = claim("a");
        let keys = KeyMapper::default().keys(&claim.name).expect("a name");
        LocalClaim::new(claim, keys)
    }

    /// A request without a reply may already have granted the lock. A renewal that runs meanwhile
    /// extends the claim only up to the end of that grant.
    ///
    /// Shows G-52.
    #[test]
    fn lease_counts_from_the_request_that_may_have_granted() {
        let local = local_claim();
        let lease = local.claim.lease;
        local.set_waiting(BootInstant::now().saturating_add(lease));

        let sent_at = local.request_sent();
        let later = BootInstant::now().saturating_add(lease / 3);
        let remaining = || local.renew_waiting(later, lease).1.expect("it waits");
        assert!(remaining() <= lease * 2 / 3);

        local.replied(sent_at);
        assert_eq!(remaining(), lease);
    }

    /// The reply to a second request does not settle the first, whose future was dropped.
    ///
    /// Shows G-52.
    #[test]
    fn dropped_request_may_still_lock() {
        let local = local_claim();
        assert!(!local.may_lock_late());
        local.request_sent();
        let second = local.request_sent();

        local.replied(second);
        assert!(local.may_lock_late());
    }
}
