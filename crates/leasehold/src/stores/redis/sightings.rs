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
    /// The highest token seen for a name.
    pub(super) fn hint(&self, name: &Name) -> u64 {
        self.names.lock().get(name).map_or(0, |sighting| sighting.token)
    }

    pub(super) fn saw(&self, name: &Name, token: Token) {
        self.of(name, |sighting| sighting.token = sighting.token.max(token.get()));
    }

    /// Takes note of the absences in an answer that has just been read.
    pub(super) fn read(&self, name: &Name, answer: &Answer) {
        if answer.soonest.is_none() || answer.absences.is_empty() && !self.names.lock().contains_key(name) {
            return;
        }
        let now = Moment::now();
        self.of(name, |sighting| {
            let first = |absence: &Absence| {
                let known = sighting.absences.iter().find(|(known, _)| known == absence);
                known.map_or(now, |(_, at)| *at)
            };
            sighting.absences = answer.absences.iter().map(|absence| (absence.clone(), first(absence))).collect();
        });
    }

    /// The absences that have lasted long enough by this clock, as a script takes them.
    pub(super) fn ripe(&self, name: &Name) -> String {
        let now = Moment::now();
        let names = self.names.lock();
        let absences = names.get(name).map_or(&[][..], |sighting| &sighting.absences);
        absences.iter().filter(|(absence, at)| now >= ripe_at(absence, *at)).fold(
            String::new(),
            |mut text, (absence, _)| {
                let _ = write!(text, "{}{}", absence.claim, absence.nonce);
                text
            },
        )
    }

    /// When the next absence will have lasted long enough.
    pub(super) fn next_ripe(&self, name: &Name) -> Option<Moment> {
        let names = self.names.lock();
        names.get(name)?.absences.iter().map(|(absence, at)| ripe_at(absence, *at)).min()
    }

    fn of(&self, name: &Name, note: impl FnOnce(&mut Sighting)) {
        let mut names = self.names.lock();
        if let Some(sighting) = names.get_mut(name) {
            return note(sighting);
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        note(names.entry(name.clone()).or_default());
    }
}

/// From the reading on, and a little longer than the holder counts: two clocks differ in rate.
fn ripe_at(absence: &Absence, read: Moment) -> Moment {
    let grace = absence.grace;
    read.after(grace + grace / 1_000 + Duration::from_millis(5))
}
