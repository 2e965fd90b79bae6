//! What a client knows about its own claims, from replies and notifications.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Standing};
use leasehold_core::{ClaimId, Token};

/// The claims of one client.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_id: Mutex<HashMap<Uuid, Arc<TrackedClaim>>>,
}

/// A claim that was entered and not left.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    state: Mutex<ClaimState>,
    /// Notified when a push or a renewal changes the state.
    pub(super) changed: Notify,
}

/// ```text
/// begun ──reply──► queued ──push, reply──► held ──push, renewal──► gone
///                    └───────────push, reply───────────────────────▲
/// ```
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimState {
    /// The latest standing, from a reply or a notification.
    pub(super) standing: Option<Standing>,
    /// How many waiters are ahead; 0 before a reply says so.
    pub(super) place: u32,
    /// When the place was read, and how long one place took since it was read before.
    pace: Option<(BootInstant, Duration)>,
    /// When something may have happened of which nobody is notified.
    pub(super) next_look: Option<BootInstant>,
    /// The last request that began the lease again: when it was sent, and the epoch of the session
    /// that it named.
    bound: Option<(BootInstant, u32)>,
    /// Whether a request that was sent after the grant has a reply.
    is_confirmed: bool,
    /// Since when the caller has the claim as held.
    passed_on: Option<BootInstant>,
    /// The highest token in a reply. A notification with a smaller one is about an earlier grant.
    last_token: u64,
    /// Until when the server may execute each request that has no reply.
    unanswered: Vec<BootInstant>,
    /// When the sessions that keep this waiter waiting may be ended again.
    next_pins_end: Option<BootInstant>,
    /// When the claim may be renewed again on the session of this epoch, whose last renewal has
    /// waited or still waits for others.
    next_renewal: Option<(BootInstant, u32)>,
}

/// What a notification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    Held(Token),
    Next,
    Gone,
}

impl Claims {
    /// Tracks a claim, or returns what is known of it.
    pub(super) fn begin(&self, claim: &Claim) -> Arc<TrackedClaim> {
        let mut by_id = self.by_id.lock();
        let tracked = by_id.entry(uuid_of(claim.id)).or_insert_with(|| {
            Arc::new(TrackedClaim {
                state: Mutex::default(),
                changed: Notify::new(),
            })
        });
        Arc::clone(tracked)
    }

    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.by_id.lock().get(&uuid_of(id)).cloned()
    }

    /// Forgets a claim, and returns it if it was tracked.
    pub(super) fn end(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.by_id.lock().remove(&uuid_of(id))
    }

    /// Whether a waiter is near the front of its queue, where it is worth a notification.
    pub(super) fn has_near_waiter(&self) -> bool {
        let by_id = self.by_id.lock();
        by_id.values().any(|tracked| tracked.state().is_near())
    }

    /// Applies a notification.
    pub(super) fn push(&self, payload: &str) {
        let Some((id, push)) = parse_push(payload) else {
            return;
        };
        let Some(tracked) = self.by_id.lock().get(&id).cloned() else {
            return;
        };
        if tracked.state.lock().apply_push(push) {
            tracked.changed.notify_waiters();
        }
    }

    /// Wakes all tasks that wait for a claim.
    pub(super) fn wake_all(&self) {
        for tracked in self.by_id.lock().values() {
            tracked.changed.notify_waiters();
        }
    }
}

impl TrackedClaim {
    pub(super) fn state(&self) -> ClaimState {
        self.state.lock().clone()
    }

    /// Applies the reply to a request to enter or to look; `sent` if it began the lease again.
    pub(super) fn apply_reply(
        &self,
        standing: Standing,
        place: u32,
        sent: Option<(BootInstant, u32)>,
    ) {
        self.state.lock().apply_reply(standing, place, sent);
    }

    pub(super) fn look_at(&self, at: BootInstant) {
        self.state.lock().next_look = Some(at);
    }

    /// Applies a renewal that was executed; `false` if the claim is gone.
    pub(super) fn apply_renewal(&self, renewed: Renewed, sent: (BootInstant, u32)) -> bool {
        let is_there = self.state.lock().apply_renewal(renewed, sent);
        self.changed.notify_waiters();
        is_there
    }

    /// Whether the sessions that keep this waiter waiting may be ended now. Without the right to
    /// end them, each attempt is a warning, so they are rare.
    pub(super) fn may_end_pins(&self, pause: Duration) -> bool {
        let now = BootInstant::now();
        let mut state = self.state.lock();
        if state.next_pins_end.is_some_and(|next| now < next) {
            return false;
        }
        state.next_pins_end = Some(now.saturating_add(pause));
        true
    }

    /// Whether the claim may be renewed now. A renewal whose queue somebody keeps locked is in the
    /// way of all that follow on its connection, also after its caller has given up, so it is
    /// rarely repeated.
    pub(super) fn may_renew(&self, lease: Duration, epoch: u32) -> bool {
        let now = BootInstant::now();
        let mut state = self.state.lock();
        let is_early = |(next, on): (BootInstant, u32)| on == epoch && now < next;
        if state.next_renewal.is_some_and(is_early) {
            return false;
        }
        let pause = (lease / 10).min(RENEWAL_PAUSE_MAX);
        state.next_renewal = Some((now.saturating_add(pause), epoch));
        true
    }

    /// The renewal of [`may_renew`](Self::may_renew) has ended, and did not wait for others.
    pub(super) fn renewal_failed(&self) {
        self.state.lock().next_renewal = None;
    }

    pub(super) fn pass_on(&self) {
        self.state.lock().passed_on = Some(BootInstant::now());
    }

    /// A request is sent, which the server may execute until then if its reply is missing.
    pub(super) fn may_be_late(&self, until: BootInstant) {
        self.state.lock().unanswered.push(until);
    }

    /// The server has replied to the request of [`may_be_late`](Self::may_be_late).
    pub(super) fn is_answered(&self, until: BootInstant) {
        let unanswered = &mut self.state.lock().unanswered;
        if let Some(at) = unanswered.iter().position(|known| *known == until) {
            unanswered.swap_remove(at);
        }
    }
}

/// The reply to a renewal, for one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    Held,
    Queued {
        place: u32,
        should_look: bool,
        lease: Duration,
    },
    Gone,
}

impl ClaimState {
    fn apply_reply(&mut self, standing: Standing, place: u32, sent: Option<(BootInstant, u32)>) {
        let token = standing.token().map_or(0, Token::get);
        self.last_token = self.last_token.max(token);
        if let Some(sent) = sent {
            self.extend(sent);
        }

        // A grant that was pushed while the request was under way is later than its reply. No token
        // has to be compared for that, because only the first request of a claim adds it to the
        // queue. The others find it there or not. So if the claim was granted and that hold is lost
        // again, their reply is "gone" and not "queued", and a reply that says "queued" was made
        // before the grant.
        let is_later = matches!(standing, Standing::Queued { .. })
            && self.standing.is_some_and(|known| known.token().is_some());
        if is_later {
            return;
        }
        self.is_confirmed = standing.token().is_some();
        self.standing = Some(standing);
        self.advance(place);
    }

    fn apply_push(&mut self, push: Push) -> bool {
        match push {
            Push::Held(token) if token.get() <= self.last_token => return false,
            Push::Held(token) => {
                self.last_token = token.get();
                self.standing = Some(Standing::Held { token });
                self.is_confirmed = false;
            }
            Push::Next => {
                self.place = 0;
                self.next_look = None;
            }
            Push::Gone => self.standing = Some(Standing::Gone),
        }
        true
    }

    fn apply_renewal(&mut self, renewed: Renewed, sent: (BootInstant, u32)) -> bool {
        self.next_renewal = None;
        match renewed {
            Renewed::Gone => {
                self.standing = Some(Standing::Gone);
                return false;
            }
            Renewed::Held => {
                self.extend(sent);
                if self.standing.is_some_and(|known| known.token().is_some()) {
                    self.is_confirmed = true;
                } else {
                    // The notification was lost: a look returns the token.
                    self.next_look = Some(sent.0);
                }
            }
            Renewed::Queued {
                place,
                should_look,
                lease,
            } => {
                // A hold whose claim is queued again was lost in between.
                if let Some(passed_on) = self.passed_on {
                    if sent.0 < passed_on {
                        // It was executed before the grant.
                        return true;
                    }
                    self.standing = Some(Standing::Gone);
                    return false;
                }
                self.extend(sent);
                let was_near = self.is_near();
                self.advance(place);
                // A waiter near the front begins to listen with a look.
                if should_look || (self.is_near() && !was_near) {
                    self.next_look = Some(sent.0);
                } else if !self.is_near() {
                    self.next_look = Some(sent.0.saturating_add(self.far_pause(lease)));
                }
            }
        }
        true
    }

    fn extend(&mut self, sent: (BootInstant, u32)) {
        if self.bound.is_none_or(|(before, _)| before <= sent.0) {
            self.bound = Some(sent);
        }
    }

    /// Whether the claim holds, as far as this client knows.
    pub(super) fn is_held(&self) -> bool {
        self.standing.is_some_and(|known| known.token().is_some())
    }

    /// The epoch of the session that the last request named.
    pub(super) fn epoch(&self) -> u32 {
        self.bound.map_or(0, |(_, epoch)| epoch)
    }

    /// Takes a new place in the queue, and measures how fast the queue moves.
    fn advance(&mut self, place: u32) {
        let now = BootInstant::now();
        let for_one = self.pace.map_or(PACE_AT_FIRST, |(read_at, before)| {
            let moved = self.place.saturating_sub(place);
            pace_after(before, now.duration_since(read_at), moved)
        });
        self.pace = Some((now, for_one));
        self.place = place;
    }

    /// How long one place takes, as the queue has moved so far.
    pub(super) fn pace(&self) -> Duration {
        self.pace.map_or(PACE_AT_FIRST, |(_, pace)| pace)
    }

    /// How long this waiter waits, as the queue has moved so far.
    pub(super) fn expected_wait(&self) -> Duration {
        self.pace() * self.place
    }

    /// How long a waiter that is far from the front goes without a look at its place. A renewal, due
    /// after a third of the lease, puts off the look.
    pub(super) fn far_pause(&self, lease: Duration) -> Duration {
        (self.expected_wait() / 2).max(FAR_LOOK_MIN).min(lease / 2)
    }

    /// Whether this waiter listens for its grant.
    pub(super) fn is_near(&self) -> bool {
        let is_close = self.place < NEAR || self.expected_wait() < NEAR_WAIT;
        matches!(self.standing, Some(Standing::Queued { .. })) && is_close
    }

    /// Returns until when a request without a reply may still be executed.
    pub(super) fn late_until(&self) -> Option<BootInstant> {
        self.unanswered.iter().max().copied()
    }

    /// Returns for how long after `from` the store keeps the claim, minus what two clocks may have
    /// drifted since the request. A client trusts a hold with crash detection for its grace: after
    /// `from`, if the session of the `proven` epoch has since shown the hold, and it is bound to that
    /// session; else after the request.
    pub(super) fn trusted_for(
        &self,
        lease: Duration,
        grace: Option<Duration>,
        (from, proven): (BootInstant, Option<u32>),
    ) -> Duration {
        let Some((sent_at, epoch)) = self.bound else {
            return Duration::ZERO;
        };
        let passed = from.duration_since(sent_at);
        let left = lease.saturating_sub(passed).saturating_sub(passed / 2_000);
        match grace.filter(|_| self.is_held()) {
            Some(grace) if proven == Some(epoch) => left.min(grace),
            Some(grace) => left.min(grace.saturating_sub(passed)),
            None => left,
        }
    }

    /// Whether a look at the claim on the session of `epoch` is enough to renew the hold: a recent
    /// request has bound it to that session.
    pub(super) fn is_covered(&self, epoch: u32, lease: Duration, now: BootInstant) -> bool {
        let Some((sent_at, named)) = self.bound else {
            return false;
        };
        self.is_confirmed
            && self.is_held()
            && epoch == named
            && now.duration_since(sent_at) < lease / 3
    }
}

/// How long one place takes in a queue that has moved by `moved` places in this time, and for one of
/// which it took `before` until then.
///
/// It is at most twice as long as before. A waiter that does not listen keeps the queue from moving
/// between its grant and its look, which the others cannot tell from slow holders. If they looked
/// much more seldom at once, many of them would be granted without listening, and so on.
fn pace_after(before: Duration, passed: Duration, moved: u32) -> Duration {
    let slowest = (before * 2).min(PACE_MAX);
    let measured = passed.checked_div(moved);
    measured.map_or(slowest, |measured| measured.min(slowest))
}

/// The first waiters of a queue are notified, and those who will be granted soon. Each session of a
/// database that listens wakes up with each notification, so the others look from time to time.
const NEAR: u32 = 4;
/// The shortest pause between two looks of a waiter that is not notified.
pub(super) const FAR_LOOK_MIN: Duration = Duration::from_millis(50);
const NEAR_WAIT: Duration = Duration::from_millis(250);
/// How long one place takes, as long as nothing is known. Of a queue that moves so fast, a dozen
/// waiters listen at once; of one that stands still, only the first few after their next look.
const PACE_AT_FIRST: Duration = Duration::from_millis(20);
const PACE_MAX: Duration = Duration::from_secs(60);
/// Three times as long as a renewal waits for the lock of a queue.
const RENEWAL_PAUSE_MAX: Duration = Duration::from_millis(300);

pub(super) fn uuid_of(id: ClaimId) -> Uuid {
    Uuid::from_bytes(id.to_bytes())
}

/// Parses `H`, `N` or `G`, a claim, and the token of a grant.
fn parse_push(payload: &str) -> Option<(Uuid, Push)> {
    let id = payload.get(1..37)?.parse().ok()?;
    let push = match payload.get(..1)? {
        "H" => Push::Held(Token::new(payload.get(37..)?.parse().ok()?)?),
        "N" => Push::Next,
        "G" => Push::Gone,
        _ => return None,
    };
    Some((id, push))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a reconnect, the queue of a hold may be locked. Others see its old session, which is
    /// gone.
    ///
    /// Shows G-01.
    #[test]
    fn session_that_has_not_bound_a_hold_does_not_begin_its_grace() {
        let [lease, grace, passed] = [30, 10, 4].map(Duration::from_secs);
        let token = Token::new(7).expect("not zero");
        let sent = BootInstant::now();
        let now = sent.saturating_add(passed);
        let mut state = ClaimState::default();
        state.apply_reply(Standing::Held { token }, 0, Some((sent, 1)));

        let trusted = |proven| state.trusted_for(lease, Some(grace), (now, proven));
        assert_eq!(trusted(Some(1)), grace);
        assert_eq!(trusted(Some(2)), grace.saturating_sub(passed));
        assert_eq!(trusted(None), grace.saturating_sub(passed));
    }

    /// Shows G-01.
    #[test]
    fn renewal_from_before_the_grant_ends_no_hold() {
        let token = Token::new(7).expect("not zero");
        let sent = BootInstant::now();
        let queued = Renewed::Queued {
            place: 0,
            should_look: false,
            lease: Duration::from_secs(30),
        };
        let tracked = TrackedClaim {
            state: Mutex::default(),
            changed: Notify::new(),
        };
        tracked.apply_reply(Standing::Held { token }, 0, Some((sent, 1)));
        tracked.pass_on();

        assert!(tracked.apply_renewal(queued, (sent, 1)));
        assert!(tracked.state().is_held());
        let later = BootInstant::now().saturating_add(Duration::from_secs(1));
        assert!(!tracked.apply_renewal(queued, (later, 1)));
        assert!(!tracked.state().is_held());
    }

    #[test]
    fn queue_counts_as_twice_as_slow_at_most_after_each_look() {
        let [fast, before, slow] = [5, 20, 40].map(Duration::from_millis);
        assert_eq!(pace_after(before, fast * 12, 12), fast);
        assert_eq!(pace_after(before, Duration::from_secs(12), 12), slow);
        assert_eq!(pace_after(before, fast, 0), slow);
        assert_eq!(pace_after(PACE_MAX, fast, 0), PACE_MAX);
    }

    /// The leave is repeated after the last of them.
    ///
    /// Shows G-10.
    #[test]
    fn claim_may_arrive_until_the_last_request_without_a_reply_is_over() {
        let tracked = TrackedClaim {
            state: Mutex::default(),
            changed: Notify::new(),
        };
        let early = BootInstant::now();
        let late = early.saturating_add(Duration::from_secs(1));
        for (first, second) in [(early, late), (late, early)] {
            tracked.may_be_late(first);
            tracked.may_be_late(second);
            assert_eq!(tracked.state().late_until(), Some(late));
            tracked.is_answered(late);
            assert_eq!(tracked.state().late_until(), Some(early));
            tracked.is_answered(early);
            assert_eq!(tracked.state().late_until(), None);
        }
    }

    /// A queue of a thousand that stands still is read by its renewals alone.
    #[test]
    fn renewal_of_a_waiter_far_from_the_front_puts_off_its_look() {
        let sent = BootInstant::now();
        let mut state = ClaimState {
            next_look: Some(sent),
            ..ClaimState::default()
        };
        state.apply_reply(Standing::Queued { ahead: 1 }, 900, Some((sent, 1)));
        for place in [900, 0] {
            let queued = Renewed::Queued {
                place,
                should_look: false,
                lease: Duration::from_secs(30),
            };
            assert!(state.apply_renewal(queued, (sent, 1)));
            let pause = state.next_look.map(|at| at.duration_since(sent));
            // At the front it looks at once.
            let expected = Duration::from_secs(if place > 0 { 15 } else { 0 });
            assert_eq!(pause, Some(expected), "{pause:?}");
        }
    }
}
