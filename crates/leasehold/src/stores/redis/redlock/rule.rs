//! The rule by which masters that know nothing of each other keep one lock.
//!
//! It is what `lua/redlock/vote.lua` and `leave.lua` do on a master, and how a client counts votes. It has no clock: that a lease
//! has ended is something that happens to a [`Seat`]. A test compares it with the scripts, and a model checks what follows from it.

/// What one master remembers of one lock.
///
/// ```text
/// free ──vote: token > last──► held(token, claim)
///   ▲                               │
///   └──leave, lease ends────────────┘      last never falls
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seat<C> {
    /// No vote is given to a token up to this one.
    pub last: u64,
    /// Who has this master's vote, and for which token.
    pub held: Option<(u64, C)>,
}

/// A master's answer to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The claim has this vote.
    Granted,
    /// Another claim has it, for this token.
    Held(u64),
    /// It is free, or the claim's own, but the token is not above this one.
    Low(u64),
}

impl<C> Default for Seat<C> {
    fn default() -> Self {
        Self { last: 0, held: None }
    }
}

impl<C: Copy + PartialEq> Seat<C> {
    /// A claim asks for this vote with a token, or asks again to keep it.
    pub fn vote(&mut self, claim: C, token: u64) -> Verdict {
        match self.held {
            Some((held, by)) if by != claim => return Verdict::Held(held),
            Some((held, _)) if held == token => return Verdict::Granted,
            _ => {}
        }
        if token <= self.last {
            return Verdict::Low(self.last);
        }
        *self = Self { last: token, held: Some((token, claim)) };
        Verdict::Granted
    }

    /// A claim gives its vote back, and wants none that it has asked for with a token up to `highest`: a request that comes later
    /// than this finds `last` raised. Says whether it had the vote.
    pub fn leave(&mut self, claim: C, highest: u64) -> bool {
        let had = self.held.is_some_and(|(token, by)| by == claim && token <= highest);
        if had {
            self.held = None;
        }
        self.last = self.last.max(highest);
        had
    }

    /// The lease of whoever has the vote ends.
    pub fn expire(&mut self) {
        self.held = None;
    }
}

/// How many of so many masters must agree.
#[must_use]
pub fn quorum(masters: usize) -> usize {
    masters / 2 + 1
}

/// The votes of one round, as they come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Count {
    masters: usize,
    /// Votes for the claim.
    pub granted: usize,
    /// Masters that have refused.
    pub refused: usize,
    /// Masters whose answer will not come, or does not count.
    pub unknown: usize,
}

/// What a round has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// A quorum has granted.
    Won,
    /// So many have refused that no quorum is left.
    Lost,
    /// Nobody can say any more.
    Unknown,
}

impl Count {
    /// Of so many masters, none has answered yet.
    #[must_use]
    pub fn of(masters: usize) -> Self {
        Self { masters, granted: 0, refused: 0, unknown: 0 }
    }

    /// What it has come to, as soon as the answers to come can change nothing.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let quorum = quorum(self.masters);
        if self.granted >= quorum {
            return Some(Outcome::Won);
        }
        if self.refused > self.masters - quorum {
            return Some(Outcome::Lost);
        }
        (self.refused + self.unknown > self.masters - quorum).then_some(Outcome::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_is_given_once_and_kept_by_asking_again() {
        let mut seat = Seat::default();
        assert_eq!(
            (seat.vote('a', 5), seat.vote('a', 5), seat.vote('b', 9)),
            (Verdict::Granted, Verdict::Granted, Verdict::Held(5))
        );
        assert_eq!((seat.vote('a', 4), seat.vote('a', 6)), (Verdict::Low(5), Verdict::Granted));
        seat.expire();
        assert_eq!((seat.vote('a', 6), seat.vote('b', 7)), (Verdict::Low(6), Verdict::Granted));
    }

    #[test]
    fn what_has_left_is_not_granted_late() {
        let mut seat = Seat::default();
        assert!(!seat.leave('a', 5));
        assert_eq!(seat.vote('a', 5), Verdict::Low(5));
        assert_eq!(seat.vote('b', 6), Verdict::Granted);
        assert!(!seat.leave('a', 8), "it is another's");
        assert_eq!((seat.vote('b', 6), seat.last), (Verdict::Granted, 8));
        assert!(seat.leave('b', 6));
        assert_eq!(seat.vote('c', 8), Verdict::Low(8));
    }

    #[test]
    fn a_round_ends_as_soon_as_it_is_decided() {
        let count = |granted, refused, unknown| Count { granted, refused, unknown, ..Count::of(5) }.outcome();
        assert_eq!((count(2, 2, 0), count(3, 0, 0), count(3, 2, 0)), (None, Some(Outcome::Won), Some(Outcome::Won)));
        assert_eq!(
            (count(0, 3, 0), count(2, 2, 1), count(0, 0, 3)),
            (Some(Outcome::Lost), Some(Outcome::Unknown), Some(Outcome::Unknown))
        );
        assert_eq!(Count { granted: 1, ..Count::of(1) }.outcome(), Some(Outcome::Won));
        assert_eq!(Count { refused: 2, ..Count::of(4) }.outcome(), Some(Outcome::Lost));
    }
}
