//! The state of one claim in Redisson's format, as this client knows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::keys::RedissonKeys;
use crate::local_claims::LocalClaim;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Share;

/// After this time the server is certain to refuse a request to lock: its deadline has passed,
/// unless the server's clock was set back.
pub(super) const LATE_MAX: Duration = Duration::from_secs(7);

pub(super) type RedissonClaim = LocalClaim<ClaimField>;

/// The keys of a claim's lock, and the field of the hash that is the claim.
#[derive(Debug)]
pub(super) struct ClaimField {
    pub(super) keys: RedissonKeys,
    /// `None` until the claim has held.
    pub(super) field: Mutex<Option<String>>,
    /// Whether a request to lock has had no reply until it could no longer be executed.
    reply_was_lost: AtomicBool,
}

impl ClaimField {
    pub(super) fn new(keys: RedissonKeys) -> Self {
        Self {
            keys,
            field: Mutex::default(),
            reply_was_lost: AtomicBool::new(false),
        }
    }
}

impl RedissonClaim {
    pub(super) fn set_share(&self, share: Share) {
        self.state.lock().share = share;
    }

    /// Returns the field of the hash, if the claim has held.
    pub(super) fn field(&self) -> Option<String> {
        self.details.field.lock().clone()
    }

    /// Records that a request to lock is about to be sent, and returns when.
    pub(super) fn request_sent(&self) -> BootInstant {
        let now = BootInstant::now();
        let mut state = self.state.lock();
        let before = state.unanswered.len();
        state
            .unanswered
            .retain(|sent_at| !is_settled(*sent_at, now));
        if state.unanswered.len() < before {
            self.details.reply_was_lost.store(true, Ordering::Relaxed);
        }
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
        let mut unanswered = state.unanswered.iter();
        unanswered.any(|earlier| *earlier != sent_at)
            || self.details.reply_was_lost.load(Ordering::Relaxed)
            || self.field().is_some()
    }

    /// Whether a request to lock may still be executed.
    pub(super) fn may_lock_late(&self) -> bool {
        let now = BootInstant::now();
        let state = self.state.lock();
        let mut unanswered = state.unanswered.iter();
        unanswered.any(|sent_at| !is_settled(*sent_at, now))
    }
}

/// Whether the server has executed or refused a request that was sent at this time.
fn is_settled(sent_at: BootInstant, now: BootInstant) -> bool {
    sent_at.saturating_add(LATE_MAX) <= now
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::keys::KeyMapper;
    use super::*;
    use crate::local_claims::LocalClaims;
    use leasehold_conformance::support::claim;

    fn waiting_claim() -> Arc<RedissonClaim> {
        let claim = claim("a");
        let keys = KeyMapper::default().keys(&claim.name).expect("a name");
        let claims = LocalClaims::default();
        let local = claims.begin(&claim, ClaimField::new(keys));
        claims.wait(&local, BootInstant::now().saturating_add(claim.lease));
        local
    }

    /// A request without a reply may already have granted the lock. A renewal that runs meanwhile
    /// extends the claim only up to the end of that grant.
    ///
    /// Shows G-52.
    #[test]
    fn lease_counts_from_the_request_that_may_have_granted() {
        let local = waiting_claim();
        let lease = local.claim.lease;

        let sent_at = local.request_sent();
        let later = BootInstant::now().saturating_add(lease / 3);
        let remaining = || local.renew_waiting(later, lease).1.expect("it waits");
        assert!(remaining() <= lease * 2 / 3);

        local.replied(sent_at);
        assert_eq!(remaining(), lease);
    }

    /// A script looks for an earlier hold of the claim only if there may be one.
    ///
    /// Shows G-52.
    #[test]
    fn request_without_a_reply_may_have_locked() {
        let local = waiting_claim();
        let first = local.request_sent();
        assert!(!local.has_earlier(first) && local.has_unanswered());
        local.replied(first);
        assert!(!local.has_unanswered());

        let second = local.request_sent();
        assert!(!local.has_earlier(second));
        let third = local.request_sent();
        assert!(local.has_earlier(third));
        for answered in [second, third] {
            local.replied(answered);
        }
        assert!(!local.has_earlier(third));

        *local.details.field.lock() = Some("field".to_owned());
        assert!(local.has_earlier(third));
    }

    /// It is forgotten then, but may have locked before.
    ///
    /// Shows G-52.
    #[test]
    fn request_without_a_reply_is_settled_after_the_longest_delay() {
        let sent_at = BootInstant::now();
        let at = |delay| sent_at.saturating_add(delay);
        let moment = Duration::from_micros(1);
        assert!(!is_settled(sent_at, at(LATE_MAX.saturating_sub(moment))));
        assert!(is_settled(sent_at, at(LATE_MAX)));

        let local = waiting_claim();
        local.state.lock().unanswered.push(sent_at.before(LATE_MAX));
        let later = local.request_sent();
        local.replied(later);
        assert!(!local.may_lock_late() && !local.has_unanswered());
        assert!(local.has_earlier(later));
    }

    /// The reply to a second request does not settle the first, whose future was dropped.
    ///
    /// Shows G-52.
    #[test]
    fn dropped_request_may_still_lock() {
        let local = waiting_claim();
        assert!(!local.may_lock_late());
        local.request_sent();
        let second = local.request_sent();

        local.replied(second);
        assert!(local.may_lock_late());
    }
}
