//! How a claim waits for a grant, and how a hold waits for its loss.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::master::session_of;
use super::tracked_claim::{Notified, TrackedClaim};
use super::{AcquireOutcome, VoteMode, Voting};
use crate::client::ChannelSubscription;
use leasehold_core::store::Standing;
use leasehold_core::{Result, Token};

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The time between the notification of the first master and that of a quorum.
const NOTIFICATION_SPREAD: Duration = Duration::from_millis(3);
/// How often a claim checks whether it is the first waiter of this client.
const POSITION_CHECK: Duration = Duration::from_secs(1);

/// What a waiting claim knows between two attempts.
#[derive(Default)]
struct Waiting {
    attempt: u32,
    /// How long the holder's lease lasts, if it has an end.
    remaining: Option<Duration>,
    /// The subscription to the releases of the key, if the server publishes them.
    listening: Option<ChannelSubscription>,
}

/// Waits until a claim is no longer waiting: it is held or gone.
pub(super) async fn wait_for_grant(
    voting: &Voting,
    tracked: &Arc<TrackedClaim>,
) -> Result<Standing> {
    let mut waiting = Waiting::default();
    loop {
        // A release may have preceded the subscription, so another attempt follows without a
        // pause.
        if !starts_listening(voting, tracked, &mut waiting).await {
            pause(voting, tracked, &waiting).await;
        }
        waiting.attempt += 1;
        if let Some(standing) = voting.claims.ended(tracked) {
            return Ok(standing);
        }

        if !voting.claims.is_first(tracked) {
            match voting.quorum_error.lock().clone() {
                Some(error) => return Err(error),
                None => continue,
            }
        }
        let attempt = voting.try_acquire(tracked, VoteMode::AcquireOrNotify);
        match attempt.await? {
            AcquireOutcome::Won(token) => return Ok(Standing::Held { token }),
            AcquireOutcome::Contended { remaining, .. } => waiting.remaining = remaining,
        }
    }
}

/// Waits until a hold has been lost.
pub(super) async fn wait_for_loss(
    voting: &Voting,
    tracked: &Arc<TrackedClaim>,
    token: Token,
) -> Result<()> {
    loop {
        let mut changed = pin!(tracked.changed.notified());
        changed.as_mut().enable();
        if tracked.standing().token() != Some(token) {
            return Ok(());
        }

        // The notification of one master decides nothing: a quorum has to confirm it.
        let is_notified = tracked.notified(voting.masters.all.len()) != Notified::None;
        if is_notified && !voting.confirm(tracked, token).await? {
            voting.claims.gone(tracked);
            return Ok(());
        }
        changed.await;
    }
}

/// Waits until another attempt makes sense.
async fn pause(voting: &Voting, tracked: &TrackedClaim, waiting: &Waiting) {
    let mut changed = pin!(tracked.changed.notified());
    changed.as_mut().enable();
    if !matches!(tracked.standing(), Standing::Queued { .. }) {
        return;
    }
    let notified = tracked.notified(voting.masters.all.len());
    if notified == Notified::Quorum {
        return;
    }
    if !voting.claims.is_first(tracked) {
        // The first waiter of this client tries for all. It notifies the next one when it
        // stops waiting.
        let _ = timeout(POSITION_CHECK, changed).await;
        return;
    }

    if notified == Notified::None {
        let _ = timeout(retry_pause(voting, waiting), changed).await;
    }
    // After the notification of the first master, those of the others follow.
    let until = Instant::now() + NOTIFICATION_SPREAD;
    wait_for_notifications(voting, tracked, until).await;
}

/// Returns a random pause that doubles with each attempt and ends with the holder's lease.
fn retry_pause(voting: &Voting, waiting: &Waiting) -> Duration {
    let doubled = FIRST_PAUSE * (1 << waiting.attempt.min(6));
    let pause = doubled
        .min(retry_pause_max(voting, waiting))
        .mul_f64(0.5 + fastrand::f64());
    waiting.remaining.map_or(pause, |remaining| {
        pause.min(remaining + Duration::from_millis(1))
    })
}

/// Returns the longest pause before a waiter tries again.
fn retry_pause_max(voting: &Voting, waiting: &Waiting) -> Duration {
    let millis = if voting.format.remembers_last_token() {
        300
    } else if waiting.listening.is_some() {
        // The server reports every release, but does not report that a notified client has
        // crashed or left.
        600
    } else {
        80
    };
    Duration::from_millis(millis)
}

/// Waits until a quorum of masters has sent a notification.
async fn wait_for_notifications(voting: &Voting, tracked: &TrackedClaim, until: Instant) {
    let masters = voting.masters.all.len();
    while tracked.notified(masters) == Notified::Minority {
        let mut changed = pin!(tracked.changed.notified());
        changed.as_mut().enable();
        let is_enough = tracked.notified(masters) == Notified::Quorum;
        if is_enough || timeout_at(until, changed).await.is_err() {
            return;
        }
    }
}

/// Subscribes the first waiter to the releases of its key. Returns whether the subscription is
/// new.
async fn starts_listening(voting: &Voting, tracked: &TrackedClaim, waiting: &mut Waiting) -> bool {
    let Some(events) = &voting.events else {
        return false;
    };
    let is_listening = waiting
        .listening
        .as_ref()
        .is_some_and(ChannelSubscription::is_open);
    if is_listening || !voting.claims.is_first(tracked) {
        return false;
    }

    waiting.listening = None;
    if let Ok((session, _)) = session_of(&voting.masters.all[0].links.caller) {
        waiting.listening = events.listen(&session, &tracked.details.keys.lock).await;
    }
    waiting.listening.is_some()
}
