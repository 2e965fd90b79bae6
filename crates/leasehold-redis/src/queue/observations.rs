//! The tokens and absences that this client has observed of other clients' claims, by name.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::claim_state::Observed;
use super::enter_reply::EnterReply;
use leasehold_core::Name;
use leasehold_core::internal::BootInstant;

/// How many names are remembered. For a forgotten name the client has no token hint, and the time
/// of its absences starts again.
const NAMES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Observations {
    names: Mutex<HashMap<Name, Observed>>,
}

impl Observations {
    /// Returns the highest token received for a name, and the absences that have lasted for their
    /// holder's grace, in the encoding of the script.
    pub(super) fn hint(&self, name: &Name) -> (u64, String) {
        let names = self.names.lock();
        let Some(observed) = names.get(name) else {
            return Default::default();
        };

        let expired = observed.expired(BootInstant::now());
        (observed.highest_token, expired)
    }

    /// Remembers a reply that has just been read, to a request that named the `expired` absences.
    ///
    /// A new name is added only if its reply has anything to remember.
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

    /// Returns the moment at which the next absence will have lasted for its holder's grace.
    pub(super) fn next_expiry(&self, name: &Name) -> Option<BootInstant> {
        self.names.lock().get(name)?.next_expiry()
    }
}
