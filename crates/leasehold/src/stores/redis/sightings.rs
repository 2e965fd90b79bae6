//! What this client has seen of others: their tokens, and the absence of their connections.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;

use super::record::{Absence, Answer};
use crate::clock::Moment;
use crate::{Name, Token};

/// How many names are remembered. Forgetting costs a hint, or another grace.
const NAMES_MAX: usize = 4096;
/// How many absences of a name are.
const ABSENCES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Sightings {
    names: Mutex<HashMap<Name, Sighting>>,
}

#[derive(Debug, Default)]
struct Sighting {
    token: u64,
    /// With the moment after its nonce was read.
    absences: Vec<(Absence, Moment)>,
}

impl Sightings {
    /// The highest token seen for a name, and the absences that have lasted for their holder's grace by this clock, as a
    /// script takes them.
    pub(super) fn hint(&self, name: &Name) -> (u64, String) {
        self.names.lock().get(name).map_or_else(Default::default, |sighting| (sighting.token, sighting.ripe()))
    }

    /// Takes note of the token and the absences in an answer that has just been read, to a question that named the `ripe` ones. Of many
    /// holders an answer tells of a few only, so what it does not mention is remembered, unless it was named.
    pub(super) fn read(&self, name: &Name, answer: &Answer, ripe: &str) {
        let token = answer.standing.token().map_or(0, Token::get);
        self.of(name, token > 0 || !answer.absences.is_empty(), |sighting| {
            sighting.token = sighting.token.max(token);
            if answer.soonest.is_none() {
                return;
            }
            let now = Moment::now();
            let first = |absence: &Absence| {
                let known = sighting.absences.iter().find(|(known, _)| known == absence);
                known.map_or(now, |(_, at)| *at)
            };
            let told: Vec<_> = answer.absences.iter().map(|absence| (absence.clone(), first(absence))).collect();
            let others = sighting.absences.drain(..).filter(|(known, _)| {
                !ripe.contains(&known.nonce) && !answer.absences.iter().any(|absence| absence.claim == known.claim)
            });
            sighting.absences = others.collect();
            sighting.absences.extend(told);
            let surplus = sighting.absences.len().saturating_sub(ABSENCES_MAX);
            sighting.absences.drain(..surplus);
        });
    }

    /// When the next absence will have lasted for as long.
    pub(super) fn next_ripe(&self, name: &Name) -> Option<Moment> {
        let names = self.names.lock();
        names.get(name)?.absences.iter().map(ripe_at).min()
    }

    /// Of a name that is not remembered, only what is worth it.
    fn of(&self, name: &Name, worth: bool, note: impl FnOnce(&mut Sighting)) {
        let mut names = self.names.lock();
        if let Some(sighting) = names.get_mut(name) {
            return note(sighting);
        }
        if !worth {
            return;
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        note(names.entry(name.clone()).or_default());
    }
}

impl Sighting {
    fn ripe(&self) -> String {
        if self.absences.is_empty() {
            return String::new();
        }
        let now = Moment::now();
        self.absences.iter().filter(|seen| now >= ripe_at(seen)).fold(String::new(), |mut text, (absence, _)| {
            let _ = write!(text, "{}{}", absence.claim, absence.nonce);
            text
        })
    }
}

/// From the reading on, and a little longer than the holder counts: two clocks differ in rate.
fn ripe_at((absence, read): &(Absence, Moment)) -> Moment {
    read.after(absence.grace + absence.grace / 1_000 + Duration::from_millis(5))
}
