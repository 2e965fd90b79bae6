//! The tokens and absences that this client has observed of other clients' claims, by name, and the
//! nonces that mark an absence.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::messages::{Absence, EnterReply, Nonce};
use leasehold_core::internal::BootInstant;
use leasehold_core::store::draw_claim_id;
use leasehold_core::{Name, Token};

/// How many names are remembered. For a forgotten name the client has no token hint, and the time
/// of its absences starts again.
const NAMES_MAX: usize = 4096;
/// How many absences of a name are remembered.
const ABSENCES_MAX: usize = 256;

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
            make_room(&mut names);
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

/// Forgets the names of which only a token is known, and the others only if they are as many: their
/// absences would not end by the grace.
fn make_room(names: &mut HashMap<Name, Observed>) {
    names.retain(|_, observed| !observed.absences.is_empty());
    if names.len() >= NAMES_MAX {
        names.clear();
    }
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
    ///
    /// The grace counts by this client's clock, and no clock of a server matters. A script wrote
    /// the nonce when it found no connection of the holder, and any later script of the holder
    /// clears it. So all that the holder's trust rests on was sent before the nonce was read here,
    /// and a grace after the reading, with a margin for the rate of clocks, that trust is over. A
    /// holder that has come back since keeps its hold, because the script revokes only one that
    /// still has this nonce.
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

/// Draws nonces that differ from all earlier ones, of this client and of any other.
///
/// A repeated nonce would turn two short absences into one long absence, and lead to two holders.
/// So nonces count up from a number that the system has drawn. A random generator in the process
/// may have the same seed as one in another process: after a fork, or because the user seeded it.
#[derive(Debug)]
pub(super) struct Nonces(AtomicU64);

impl Default for Nonces {
    fn default() -> Self {
        let drawn = u128::from_be_bytes(draw_claim_id().to_bytes());
        // The last bits are random in every version of an id.
        let last = drawn & u128::from(u64::MAX);
        Self(AtomicU64::new(u64::try_from(last).expect("it is masked")))
    }
}

impl Nonces {
    pub(super) fn fresh(&self) -> Nonce {
        Nonce(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::super::layout::record::NONCE;
    use super::super::record::NO_NONCE;
    use super::*;
    use leasehold_core::store::Standing;

    fn absence() -> Absence {
        Absence {
            claim: "claim".to_owned(),
            nonce: "nonce".to_owned(),
            grace: Duration::from_secs(1),
        }
    }

    fn about(absences: &[Absence]) -> EnterReply {
        EnterReply {
            standing: Standing::Queued { ahead: 1 },
            last_token: 0,
            is_next: true,
            position: 1,
            next_expiry: Some(Duration::from_secs(1)),
            absences: absences.to_vec(),
            refused: None,
        }
    }

    #[test]
    fn absence_outlasts_the_tokens_of_thousands_of_names() {
        let name = |text: &str| Name::parse(text).expect("a name");
        let mut held = about(&[]);
        held.standing = Standing::Held {
            token: Token::new(7).expect("not zero"),
        };
        let observations = Observations::default();
        observations.observe(&name("crashed"), &about(&[absence()]), "");
        for number in 0..5_000 {
            observations.observe(&name(&number.to_string()), &held, "");
        }
        assert!(observations.next_expiry(&name("crashed")).is_some());
        assert!(observations.names.lock().len() <= NAMES_MAX);
    }

    #[test]
    fn absence_that_a_reply_does_not_name_is_kept() {
        let now = BootInstant::now();
        let mut observed = Observed::default();

        observed.observe(&about(&[absence()]), "", now);
        observed.observe(&about(&[]), "", now);
        assert!(observed.next_expiry().is_some());
        observed.observe(&about(&[]), "claimnonce", now);
        assert_eq!(observed.next_expiry(), None);
    }

    /// Shows G-01.
    #[test]
    fn nonces_never_repeat() {
        let draw = || {
            fastrand::seed(7);
            let nonces = Nonces::default();
            (0..1_000)
                .map(|_| nonces.fresh().to_string())
                .collect::<HashSet<String>>()
        };
        let ours = draw();
        let theirs = draw();

        assert_eq!(ours.len(), 1_000);
        assert_eq!(ours.intersection(&theirs).count(), 0);
        for nonce in ours {
            assert_eq!(nonce.len(), NONCE.len);
            assert_ne!(nonce, NO_NONCE);
        }
    }
}
