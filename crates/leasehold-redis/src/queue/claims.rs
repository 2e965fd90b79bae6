//! The claims of this client, and what it knows about each: its state, from replies and
//! notifications, and until when it is valid.
//!
//! No function of a state or a validity reads a clock: the caller passes the time. So models can run
//! them with all orders of events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::messages::{AbsenceSeen, EnterMode, EnterReply, Push, Renewed, Sent};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Standing};
use leasehold_core::{ClaimId, Name};

#[derive(Debug, Default)]
pub(super) struct Claims {
    table: Mutex<ClaimTable>,
}

#[derive(Debug, Default)]
struct ClaimTable {
    by_id: BTreeMap<ClaimId, Arc<TrackedClaim>>,
    /// Claims that wait or have waited, by name, in the order of their first requests.
    by_name: BTreeMap<Name, BTreeMap<u64, Arc<TrackedClaim>>>,
    count: u64,
}

/// One claim, from its first request to its last.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    name: Name,
    number: u64,
    state: Mutex<ClaimState>,
    /// Until when the server may execute requests to enter whose reply is missing.
    late_until: Mutex<Option<BootInstant>>,
    pub(super) changed: Notify,
}

impl Claims {
    /// Returns the state of a claim; a new one for its first request.
    pub(super) fn begin(&self, claim: &Claim, validity: ClaimValidity) -> Arc<TrackedClaim> {
        self.table.lock().tracked(claim, validity)
    }

    /// Returns the state of a claim whose caller waits for a change.
    pub(super) fn listen(&self, claim: &Claim, validity: ClaimValidity) -> Arc<TrackedClaim> {
        let mut table = self.table.lock();
        let tracked = table.tracked(claim, validity);
        table
            .by_name
            .entry(claim.name.clone())
            .or_default()
            .insert(tracked.number, Arc::clone(&tracked));
        tracked
    }

    pub(super) fn tracked(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        self.table.lock().by_id.get(&id).map(Arc::clone)
    }

    /// Removes a claim and returns its state.
    pub(super) fn end(&self, id: ClaimId) -> Option<Arc<TrackedClaim>> {
        let mut table = self.table.lock();
        let tracked = table.by_id.remove(&id)?;
        if let Some(claims) = table.by_name.get_mut(&tracked.name) {
            claims.remove(&tracked.number);
            if claims.is_empty() {
                table.by_name.remove(&tracked.name);
            }
        }
        Some(tracked)
    }

    /// Whether this claim is ahead of all other waiting claims of this client for the same name.
    pub(super) fn is_foremost(&self, tracked: &TrackedClaim) -> bool {
        let table = self.table.lock();
        let Some(claims) = table.by_name.get(&tracked.name) else {
            return true;
        };
        let mut ahead = claims.range(..tracked.number);
        !ahead.any(|(_, other)| other.state().standing.is_none_or(is_queued))
    }
}

impl ClaimTable {
    fn tracked(&mut self, claim: &Claim, validity: ClaimValidity) -> Arc<TrackedClaim> {
        if let Some(tracked) = self.by_id.get(&claim.id) {
            return Arc::clone(tracked);
        }
        self.count += 1;
        let tracked = Arc::new(TrackedClaim {
            name: claim.name.clone(),
            number: self.count,
            state: Mutex::new(ClaimState::new(validity)),
            late_until: Mutex::default(),
            changed: Notify::new(),
        });
        self.by_id.insert(claim.id, Arc::clone(&tracked));
        tracked
    }
}

impl TrackedClaim {
    pub(super) fn state(&self) -> ClaimState {
        self.state.lock().clone()
    }

    /// Applies the reply to a request to enter that has just been read.
    pub(super) fn apply_reply(&self, mode: EnterMode, reply: &EnterReply, sent: Sent) {
        let mut state = self.state.lock();
        let read = BootInstant::now();
        if mode == EnterMode::Poll {
            state.apply_poll_reply(reply, sent, read);
        } else {
            state.apply_reply(reply, sent, read);
        }
    }

    /// Applies the reply to a renewal; `false` if the claim is gone.
    pub(super) fn apply_renewal(&self, renewed: Renewed, sent_at: BootInstant, epoch: u32) -> bool {
        let mut state = self.state.lock();
        let position_before = state.position;
        let due_before = state.due;

        let is_there = state.apply_renewal(renewed, sent_at, epoch);
        let is_changed = position_before != state.position || due_before != state.due;
        drop(state);

        if is_changed {
            self.changed.notify_waiters();
        }
        is_there
    }

    /// Records that the caller receives the claim as held.
    pub(super) fn pass_on(&self) {
        self.state.lock().pass_on(BootInstant::now());
    }

    /// Records that the reply to a request to enter is missing. The server may execute the request
    /// until `until`.
    pub(super) fn may_be_late(&self, until: BootInstant) {
        let mut late_until = self.late_until.lock();
        *late_until = Some(late_until.map_or(until, |known| known.max(until)));
    }

    /// Records that the only request so far has its reply.
    pub(super) fn is_answered(&self) {
        *self.late_until.lock() = None;
    }

    pub(super) fn late_until(&self) -> Option<BootInstant> {
        *self.late_until.lock()
    }

    pub(super) fn validity(&self) -> ClaimValidity {
        self.state.lock().validity
    }

    /// Records that no other client can notice a crash of this one.
    pub(super) fn without_grace(&self) {
        self.state.lock().validity.grace = None;
    }

    /// Records that a round of renewals that began at `sent_at` has renewed the claim. Returns how
    /// long the claim is valid from then.
    pub(super) fn renewed(&self, sent_at: BootInstant) -> Duration {
        let mut state = self.state.lock();
        let is_held = state.is_held();
        state.validity.renew(sent_at, is_held)
    }

    /// Applies a notification.
    pub(super) fn apply_push(&self, push: &Push) {
        if self.state.lock().apply_push(push) {
            self.changed.notify_waiters();
        }
    }
}

/// What a client knows about one of its claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClaimState {
    /// The latest standing, from a reply or a notification.
    pub(crate) standing: Option<Standing>,
    /// Whether the claim is the first waiter.
    pub(crate) is_next: bool,
    /// The position among the waiters in the last reply that had one; 0 before such a reply.
    pub(crate) position: u32,
    /// Whether a renewal has shown a reason to poll.
    pub(crate) due: PollDue,
    /// Whether the last renewal found an absence that another client has marked.
    is_absence_noted: bool,
    /// When the caller received this claim as held.
    passed_on: Option<BootInstant>,
    /// Whether a script that ran after the grant has returned. Before that, a ping is not enough to
    /// renew the hold.
    is_confirmed: bool,
    /// The highest token in a reply.
    ///
    /// A grant in a notification is stale if its token is not higher: that hold was lost before the
    /// reply was sent, and the claim may be queued again.
    last_token: u64,
    /// When the first lease of a holder ends, as of the last reply.
    pub(crate) next_expiry: Option<BootInstant>,
    /// The epoch of the caller link when the last request was sent. Notifications arrive reliably
    /// until the next epoch.
    pub(crate) caller_epoch: u32,
    pub(crate) validity: ClaimValidity,
}

/// Why a waiter should poll before its next poll is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum PollDue {
    /// No reason.
    #[default]
    No,
    /// A holder is absent: one of the client's waiters should poll.
    Absence,
    /// The claim is held, and its notification has not arrived.
    Grant,
}

impl ClaimState {
    /// Returns the state of a claim before its first request.
    #[must_use]
    pub(crate) fn new(validity: ClaimValidity) -> Self {
        Self {
            validity,
            ..Self::default()
        }
    }

    /// Applies the reply to a request to enter that was read at `read`.
    pub(crate) fn apply_reply(&mut self, reply: &EnterReply, sent: Sent, read: BootInstant) {
        self.note(reply, sent.caller_epoch, read);
        if reply.standing != Standing::Gone {
            self.validity.extend(sent.at, sent.liveness_epoch);
        }
    }

    /// Applies the reply to a poll. A poll extends the lease of a holder, not of a waiter.
    pub(crate) fn apply_poll_reply(&mut self, reply: &EnterReply, sent: Sent, read: BootInstant) {
        self.note(reply, sent.caller_epoch, read);
        if reply.standing.token().is_some() {
            self.validity.extend(sent.at, sent.liveness_epoch);
        }
    }

    fn note(&mut self, reply: &EnterReply, caller_epoch: u32, read: BootInstant) {
        self.caller_epoch = caller_epoch;
        self.last_token = self.last_token.max(reply.last_token);
        // Replies and notifications take different ways to this state, so the later one here may be
        // the earlier one of the server. If a reply says that the claim waits, and a notification
        // has said before that it holds, their tokens decide. Each reply has the last token of the
        // lock, so a grant above all of these tokens came after the replies: the reply is the old
        // one, and it must not undo a grant of which the server notifies only once. A grant that is
        // not above them has ended since, and the claim waits again.
        let is_superseded = self
            .standing
            .is_none_or(|pushed| is_queued(pushed) || self.is_stale(pushed));
        if !is_queued(reply.standing) || is_superseded {
            // A notification that the claim has left may be about the grant of this reply.
            let had_left = self.standing == Some(Standing::Gone);
            self.is_confirmed = reply.standing.token().is_some() && !had_left;
            self.standing = Some(reply.standing);
        }

        self.is_next |= reply.is_next;
        self.position = reply.position;
        self.due = PollDue::No;
        self.next_expiry = reply.next_expiry.map(|left| read.saturating_add(left));
    }

    /// Applies a notification; `false` if it changes nothing.
    pub(crate) fn apply_push(&mut self, push: &Push) -> bool {
        match *push {
            Push::Held(token) => {
                let pushed = Standing::Held { token };
                if self.is_stale(pushed) {
                    return false;
                }
                self.standing = Some(pushed);
                self.is_confirmed = false;
            }
            Push::Gone => self.standing = Some(Standing::Gone),
            Push::Next => {
                self.is_next = true;
                self.next_expiry = None;
            }
        }
        true
    }

    /// Applies the reply to a renewal that was sent at `sent_at` and named the connection of
    /// `epoch`; `false` if the claim is gone.
    pub(crate) fn apply_renewal(
        &mut self,
        renewed: Renewed,
        sent_at: BootInstant,
        epoch: u32,
    ) -> bool {
        match renewed {
            Renewed::Gone => return false,
            Renewed::Unusable => {}
            Renewed::Held => {
                self.validity.extend(sent_at, epoch);
                if self.standing.is_some_and(is_queued) {
                    self.due = PollDue::Grant;
                } else {
                    self.is_confirmed = true;
                }
            }
            Renewed::Queued { position, absence } => {
                // A hold whose claim is queued again was lost in between.
                if self.passed_on.is_some_and(|passed_on| sent_at >= passed_on) {
                    return false;
                }
                self.validity.extend(sent_at, epoch);
                self.position = position;

                let is_due = match absence {
                    AbsenceSeen::None => false,
                    AbsenceSeen::New => true,
                    // The client that marked the absence revokes the hold, unless that client is
                    // absent too.
                    AbsenceSeen::Noted => self.is_absence_noted,
                };
                self.is_absence_noted = absence == AbsenceSeen::Noted;
                if is_due && self.due == PollDue::No {
                    self.due = PollDue::Absence;
                }
            }
        }
        true
    }

    /// Records that the caller receives the claim as held at `now`.
    pub(crate) fn pass_on(&mut self, now: BootInstant) {
        self.passed_on.get_or_insert(now);
    }

    /// Whether the caller holds the claim or is about to receive it.
    #[must_use]
    pub(crate) fn is_held(&self) -> bool {
        self.passed_on.is_some()
            || self
                .standing
                .is_some_and(|standing| standing.token().is_some())
    }

    fn is_stale(&self, pushed: Standing) -> bool {
        pushed
            .token()
            .is_some_and(|token| token.get() <= self.last_token)
    }

    /// Returns whether a ping on the connection of `epoch` is enough to renew the hold.
    ///
    /// After a notification, of a grant or of the end of the claim, a script is needed.
    #[must_use]
    pub(crate) fn is_covered_by_ping(&self, epoch: u32, now: BootInstant) -> bool {
        self.is_confirmed
            && self.standing != Some(Standing::Gone)
            && self.validity.is_extended_by_ping(epoch, now)
    }
}

/// Until when the client may trust a claim.
///
/// A server keeps a claim for a lease after the last script that has named it. With crash detection
/// another client may revoke a hold when the connection that the script named has been missing for
/// the crash grace. So a reply proves a hold for the grace only, and a ping proves as much.
///
/// ```text
/// script ─────────────── lease ───────────────► the server forgets the claim
///    └─ grace ─►  ping ─ grace ─►  ping ─ grace ─►     others may revoke the hold
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClaimValidity {
    lease: Duration,
    /// The crash grace; `None` if the claim is kept for its lease, whether its client is alive or not.
    pub(super) grace: Option<Duration>,
    /// When the last script was sent whose reply has confirmed the claim, and the epoch of the
    /// connection that it named.
    pub(crate) confirmed: Option<(BootInstant, u32)>,
    /// The end of the validity, as the last renewal has returned it.
    until: Option<BootInstant>,
}

impl ClaimValidity {
    /// Returns the validity of a claim before its first request.
    #[must_use]
    pub(crate) fn new(lease: Duration, grace: Option<Duration>) -> Self {
        Self {
            lease,
            grace,
            ..Self::default()
        }
    }

    /// Returns how long after a request its reply proves a hold.
    pub(super) fn of_reply(&self) -> Duration {
        self.grace.unwrap_or(self.lease)
    }

    /// Records the reply to a script that was sent at `sent_at` and named the connection of `epoch`.
    fn extend(&mut self, sent_at: BootInstant, epoch: u32) {
        if self.confirmed.is_none_or(|(before, _)| before <= sent_at) {
            self.confirmed = Some((sent_at, epoch));
        }
    }

    /// Records that a round of renewals has succeeded which began at `sent_at`, by a script or a
    /// ping. Returns how long the claim is valid from then.
    pub(super) fn renew(&mut self, sent_at: BootInstant, is_held: bool) -> Duration {
        // Only the lease keeps a waiter in the queue. The engine trusts a grant for less than the
        // lease.
        let max = if is_held { self.of_reply() } else { self.lease };
        let valid_for = self.lease_left(sent_at).min(max);
        self.until = self.until.max(Some(sent_at.saturating_add(valid_for)));
        valid_for
    }

    /// Returns how long the claim is valid from `now`, by the renewals so far.
    pub(super) fn remaining(&self, now: BootInstant) -> Duration {
        let until = self.until.unwrap_or(now);
        until.duration_since(now)
    }

    /// Returns the remaining lease at `now`, minus the drift that two clocks may have had since the
    /// request.
    fn lease_left(&self, now: BootInstant) -> Duration {
        let Some((sent_at, _)) = self.confirmed else {
            return Duration::ZERO;
        };
        let passed = now.duration_since(sent_at);
        self.lease
            .saturating_sub(passed)
            .saturating_sub(passed / 2_000)
    }

    /// Returns whether a ping on the connection of `epoch` extends the validity.
    ///
    /// A script must have bound the claim to this connection. The script must be recent: otherwise
    /// the lease needs a renewal, or the server may have lost the claim since then.
    fn is_extended_by_ping(&self, epoch: u32, now: BootInstant) -> bool {
        let (Some(grace), Some((sent_at, named))) = (self.grace, self.confirmed) else {
            return false;
        };
        epoch == named && now.duration_since(sent_at) + grace / 6 < (self.lease / 3).min(grace * 10)
    }
}

fn is_queued(standing: Standing) -> bool {
    matches!(standing, Standing::Queued { .. })
}
