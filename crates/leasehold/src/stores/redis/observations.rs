//! What this client has seen of others, name by name.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::claim_state::Observed;
use super::record::EnterReply;
use crate::Name;
use crate::runtime::clock::BootInstant;

/// How many names are remembered. Forgetting costs a hint, or another grace.
const NAMES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Observations {
    names: Mutex<HashMap<Name, Observed>>,
}

impl Observations {
    /// The highest token seen for a name, and the absences that have lasted for their holder's grace by this clock, as a
    /// script takes them.
    pub(super) fn hint(&self, name: &Name) -> (u64, String) {
        let names = self.names.lock();
        let Some(observed) = names.get(name) else {
            return Default::default();
        };
        let expired = if observed.no_absences() {
            String::new()
        } else {
            observed.expired(BootInstant::now())
        };
        (observed.highest_token, expired)
    }

    /// Takes note of an answer that has just been read, to a question that named the `expired` absences. Of a name that is not
    /// remembered, only what is worth it.
    pub(super) fn observe(&self, name: &Name, reply: &EnterReply, expired: &str) {
        let mut names = self.names.lock();
        if let Some(observed) = names.get_mut(name) {
            return observed.observe(reply, expired, BootInstant::now());
        }
        if !Observed::is_in(reply) {
            return;
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names
            .entry(name.clone())
            .or_default()
            .observe(reply, expired, BootInstant::now());
    }

    /// When the next absence will have lasted for as long.
    pub(super) fn next_expiry(&self, name: &Name) -> Option<BootInstant> {
        self.names.lock().get(name)?.next_expiry()
    }
}
