//! Waiting for a change of a claim: by notifications, and by polling where notifications may be
//! missing.

use std::sync::Arc;
use std::time::Duration;

use super::Redis;
use super::claim_state::PollDue;
use super::claims::TrackedClaim;
use super::enter::EnterMode;
use crate::client::{State, with_reply_timeout};
use leasehold_core::Result;
use leasehold_core::internal::{BootInstant, background};
use leasehold_core::store::{Claim, Standing};

/// How often the first waiter checks the holder.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// The shortest pause between two polls.
const POLL_MIN: Duration = Duration::from_millis(2);
/// How often the foremost of a client's waiters polls, times its position.
///
/// This matters if all waiters ahead of it have crashed together with the holder. All waiters of a
/// name together poll at a rate that grows with the logarithm of their number.
const FOREMOST_POLL_INTERVAL: Duration = Duration::from_secs(2);

impl Redis {
    /// Refreshes the claim of a waiter that was woken up, or polls.
    pub(super) async fn refresh_or_poll(
        &self,
        claim: &Claim,
        tracked: &TrackedClaim,
        mode: EnterMode,
    ) -> Result<()> {
        if mode == EnterMode::Poll && !self.may_poll(tracked) {
            return Ok(());
        }
        let was_next = tracked.state().is_next;
        let reply = self.send_enter(claim, mode, tracked).await?;
        if reply.standing == Standing::Gone {
            tracked.revoked();
        }

        let is_queued = matches!(reply.standing, Standing::Queued { .. });
        let is_change = !is_queued || reply.is_next && !was_next;
        if mode == EnterMode::Poll && is_change {
            self.probe_push_channel(claim);
        }
        Ok(())
    }

    /// Pings the caller link after a poll that found a change.
    ///
    /// The notification of that change may have been sent to a connection that no longer delivers
    /// anything. Without another request the link would not detect this.
    fn probe_push_channel(&self, claim: &Claim) {
        let Ok(server) = self.server_of(claim) else {
            return;
        };
        server.links.caller.with_state(|state| {
            if let State::Up(session, _) = state {
                let session = Arc::clone(session);
                background::spawn(async move {
                    let pinging = session.ping();
                    // A failed ping closes the session, which ends the link.
                    let _ = with_reply_timeout(&session, FOREMOST_POLL_INTERVAL, pinging).await;
                });
            }
        });
    }

    /// Returns the time until the next poll for expired leases and absent holders.
    ///
    /// If the claim's renewal comes first, the renewal replaces the poll.
    pub(super) fn next_poll(&self, claim: &Claim, tracked: &TrackedClaim) -> Duration {
        let state = tracked.state();
        let now = BootInstant::now();
        if state.due == PollDue::Grant {
            return Duration::ZERO;
        }

        let time_to = |at: BootInstant| at.duration_since(now).max(POLL_MIN);
        let absence_end = self
            .observations
            .next_expiry(&claim.name)
            .map_or(Duration::MAX, time_to);
        if state.is_next {
            let lease_end = state.next_expiry.map_or(POLL_INTERVAL, time_to);
            return lease_end.min(POLL_INTERVAL).min(absence_end);
        }
        if !self.claims.is_foremost(tracked) {
            // The claim may be the foremost one by then.
            return FOREMOST_POLL_INTERVAL;
        }
        if state.due == PollDue::Absence {
            return Duration::ZERO;
        }

        let interval = FOREMOST_POLL_INTERVAL * state.position.max(2);
        if interval > claim.lease / 3 {
            absence_end
        } else {
            interval.min(absence_end)
        }
    }

    /// Whether a waiter polls once its poll is due. Of a client's waiters that are not next, only
    /// the foremost one does.
    fn may_poll(&self, tracked: &TrackedClaim) -> bool {
        let state = tracked.state();
        state.is_next || state.due == PollDue::Grant || self.claims.is_foremost(tracked)
    }
}

/// Finds that a link is up with another connection than that of `epoch`.
pub(super) fn is_other(epoch: u32) -> impl Fn(&State) -> Option<()> {
    move |state| {
        let is_other = matches!(state, State::Up(session, _) if session.epoch != epoch);
        is_other.then_some(())
    }
}
