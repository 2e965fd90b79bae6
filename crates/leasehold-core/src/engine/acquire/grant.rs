//! A grant, and until when it is valid.

use std::time::Duration;

use crate::engine::calls::Timed;
use crate::engine::validity::safe_duration;
use crate::runtime::clock::BootInstant;
use crate::{CrashDetection, Entered, Token};

/// A grant, as far as the client may trust it.
pub(super) struct Grant {
    pub(super) token: Token,
    pub(super) sent_at: BootInstant,
    pub(super) valid_until: BootInstant,
    pub(super) lease: Duration,
}

impl Grant {
    /// The grant in the reply to the request to enter.
    pub(super) fn replied(token: Token, entered: &Timed<Entered>) -> Self {
        let lease = entered.reply.lease;
        Self {
            token,
            sent_at: entered.sent_at,
            valid_until: entered.sent_at.saturating_add(safe_duration(lease)),
            lease,
        }
    }
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
    crash: CrashDetection,
) -> (BootInstant, Duration) {
    let CrashDetection::Within(grace) = crash else {
        return (until, lease);
    };

    let held = lease.min(grace);
    let sent_at = until.before(safe_duration(lease));
    let held_until = sent_at.saturating_add(safe_duration(held));
    (until.min(held_until), held)
}
