//! What a client believes: of its own claims by what it was answered and told, and of the absence of others.
//!
//! None of it reads a clock: whoever uses it says when. So models can try out all that may happen, with these very functions.

use std::fmt::Write as _;
use std::time::Duration;

pub use super::record::{Absence, Answer, Told};
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

impl Known {
    /// Takes note of an answer that was read at `read` to a question sent at `asked`, which named the connection of `epoch`,
    /// while the near link was in its epoch `near`.
    pub fn answered(&mut self, answer: &Answer, asked: Moment, epoch: u32, near: u32, read: Moment) {
        self.near = near;
        self.last = self.last.max(answer.last);
        // What was pushed may be read before the answer that was given before it.
        if !is_queued(answer.standing) || self.standing.is_none_or(|told| is_queued(told) || self.is_late(told)) {
            self.standing = Some(answer.standing);
        }
        self.is_next |= answer.is_next;
        self.soonest = answer.soonest.map(|soonest| read.after(soonest));
        if answer.standing != Standing::Gone {
            self.renewed(asked, epoch);
        }
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
            }
            Told::Gone => self.standing = Some(Standing::Gone),
            Told::Next => {
                self.is_next = true;
                self.soonest = None;
            }
        }
        true
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
        self.standing != Some(Standing::Gone)
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
