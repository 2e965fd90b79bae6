//! What a client believes: of its own claims by what it was answered and told, and of the absence of others.
//!
//! None of it reads a clock: whoever uses it says when. So models can try out all that may happen, with these very functions.

use std::fmt::Write as _;
use std::time::Duration;

pub use super::record::{Absence, AbsenceSeen, Answer, Renewed, Told};
use crate::clock::Moment;
use crate::{Standing, Token};

/// How many absences of a name are remembered.
const ABSENCES_MAX: usize = 256;

/// What is known of a claim of our own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
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
    passed_on: Option<Moment>,
    /// Whether a script that ran after the grant has returned. Only then a sign of life is enough for the hold.
    is_confirmed: bool,
    /// The highest token that an answer told of. A grant that was told and has no higher one was lost before that answer was
    /// given, in which the same claim may be in line anew.
    last: u64,
    /// When somebody's lease ends, as far as was told.
    pub soonest: Option<Moment>,
    /// The epoch of the near link before the last question: what is told since then is heard, until the next.
    pub near: u32,
    /// The last question about it that a script answered, and the epoch of the connection it named.
    pub heard: Option<(Moment, u32)>,
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

impl Known {
    /// Takes note of the answer to a look, which keeps only a claim that is held for another lease.
    pub fn looked(&mut self, answer: &Answer, asked: Moment, epoch: u32, near: u32, read: Moment) {
        self.note(answer, near, read);
        if answer.standing.token().is_some() {
            self.renewed(asked, epoch);
        }
    }

    /// Takes note of an answer that was read at `read` to a question sent at `asked`, which named the connection of `epoch`,
    /// while the near link was in its epoch `near`.
    pub fn answered(&mut self, answer: &Answer, asked: Moment, epoch: u32, near: u32, read: Moment) {
        self.note(answer, near, read);
        if answer.standing != Standing::Gone {
            self.renewed(asked, epoch);
        }
    }

    fn note(&mut self, answer: &Answer, near: u32, read: Moment) {
        self.near = near;
        self.last = self.last.max(answer.last);
        // What was pushed may be read before the answer that was given before it.
        if !is_queued(answer.standing) || self.standing.is_none_or(|told| is_queued(told) || self.is_late(told)) {
            self.standing = Some(answer.standing);
            self.is_confirmed = answer.standing.token().is_some();
        }
        self.is_next |= answer.is_next;
        self.position = answer.position;
        self.due = LookDue::No;
        self.soonest = answer.soonest.map(|soonest| read.after(soonest));
    }

    /// Takes note of what was told without being asked; `false` if that is nothing new.
    pub fn told(&mut self, told: &Told) -> bool {
        match *told {
            Told::Held(token) => {
                let told = Standing::Held { token };
                if self.is_late(told) {
                    return false;
                }
                self.standing = Some(told);
                self.is_confirmed = false;
            }
            Told::Gone => self.standing = Some(Standing::Gone),
            Told::Next => {
                self.is_next = true;
                self.soonest = None;
            }
        }
        true
    }

    /// Takes note of a renewal that was sent at `asked` on the connection of `epoch`; `false` if the claim is gone.
    pub fn renewal(&mut self, renewed: Renewed, asked: Moment, epoch: u32) -> bool {
        match renewed {
            Renewed::Gone => return false,
            Renewed::Unusable => {}
            Renewed::Held => {
                self.renewed(asked, epoch);
                if self.standing.is_some_and(is_queued) {
                    self.due = LookDue::Grant;
                } else {
                    self.is_confirmed = true;
                }
            }
            Renewed::Queued { position, absence } => {
                // A hold that is in the queue again was lost in between.
                if self.passed_on.is_some_and(|passed_on| asked >= passed_on) {
                    return false;
                }
                self.renewed(asked, epoch);
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
    pub fn pass_on(&mut self, now: Moment) {
        self.passed_on.get_or_insert(now);
    }

    /// Whether the caller holds the claim or is about to.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.passed_on.is_some() || self.standing.is_some_and(|standing| standing.token().is_some())
    }

    /// Takes note of a script that was answered.
    pub fn renewed(&mut self, asked: Moment, epoch: u32) {
        if self.heard.is_none_or(|(before, _)| before <= asked) {
            self.heard = Some((asked, epoch));
        }
    }

    fn is_late(&self, told: Standing) -> bool {
        told.token().is_some_and(|token| token.get() <= self.last)
    }

    /// How much of the lease is left at `now`, less what two clocks may differ in rate over what has passed.
    #[must_use]
    pub fn lease_left(&self, lease: Duration, now: Moment) -> Duration {
        let Some((asked, _)) = self.heard else { return Duration::ZERO };
        let passed = now.since(asked);
        lease.saturating_sub(passed).saturating_sub(passed / 2_000)
    }

    /// Whether a sign of life on the connection of `epoch` is enough for a claim with this grace: a script has been answered
    /// that named this very connection, and not so long ago that the lease must be renewed, or that the server may have
    /// forgotten the claim since. One that was said to be gone is asked after.
    #[must_use]
    pub fn is_vouched_for(&self, epoch: u32, lease: Duration, grace: Duration, now: Moment) -> bool {
        let Some((asked, named)) = self.heard else { return false };
        self.is_confirmed
            && self.standing != Some(Standing::Gone)
            && epoch == named
            && now.since(asked) + grace / 6 < (lease / 3).min(grace * 10)
    }
}

pub(super) fn is_queued(standing: Standing) -> bool {
    matches!(standing, Standing::Queued { .. })
}

/// What was seen of others who want the same name: their tokens, and the absence of their connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// The highest token seen.
    pub token: u64,
    /// With the moment after its nonce was read.
    absences: Vec<(Absence, Moment)>,
}

impl Sighting {
    /// Whether there is anything in an answer that is worth remembering.
    #[must_use]
    pub fn is_in(answer: &Answer) -> bool {
        answer.standing.token().is_some() || !answer.absences.is_empty()
    }

    /// Takes note of the token and the absences in an answer that was read at `now`, to a question that named the `ripe` ones.
    /// Of many holders an answer tells of a few only, so what it does not mention is remembered, unless it was named.
    pub fn read(&mut self, answer: &Answer, ripe: &str, now: Moment) {
        self.token = self.token.max(answer.standing.token().map_or(0, Token::get));
        if answer.soonest.is_none() {
            return;
        }
        let first = |absence: &Absence| {
            let known = self.absences.iter().find(|(known, _)| known == absence);
            known.map_or(now, |(_, at)| *at)
        };
        let told: Vec<_> = answer.absences.iter().map(|absence| (absence.clone(), first(absence))).collect();
        let others = self.absences.drain(..).filter(|(known, _)| {
            !ripe.contains(&known.nonce) && !answer.absences.iter().any(|absence| absence.claim == known.claim)
        });
        self.absences = others.collect();
        self.absences.extend(told);
        let surplus = self.absences.len().saturating_sub(ABSENCES_MAX);
        self.absences.drain(..surplus);
    }

    /// The absences that have lasted for their holder's grace, as a script takes them.
    #[must_use]
    pub fn ripe(&self, now: Moment) -> String {
        self.absences.iter().filter(|seen| now >= ripe_at(seen)).fold(String::new(), |mut text, (absence, _)| {
            let _ = write!(text, "{}{}", absence.claim, absence.nonce);
            text
        })
    }

    /// Whether there are no absences.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.absences.is_empty()
    }

    /// When the next absence will have lasted for as long.
    #[must_use]
    pub fn next_ripe(&self) -> Option<Moment> {
        self.absences.iter().map(ripe_at).min()
    }
}

/// From the reading on, and a little longer than the holder counts: two clocks differ in rate.
fn ripe_at((absence, read): &(Absence, Moment)) -> Moment {
    read.after(absence.grace + absence.grace / 1_000 + Duration::from_millis(5))
}
