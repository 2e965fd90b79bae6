//! What a client believes: of its own claims by what it was answered and told, and of the absence of others.
//!
//! None of it reads a clock: whoever uses it says when. So models can try out all that may happen, with these very functions.

use std::fmt::Write as _;
use std::time::Duration;

pub use super::record::{Absence, AbsenceSeen, EnterReply, Push, Renewed};
use crate::runtime::clock::BootInstant;
use crate::{Standing, Token};

/// How many absences of a name are remembered.
const ABSENCES_MAX: usize = 256;

/// What is known of a claim of our own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimState {
    /// The last that was heard, asked or not.
    pub standing: Option<Standing>,
    /// First of those who wait.
    pub is_next: bool,
    /// The position among those who wait, as of the last reply that named it; 0 if none has.
    pub position: u32,
    /// Whether a renewal has shown a reason to look.
    pub due: LookDue,
    /// Whether the last renewal saw an absence that another client has noted.
    is_absence_noted: bool,
    /// When the caller was given this claim as held.
    passed_on: Option<BootInstant>,
    /// Whether a script that ran after the grant has returned. Only then a sign of life is enough for the hold.
    is_confirmed: bool,
    /// The highest token that an answer told of. A grant that was told and has no higher one was lost before that answer was
    /// given, in which the same claim may be in line anew.
    last_token: u64,
    /// When somebody's lease ends, as far as was told.
    pub next_expiry: Option<BootInstant>,
    /// The epoch of the near link before the last question: what is told since then is heard, until the next.
    pub caller_epoch: u32,
    /// The last question about it that a script answered, and the epoch of the connection it named.
    pub renewed_at: Option<(BootInstant, u32)>,
}

/// Why a waiter should look at the queue before its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LookDue {
    /// It need not.
    #[default]
    No,
    /// A holder is absent: one of the client's waiters should look.
    Absence,
    /// The claim is held, and its notification has not been read.
    Grant,
}

impl ClaimState {
    /// Takes note of the answer to a look, which keeps only a claim that is held for another lease.
    pub fn looked(
        &mut self,
        reply: &EnterReply,
        sent_at: BootInstant,
        epoch: u32,
        caller_epoch: u32,
        read: BootInstant,
    ) {
        self.note(reply, caller_epoch, read);
        if reply.standing.token().is_some() {
            self.apply_renewal(sent_at, epoch);
        }
    }

    /// Takes note of an answer that was read at `read` to a question sent at `sent_at`, which named the connection of `epoch`,
    /// while the near link was in its epoch `caller_epoch`.
    pub fn with_reply_timeout(
        &mut self,
        reply: &EnterReply,
        sent_at: BootInstant,
        epoch: u32,
        caller_epoch: u32,
        read: BootInstant,
    ) {
        self.note(reply, caller_epoch, read);
        if reply.standing != Standing::Gone {
            self.apply_renewal(sent_at, epoch);
        }
    }

    fn note(&mut self, reply: &EnterReply, caller_epoch: u32, read: BootInstant) {
        self.caller_epoch = caller_epoch;
        self.last_token = self.last_token.max(reply.last_token);
        // What was pushed may be read before the answer that was given before it.
        if !is_queued(reply.standing)
            || self
                .standing
                .is_none_or(|pushed| is_queued(pushed) || self.is_late(pushed))
        {
            self.standing = Some(reply.standing);
            self.is_confirmed = reply.standing.token().is_some();
        }
        self.is_next |= reply.is_next;
        self.position = reply.position;
        self.due = LookDue::No;
        self.next_expiry = reply
            .next_expiry
            .map(|next_expiry| read.saturating_add(next_expiry));
    }

    /// Takes note of what was told without being asked; `false` if that is nothing new.
    pub fn apply_push(&mut self, push: &Push) -> bool {
        match *push {
            Push::Held(token) => {
                let pushed = Standing::Held { token };
                if self.is_late(pushed) {
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

    /// Takes note of a renewal that was sent at `sent_at` on the connection of `epoch`; `false` if the claim is gone.
    pub fn renewal(&mut self, renewed: Renewed, sent_at: BootInstant, epoch: u32) -> bool {
        match renewed {
            Renewed::Gone => return false,
            Renewed::Unusable => {}
            Renewed::Held => {
                self.apply_renewal(sent_at, epoch);
                if self.standing.is_some_and(is_queued) {
                    self.due = LookDue::Grant;
                } else {
                    self.is_confirmed = true;
                }
            }
            Renewed::Queued { position, absence } => {
                // A hold that is in the queue again was lost in between.
                if self.passed_on.is_some_and(|passed_on| sent_at >= passed_on) {
                    return false;
                }
                self.apply_renewal(sent_at, epoch);
                self.position = position;
                let is_due = match absence {
                    AbsenceSeen::None => false,
                    AbsenceSeen::New => true,
                    // The client that has noted it takes over, unless it is absent too by now.
                    AbsenceSeen::Noted => self.is_absence_noted,
                };
                self.is_absence_noted = absence == AbsenceSeen::Noted;
                if is_due && self.due == LookDue::No {
                    self.due = LookDue::Absence;
                }
            }
        }
        true
    }

    /// Notes that the caller was given the claim as held at `now`.
    pub fn pass_on(&mut self, now: BootInstant) {
        self.passed_on.get_or_insert(now);
    }

    /// Whether the caller holds the claim or is about to.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.passed_on.is_some()
            || self
                .standing
                .is_some_and(|standing| standing.token().is_some())
    }

    /// Takes note of a script that was answered.
    pub fn apply_renewal(&mut self, sent_at: BootInstant, epoch: u32) {
        if self.renewed_at.is_none_or(|(before, _)| before <= sent_at) {
            self.renewed_at = Some((sent_at, epoch));
        }
    }

    fn is_late(&self, pushed: Standing) -> bool {
        pushed
            .token()
            .is_some_and(|token| token.get() <= self.last_token)
    }

    /// How much of the lease is left at `now`, less what two clocks may differ in rate over what has passed.
    #[must_use]
    pub fn lease_left(&self, lease: Duration, now: BootInstant) -> Duration {
        let Some((sent_at, _)) = self.renewed_at else {
            return Duration::ZERO;
        };
        let passed = now.duration_since(sent_at);
        lease.saturating_sub(passed).saturating_sub(passed / 2_000)
    }

    /// Whether a sign of life on the connection of `epoch` is enough for a claim with this grace: a script has been answered
    /// that named this very connection, and not so long ago that the lease must be renewed, or that the server may have
    /// forgotten the claim since. One that was said to be gone is asked after.
    #[must_use]
    pub fn is_covered_by_liveness(
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

/// What was seen of others who want the same name: their tokens, and the absence of their connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observed {
    /// The highest token seen.
    pub highest_token: u64,
    /// With the moment after its nonce was read.
    absences: Vec<(Absence, BootInstant)>,
}

impl Observed {
    /// Whether there is anything in an answer that is worth remembering.
    #[must_use]
    pub fn is_in(reply: &EnterReply) -> bool {
        reply.standing.token().is_some() || !reply.absences.is_empty()
    }

    /// Takes note of the token and the absences in an answer that was read at `now`, to a question that named the `expired` ones.
    /// Of many holders an answer tells of a few only, so what it does not mention is remembered, unless it was named.
    pub fn observe(&mut self, reply: &EnterReply, expired: &str, now: BootInstant) {
        self.highest_token = self
            .highest_token
            .max(reply.standing.token().map_or(0, Token::get));
        if reply.next_expiry.is_none() {
            return;
        }
        let first = |absence: &Absence| {
            let state = self.absences.iter().find(|(state, _)| state == absence);
            state.map_or(now, |(_, at)| *at)
        };
        let push: Vec<_> = reply
            .absences
            .iter()
            .map(|absence| (absence.clone(), first(absence)))
            .collect();
        let others = self.absences.drain(..).filter(|(state, _)| {
            !expired.contains(&state.nonce)
                && !reply
                    .absences
                    .iter()
                    .any(|absence| absence.claim == state.claim)
        });
        self.absences = others.collect();
        self.absences.extend(push);
        let surplus = self.absences.len().saturating_sub(ABSENCES_MAX);
        self.absences.drain(..surplus);
    }

    /// The absences that have lasted for their holder's grace, as a script takes them.
    #[must_use]
    pub fn expired(&self, now: BootInstant) -> String {
        self.absences
            .iter()
            .filter(|seen| now >= expires_at(seen))
            .fold(String::new(), |mut text, (absence, _)| {
                let _ = write!(text, "{}{}", absence.claim, absence.nonce);
                text
            })
    }

    /// Whether there are no absences.
    #[must_use]
    pub fn no_absences(&self) -> bool {
        self.absences.is_empty()
    }

    /// When the next absence will have lasted for as long.
    #[must_use]
    pub fn next_expiry(&self) -> Option<BootInstant> {
        self.absences.iter().map(expires_at).min()
    }
}

/// From the reading on, and a little longer than the holder counts: two clocks differ in rate.
fn expires_at((absence, read): &(Absence, BootInstant)) -> BootInstant {
    read.saturating_add(absence.grace + absence.grace / 1_000 + Duration::from_millis(5))
}
