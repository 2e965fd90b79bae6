//! When a waiter polls, and what a poll proves about the connection.

use std::sync::Arc;
use std::time::Duration;

use super::claims::{ClaimState, PollDue};
use crate::client::{State, with_reply_timeout};
use leasehold_core::internal::net::Watched;
use leasehold_core::internal::{BootInstant, background};

/// How often the first waiter checks the holder.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// The shortest pause between two polls.
const POLL_MIN: Duration = Duration::from_millis(2);
/// How often the foremost of a client's waiters polls, times its position.
///
/// This matters if all waiters ahead of it have crashed together with the holder. All waiters of a
/// name together poll at a rate that grows with the logarithm of their number.
const FOREMOST_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Returns the time until the next poll for expired leases and absent holders.
///
/// `absence_end` is when the next absence will have lasted for its grace. If the claim's renewal
/// comes first, the renewal replaces the poll.
pub(super) fn next_poll(
    state: &ClaimState,
    is_foremost: bool,
    absence_end: Option<BootInstant>,
    lease: Duration,
) -> Duration {
    let now = BootInstant::now();
    if state.due == PollDue::Grant {
        return Duration::ZERO;
    }

    let time_to = |at: BootInstant| at.duration_since(now).max(POLL_MIN);
    let absence_end = absence_end.map_or(Duration::MAX, time_to);
    if state.is_next {
        let lease_end = state.next_expiry.map_or(POLL_INTERVAL, time_to);
        return lease_end.min(POLL_INTERVAL).min(absence_end);
    }
    if !is_foremost {
        // The claim may be the foremost one by then.
        return FOREMOST_POLL_INTERVAL;
    }
    if state.due == PollDue::Absence {
        return Duration::ZERO;
    }

    let interval = FOREMOST_POLL_INTERVAL * state.position.max(2);
    if interval > lease / 3 {
        absence_end
    } else {
        interval.min(absence_end)
    }
}

/// Whether a waiter polls once its poll is due. Of a client's waiters that are not next, only the
/// foremost one does.
pub(super) fn may_poll(state: &ClaimState, is_foremost: bool) -> bool {
    state.is_next || state.due == PollDue::Grant || is_foremost
}

/// Pings the caller link after a poll that found a change, or after the background link broke.
///
/// The notification of that change may have been sent to a connection that no longer delivers
/// anything, and what broke one connection may have broken both. Without another request the link
/// would not detect this.
pub(super) fn probe_push_channel(caller: &Watched<State>) {
    if let State::Up(session, _) = &*caller.borrow() {
        let session = Arc::clone(session);
        background::spawn(async move {
            let pinging = session.ping();
            // A failed ping closes the session, which ends the link.
            let _ = with_reply_timeout(&session, FOREMOST_POLL_INTERVAL, pinging).await;
        });
    }
}

/// Finds that a link is up with another connection than that of `epoch`.
pub(super) fn is_other(epoch: u32) -> impl Fn(&State) -> Option<()> {
    move |state| {
        let is_other = matches!(state, State::Up(session, _) if session.epoch != epoch);
        is_other.then_some(())
    }
}
