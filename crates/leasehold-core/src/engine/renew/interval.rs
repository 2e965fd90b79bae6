//! How often a claim is renewed, and for how long a request waits for its reply.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::calls::REPLY_TIMEOUT;
use crate::engine::validity::{Phase, Validity, safe_duration};
use crate::runtime::clock::BootInstant;

/// Returns how long after `sent_at` the claim is renewed again, if it is valid until `until`.
///
/// | claim | renewed every |
/// |---|---|
/// | waiting | a third of its validity |
/// | held, with a grace or session below its lease | a tenth of its validity, at most 1 s |
/// | held, ended by its lease | a tenth of the lease |
/// | held without end, as in the file store | a third of the lease |
///
/// On a hold without end, a renewal only detects that the claim is gone.
///
/// A holder that renews every tenth of its validity survives an outage of 0.6 of it that begins
/// just before a renewal. The holder then has 0.3 of its validity left to reconnect, and
/// `leasehold run` still has time to stop its command.
///
/// A reply may leave the claim no further time, and then the pause is [`PAUSE_MIN`].
pub(super) fn renew_interval(
    validity: &Validity,
    sent_at: BootInstant,
    until: BootInstant,
) -> Duration {
    let lease = validity.claim.lease;
    let length = until.duration_since(sent_at);
    let is_bounded_by_lease = length >= safe_duration(lease);

    let interval = match validity.phase() {
        Phase::Waiting => lease.min(length) / 3,
        Phase::Held if until == BootInstant::FAR_FUTURE => lease / 3,
        Phase::Held if is_bounded_by_lease => lease / 10,
        Phase::Held => (length / 10).min(HEARTBEAT_MAX),
    };
    interval.max(PAUSE_MIN)
}

/// Returns how soon to retry a renewal without a reply.
///
/// It is at most half a heartbeat interval, and shrinks as the end of the validity comes near.
pub(super) fn retry_delay(validity: &Validity, now: BootInstant) -> Duration {
    let remaining = validity.expires_at().duration_since(now);

    (validity.claim.lease / 30)
        .min(HEARTBEAT_MAX / 2)
        .min(remaining / 20)
        .max(PAUSE_MIN)
}

/// Returns how long to wait for a reply, so that a retry is possible before the first claim ends.
pub(super) fn reply_timeout(validities: &[Arc<Validity>], now: BootInstant) -> Duration {
    let remaining = validities
        .iter()
        .map(|validity| validity.expires_at().duration_since(now))
        .min()
        .unwrap_or(REPLY_TIMEOUT);
    (remaining / 3).min(REPLY_TIMEOUT)
}

/// The longest heartbeat interval of a holder whose liveness the store observes.
const HEARTBEAT_MAX: Duration = Duration::from_secs(1);
/// The shortest time between two renewals of a claim, so that the task never works without a pause.
const PAUSE_MIN: Duration = Duration::from_millis(10);
