//! The rule by which masters that know nothing of each other keep one lock.
//!
//! It is what `lua/redlock/vote.lua` and `leave.lua` do on a master, and how a client counts votes. It has no clock: that a lease
//! has ended is something that happens to a [`VoteRegister`]. A test compares it with the scripts, and a model checks what follows from it.

/// What one master remembers of one lock.
///
/// ```text
/// free ──vote: token > last──► held(token, claim)
///   ▲                               │
///   └──leave, lease ends────────────┘      last never falls
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VoteRegister<C> {
    /// No vote is given to a token up to this one.
    pub last_token: u64,
    /// Who has this master's vote, and for which token.
    pub held: Option<(u64, C)>,
}

/// A master's answer to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VoteOutcome {
    /// The claim has this vote.
    Granted,
    /// Another claim has it, for this token.
    Held(u64),
    /// It is free, or the claim's own, but the token is not above this one.
    Stale(u64),
}

impl<C> Default for VoteRegister<C> {
    fn default() -> Self {
        Self {
            last_token: 0,
            held: None,
        }
    }
}

impl<C: Copy + PartialEq> VoteRegister<C> {
    /// A claim asks for this vote with a token, or asks again to keep it.
    pub fn vote(&mut self, claim: C, token: u64) -> VoteOutcome {
        match self.held {
            Some((held, by)) if by != claim => return VoteOutcome::Held(held),
            Some((held, _)) if held == token => return VoteOutcome::Granted,
            _ => {}
        }
        if token <= self.last_token {
            return VoteOutcome::Stale(self.last_token);
        }
        *self = Self {
            last_token: token,
            held: Some((token, claim)),
        };
        VoteOutcome::Granted
    }

    /// A claim gives its vote back, and wants none that it has asked for with a token up to `highest`: a request that comes later
    /// than this finds `last_token` raised. Says whether it had the vote.
    pub fn leave(&mut self, claim: C, highest: u64) -> bool {
        let had = self
            .held
            .is_some_and(|(token, by)| by == claim && token <= highest);
        if had {
            self.held = None;
        }
        self.last_token = self.last_token.max(highest);
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
pub struct Tally {
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
pub enum TallyOutcome {
    /// A quorum has granted.
    Won,
    /// So many have refused that no quorum is left.
    Lost,
    /// Nobody can say any more.
    Unknown,
}

impl Tally {
    /// Of so many masters, none has answered yet.
    #[must_use]
    pub fn of(masters: usize) -> Self {
        Self {
            masters,
            granted: 0,
            refused: 0,
            unknown: 0,
        }
    }

    /// What it has come to, as soon as the answers to come can change nothing.
    #[must_use]
    pub fn outcome(&self) -> Option<TallyOutcome> {
        let quorum = quorum(self.masters);
        if self.granted >= quorum {
            return Some(TallyOutcome::Won);
        }
        if self.refused > self.masters - quorum {
            return Some(TallyOutcome::Lost);
        }
        (self.refused + self.unknown > self.masters - quorum).then_some(TallyOutcome::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vote_is_granted_once_and_renewed_by_repetition() {
        let mut register = VoteRegister::default();
        assert_eq!(
            (
                register.vote('a', 5),
                register.vote('a', 5),
                register.vote('b', 9)
            ),
            (
                VoteOutcome::Granted,
                VoteOutcome::Granted,
                VoteOutcome::Held(5)
            )
        );
        assert_eq!(
            (register.vote('a', 4), register.vote('a', 6)),
            (VoteOutcome::Stale(5), VoteOutcome::Granted)
        );
        register.expire();
        assert_eq!(
            (register.vote('a', 6), register.vote('b', 7)),
            (VoteOutcome::Stale(6), VoteOutcome::Granted)
        );
    }

    #[test]
    fn released_claim_is_not_granted_late() {
        let mut register = VoteRegister::default();
        assert!(!register.leave('a', 5));
        assert_eq!(register.vote('a', 5), VoteOutcome::Stale(5));
        assert_eq!(register.vote('b', 6), VoteOutcome::Granted);
        assert!(!register.leave('a', 8), "it is another's");
        assert_eq!(
            (register.vote('b', 6), register.last_token),
            (VoteOutcome::Granted, 8)
        );
        assert!(register.leave('b', 6));
        assert_eq!(register.vote('c', 8), VoteOutcome::Stale(8));
    }

    #[test]
    fn round_ends_once_decided() {
        let tally = |granted, refused, unknown| {
            Tally {
                granted,
                refused,
                unknown,
                ..Tally::of(5)
            }
            .outcome()
        };
        assert_eq!(
            (tally(2, 2, 0), tally(3, 0, 0), tally(3, 2, 0)),
            (None, Some(TallyOutcome::Won), Some(TallyOutcome::Won))
        );
        assert_eq!(
            (tally(0, 3, 0), tally(2, 2, 1), tally(0, 0, 3)),
            (
                Some(TallyOutcome::Lost),
                Some(TallyOutcome::Unknown),
                Some(TallyOutcome::Unknown)
            )
        );
        assert_eq!(
            Tally {
                granted: 1,
                ..Tally::of(1)
            }
            .outcome(),
            Some(TallyOutcome::Won)
        );
        assert_eq!(
            Tally {
                refused: 2,
                ..Tally::of(4)
            }
            .outcome(),
            Some(TallyOutcome::Lost)
        );
    }
}
