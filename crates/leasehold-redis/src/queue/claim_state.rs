//! What a client knows about its own claims, from replies and notifications, and about absent
//! holders.
//!
//! None of these functions reads a clock: the caller passes the time. So models can run them with
//! all orders of events.

use std::fmt::Write as _;
use std::time::Duration;

use super::enter::Sent;
use super::enter_reply::{Absence, EnterReply};
use super::push::Push;
use super::renewal::{AbsenceSeen, Renewed};
use leasehold_core::Token;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Standing;

/// How many absences of a name are remembered.
const ABSENCES_MAX: usize = 256;

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
    /// When the last request that got a reply was sent, and the epoch of the connection that the
    /// request named.
    pub(crate) renewed_at: Option<(BootInstant, u32)>,
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
    /// Applies the reply to a request to enter that was read at `read`.
    pub(crate) fn apply_reply(&mut self, reply: &EnterReply, sent: Sent, read: BootInstant) {
        self.note(reply, sent.caller_epoch, read);
        if reply.standing != Standing::Gone {
            self.extend(sent.at, sent.liveness_epoch);
        }
    }

    /// Applies the reply to a poll. A poll extends the lease of a holder, not of a waiter.
    pub(crate) fn apply_poll_reply(&mut self, reply: &EnterReply, sent: Sent, read: BootInstant) {
        self.note(reply, sent.caller_epoch, read);
        if reply.standing.token().is_some() {
            self.extend(sent.at, sent.liveness_epoch);
        }
    }

    fn note(&mut self, reply: &EnterReply, caller_epoch: u32, read: BootInstant) {
        self.caller_epoch = caller_epoch;
        self.last_token = self.last_token.max(reply.last_token);
        // A notification may arrive before a reply that the server sent earlier.
        let is_superseded = self
            .standing
            .is_none_or(|pushed| is_queued(pushed) || self.is_stale(pushed));
        if !is_queued(reply.standing) || is_superseded {
            self.standing = Some(reply.standing);
            self.is_confirmed = reply.standing.token().is_some();
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
                self.extend(sent_at, epoch);
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
                self.extend(sent_at, epoch);
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

    fn extend(&mut self, sent_at: BootInstant, epoch: u32) {
        if self.renewed_at.is_none_or(|(before, _)| before <= sent_at) {
            self.renewed_at = Some((sent_at, epoch));
        }
    }

    fn is_stale(&self, pushed: Standing) -> bool {
        pushed
            .token()
            .is_some_and(|token| token.get() <= self.last_token)
    }

    /// Returns the remaining lease at `now`, minus the drift that two clocks may have had since the
    /// request.
    #[must_use]
    pub(crate) fn lease_left(&self, lease: Duration, now: BootInstant) -> Duration {
        let Some((sent_at, _)) = self.renewed_at else {
            return Duration::ZERO;
        };
        let passed = now.duration_since(sent_at);
        lease.saturating_sub(passed).saturating_sub(passed / 2_000)
    }

    /// Returns whether a ping on the connection of `epoch` is enough to renew the hold.
    ///
    /// A script must have bound the claim to this connection. The script must be recent: otherwise
    /// the lease needs a renewal, or the server may have lost the claim since then. After a
    /// notification that the claim has ended, a script is needed too.
    #[must_use]
    pub(crate) fn is_covered_by_liveness(
        &self,
        epoch: u32,
        lease: Duration,
        grace: Duration,
        now: BootInstant,
    ) -> bool {
        let Some((sent_at, named)) = self.renewed_at else {
            return false;
        };
        self.is_confirmed
            && self.standing != Some(Standing::Gone)
            && epoch == named
            && now.duration_since(sent_at) + grace / 6 < (lease / 3).min(grace * 10)
    }
}

pub(super) fn is_queued(standing: Standing) -> bool {
    matches!(standing, Standing::Queued { .. })
}

/// What a client has observed of other clients' claims for a name: their tokens and absences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Observed {
    /// The highest token seen.
    pub(crate) highest_token: u64,
    /// The absences, each with the moment after its nonce was read.
    absences: Vec<(Absence, BootInstant)>,
}

impl Observed {
    /// Whether a reply contains anything to remember.
    #[must_use]
    pub(crate) fn is_in(reply: &EnterReply) -> bool {
        reply.standing.token().is_some() || !reply.absences.is_empty()
    }

    /// Remembers the token and the absences in a reply that was read at `now`, to a request that
    /// named the `expired` absences.
    ///
    /// A reply names only some of many holders. So an absence that it does not name is kept, unless
    /// the request named it.
    pub(crate) fn observe(&mut self, reply: &EnterReply, expired: &str, now: BootInstant) {
        let token = reply.standing.token().map_or(0, Token::get);
        self.highest_token = self.highest_token.max(token);
        if reply.next_expiry.is_none() {
            return;
        }

        let first_read = |absence: &Absence| {
            let known = self.absences.iter().find(|(known, _)| known == absence);
            known.map_or(now, |(_, read)| *read)
        };
        let named: Vec<_> = reply
            .absences
            .iter()
            .map(|absence| (absence.clone(), first_read(absence)))
            .collect();

        self.absences.retain(|(known, _)| {
            let is_named = named
                .iter()
                .any(|(absence, _)| absence.claim == known.claim);
            !is_named && !expired.contains(&known.nonce)
        });
        self.absences.extend(named);
        let surplus = self.absences.len().saturating_sub(ABSENCES_MAX);
        self.absences.drain(..surplus);
    }

    /// Returns the absences that have lasted for their holder's grace, in the encoding of the
    /// script.
    #[must_use]
    pub(crate) fn expired(&self, now: BootInstant) -> String {
        let mut text = String::new();
        for (absence, read) in &self.absences {
            if now >= absence.ends_at(*read) {
                // Writing to a string cannot fail.
                let _ = write!(text, "{}{}", absence.claim, absence.nonce);
            }
        }
        text
    }

    /// Returns the moment at which the next absence will have lasted for its holder's grace.
    #[must_use]
    pub(crate) fn next_expiry(&self) -> Option<BootInstant> {
        self.absences
            .iter()
            .map(|(absence, read)| absence.ends_at(*read))
            .min()
    }
}

impl Absence {
    /// Returns when an absence that was first read at `read` has lasted for its grace. A margin is
    /// added, because the holder's clock may run at another rate.
    fn ends_at(&self, read: BootInstant) -> BootInstant {
        read.saturating_add(self.grace + self.grace / 1_000 + Duration::from_millis(5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_that_a_reply_does_not_name_is_kept() {
        let absence = Absence {
            claim: "claim".to_owned(),
            nonce: "nonce".to_owned(),
            grace: Duration::from_secs(1),
        };
        let about = |absences: &[Absence]| EnterReply {
            standing: Standing::Queued { ahead: 1 },
            last_token: 0,
            is_next: true,
            position: 1,
            next_expiry: Some(Duration::from_secs(1)),
            absences: absences.to_vec(),
            refused: None,
        };
        let now = BootInstant::now();
        let mut observed = Observed::default();

        observed.observe(&about(&[absence]), "", now);
        observed.observe(&about(&[]), "", now);
        assert!(observed.next_expiry().is_some());
        observed.observe(&about(&[]), "claimnonce", now);
        assert_eq!(observed.next_expiry(), None);
    }
}
