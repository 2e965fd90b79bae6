//! What this client has seen of others, name by name.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::belief::Sighting;
use super::record::Answer;
use crate::Name;
use crate::clock::Moment;

/// How many names are remembered. Forgetting costs a hint, or another grace.
const NAMES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Sightings {
    names: Mutex<HashMap<Name, Sighting>>,
}

impl Sightings {
    /// The highest token seen for a name, and the absences that have lasted for their holder's grace by this clock, as a
    /// script takes them.
    pub(super) fn hint(&self, name: &Name) -> (u64, String) {
        let names = self.names.lock();
        let Some(sighting) = names.get(name) else { return Default::default() };
        let ripe = if sighting.is_quiet() { String::new() } else { sighting.ripe(Moment::now()) };
        (sighting.token, ripe)
    }

    /// Takes note of an answer that has just been read, to a question that named the `ripe` absences. Of a name that is not
    /// remembered, only what is worth it.
    pub(super) fn read(&self, name: &Name, answer: &Answer, ripe: &str) {
        let mut names = self.names.lock();
        if let Some(sighting) = names.get_mut(name) {
            return sighting.read(answer, ripe, Moment::now());
        }
        if !Sighting::is_in(answer) {
            return;
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.entry(name.clone()).or_default().read(answer, ripe, Moment::now());
    }

    /// When the next absence will have lasted for as long.
    pub(super) fn next_ripe(&self, name: &Name) -> Option<Moment> {
        self.names.lock().get(name)?.next_ripe()
    }
}
