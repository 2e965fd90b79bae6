//! What a client observes of other clients' claims: their tokens, and the holders that are absent.
//!
//! A holder whose client has no connection to the server is absent. A script or a function of the
//! server notes it with a nonce, which differs for each absence, and any later request of the holder
//! clears it. The grace counts by the clock of the client that waits, and no clock of a server
//! matters: all that the holder's trust rests on was sent before the nonce was read, so a grace after
//! the reading, with a margin for the rate of clocks, that trust is over. A holder that has come back
//! keeps its hold, because the server ends only one that still has the nonce.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::runtime::clock::BootInstant;
use crate::{Name, Token};

/// How many names are remembered. For a forgotten name the client has no token, and the time of its
/// absences starts again.
const NAMES_MAX: usize = 4096;
/// How many absences of a name are remembered, unless the last reply names more.
const ABSENCES_MAX: usize = 256;

/// The absence of a holder, as a reply names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Absence<Id> {
    /// The holder's claim.
    pub claim: Id,
    /// Every absence has a different one.
    pub nonce: Id,
    /// How long the absence must last before the holder stops trusting its hold.
    pub grace: Duration,
}

impl<Id> Absence<Id> {
    /// Returns when an absence that was first read at `read` has lasted for its grace. A margin is
    /// added, because the holder's clock may run at another rate.
    fn ends_at(&self, read: BootInstant) -> BootInstant {
        read.saturating_add(self.grace + self.grace / 1_000 + Duration::from_millis(5))
    }
}

/// What a client has observed, by name.
#[derive(Debug)]
pub struct Observations<Id> {
    names: Mutex<HashMap<Name, Observed<Id>>>,
}

impl<Id> Default for Observations<Id> {
    fn default() -> Self {
        let names = Mutex::default();
        Self { names }
    }
}

impl<Id: Clone + PartialEq> Observations<Id> {
    /// Returns the highest token received for a name, and the absences that have lasted for their
    /// holder's grace.
    pub fn hint(&self, name: &Name) -> (u64, Vec<Absence<Id>>) {
        let names = self.names.lock();
        names.get(name).map_or((0, Vec::new()), |observed| {
            (observed.highest_token, observed.ended(BootInstant::now()))
        })
    }

    /// Remembers what a reply that has just been read says, as [`Observed::observe`] does.
    ///
    /// A new name is added only if there is anything to remember.
    pub fn observe(
        &self,
        name: &Name,
        token: Option<Token>,
        absences: &[Absence<Id>],
        ended: &[Absence<Id>],
    ) {
        let mut names = self.names.lock();
        if !names.contains_key(name) {
            if token.is_none() && absences.is_empty() {
                return;
            }
            if names.len() >= NAMES_MAX {
                make_room(&mut names);
            }
        }
        let observed = names.entry(name.clone()).or_default();
        observed.observe(token, absences, ended, BootInstant::now());
    }

    /// Returns the moment at which the next absence will have lasted for its holder's grace.
    pub fn next_end(&self, name: &Name) -> Option<BootInstant> {
        self.names.lock().get(name)?.next_end()
    }
}

/// Forgets the names of which only a token is known, and the others only if they are as many: their
/// absences would not end by the grace.
fn make_room<Id>(names: &mut HashMap<Name, Observed<Id>>) {
    names.retain(|_, observed| !observed.absences.is_empty());
    if names.len() >= NAMES_MAX {
        names.clear();
    }
}

/// What a client has observed of the claims of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observed<Id> {
    highest_token: u64,
    /// The absences, each with the moment after its nonce was first read.
    absences: Vec<(Absence<Id>, BootInstant)>,
}

impl<Id> Default for Observed<Id> {
    fn default() -> Self {
        Self {
            highest_token: 0,
            absences: Vec::new(),
        }
    }
}

impl<Id: Clone + PartialEq> Observed<Id> {
    /// Remembers the token of a grant and the absences that a reply names, which was read at `now`,
    /// to a request that named the `ended` absences.
    ///
    /// A reply names only some of many holders, or none if it did not have to look at them. So an
    /// absence that it does not name is kept, unless the request named it.
    pub fn observe(
        &mut self,
        token: Option<Token>,
        named: &[Absence<Id>],
        ended: &[Absence<Id>],
        now: BootInstant,
    ) {
        self.highest_token = self.highest_token.max(token.map_or(0, Token::get));
        let first_read = |absence: &Absence<Id>| {
            let known = self.absences.iter().find(|(known, _)| known == absence);
            known.map_or(now, |(_, read)| *read)
        };
        let named: Vec<_> = named
            .iter()
            .map(|absence| (absence.clone(), first_read(absence)))
            .collect();

        self.absences.retain(|(known, _)| {
            let is_named = named
                .iter()
                .any(|(absence, _)| absence.claim == known.claim);
            !is_named && !ended.contains(known)
        });
        // A reply always names the same first ones, whose time must go on.
        let room = ABSENCES_MAX.saturating_sub(named.len());
        let surplus = self.absences.len().saturating_sub(room);
        self.absences.drain(..surplus);
        self.absences.extend(named);
    }

    /// Returns the absences that have lasted for their holder's grace.
    #[must_use]
    pub fn ended(&self, now: BootInstant) -> Vec<Absence<Id>> {
        let ended = self.absences.iter();
        ended
            .filter(|(absence, read)| now >= absence.ends_at(*read))
            .map(|(absence, _)| absence.clone())
            .collect()
    }

    fn next_end(&self) -> Option<BootInstant> {
        self.absences
            .iter()
            .map(|(absence, read)| absence.ends_at(*read))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(grace: Duration) -> Absence<u32> {
        Absence {
            claim: 1,
            nonce: 2,
            grace,
        }
    }

    /// A client that acquires many other names meanwhile.
    ///
    /// Shows G-02.
    #[test]
    fn absence_ends_by_the_grace_beside_thousands_of_grants() {
        let name = |text: &str| Name::parse(text).expect("a name");
        let absent = [absence(Duration::ZERO)];
        let token = Token::new(7);
        let observations = Observations::default();
        observations.observe(&name("crashed"), None, &absent, &[]);
        let ends_at = observations.next_end(&name("crashed"));

        for number in 0..5_000 {
            observations.observe(&name(&number.to_string()), token, &[], &[]);
            observations.observe(&name("crashed"), None, &absent, &[]);
        }
        assert!(ends_at.is_some());
        assert_eq!(observations.next_end(&name("crashed")), ends_at);
        assert!(observations.names.lock().len() <= NAMES_MAX);

        // What is remembered stays bounded.
        for number in 0..5_000 {
            observations.observe(&name(&format!("crashed {number}")), None, &absent, &[]);
        }
        assert!(observations.names.lock().len() <= NAMES_MAX);
    }

    #[test]
    fn absence_that_a_reply_does_not_name_is_kept() {
        let now = BootInstant::now();
        let absent = [absence(Duration::from_secs(1))];
        let mut observed = Observed::default();

        observed.observe(None, &absent, &[], now);
        observed.observe(None, &[], &[], now);
        assert!(observed.next_end().is_some());
        observed.observe(None, &[], &absent, now);
        assert_eq!(observed.next_end(), None);
    }

    /// A waiter that saw the first absence must not shorten the second one.
    ///
    /// Shows G-01.
    #[test]
    fn another_absence_of_the_same_holder_counts_from_its_own_reading() {
        let now = BootInstant::now();
        let first = [absence(Duration::from_secs(1))];
        let mut second = first.clone();
        second[0].nonce = 3;
        let later = now.saturating_add(Duration::from_millis(900));
        let end = now.saturating_add(Duration::from_millis(1_100));
        let mut observed = Observed::default();

        observed.observe(None, &first, &[], now);
        assert_eq!(observed.ended(end), first);
        observed.observe(None, &second, &[], later);
        assert_eq!(observed.ended(end), []);
    }
}
