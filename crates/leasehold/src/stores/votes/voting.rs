//! The rule by which independent masters keep one lock.
//!
//! The rule is what `redlock/lua/vote.lua` and `redlock/lua/leave.lua` do on a master, and how a
//! client counts votes. It has no clock: the end of a lease is an event of a [`VoteRegister`]. A
//! test compares the rule with the scripts, and a model checks its consequences.

/// What one master remembers of one lock.
///
/// ```text
/// free ──vote: token > last──► held(token, claim)
///   ▲                               │
///   └──leave, lease ends────────────┘      last never falls
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VoteRegister<C> {
    /// The master gives no vote to a token up to this one.
    pub last_token: u64,
    /// The token and the claim that have this master's vote.
    pub held: Option<(u64, C)>,
}

/// A master's reply to a proposal.
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
    /// Requests this vote for a claim and a token, or renews it.
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

    /// Takes this vote back from a claim. Returns whether the claim had it.
    ///
    /// It raises `last_token` to `highest`, so a late vote request of the claim with a token up to
    /// `highest` is refused.
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

    /// Ends the lease of the claim that has the vote.
    pub fn expire(&mut self) {
        self.held = None;
    }
}

/// Returns how many of `masters` are a majority.
#[must_use]
pub fn quorum(masters: usize) -> usize {
    masters / 2 + 1
}

/// The votes of one round, counted as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tally {
    masters: usize,
    /// Votes for the claim.
    pub granted: usize,
    /// Masters that refused.
    pub refused: usize,
    /// Masters that do not reply, or whose vote does not count.
    pub unknown: usize,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TallyOutcome {
    /// A quorum has granted.
    Won,
    /// So many masters refused that no quorum is left.
    Lost,
    /// The masters that replied are too few to decide.
    Unknown,
}

impl Tally {
    /// Starts the count of a round in which no master has replied yet.
    #[must_use]
    pub fn of(masters: usize) -> Self {
        Self {
            masters,
            granted: 0,
            refused: 0,
            unknown: 0,
        }
    }

    /// Returns the outcome as soon as no further reply can change it.
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
        assert_eq!(register.vote('a', 5), VoteOutcome::Granted);
        assert_eq!(register.vote('a', 5), VoteOutcome::Granted);
        assert_eq!(register.vote('b', 9), VoteOutcome::Held(5));
        assert_eq!(register.vote('a', 4), VoteOutcome::Stale(5));
        assert_eq!(register.vote('a', 6), VoteOutcome::Granted);

        register.expire();
        assert_eq!(register.vote('a', 6), VoteOutcome::Stale(6));
        assert_eq!(register.vote('b', 7), VoteOutcome::Granted);
    }

    #[test]
    fn released_claim_is_not_granted_late() {
        let mut register = VoteRegister::default();
        assert!(!register.leave('a', 5));
        assert_eq!(register.vote('a', 5), VoteOutcome::Stale(5));
        assert_eq!(register.vote('b', 6), VoteOutcome::Granted);
        assert!(!register.leave('a', 8), "another claim has it");
        assert_eq!(register.vote('b', 6), VoteOutcome::Granted);
        assert_eq!(register.last_token, 8);
        assert!(register.leave('b', 6));
        assert_eq!(register.vote('c', 8), VoteOutcome::Stale(8));
    }

    #[test]
    fn round_ends_once_decided() {
        let outcome = |masters, granted, refused, unknown| {
            let mut tally = Tally::of(masters);
            tally.granted = granted;
            tally.refused = refused;
            tally.unknown = unknown;
            tally.outcome()
        };
        assert_eq!(outcome(5, 2, 2, 0), None);
        assert_eq!(outcome(5, 3, 0, 0), Some(TallyOutcome::Won));
        assert_eq!(outcome(5, 3, 2, 0), Some(TallyOutcome::Won));
        assert_eq!(outcome(5, 0, 3, 0), Some(TallyOutcome::Lost));
        assert_eq!(outcome(5, 2, 2, 1), Some(TallyOutcome::Unknown));
        assert_eq!(outcome(5, 0, 0, 3), Some(TallyOutcome::Unknown));
        assert_eq!(outcome(1, 1, 0, 0), Some(TallyOutcome::Won));
        assert_eq!(outcome(4, 0, 2, 0), Some(TallyOutcome::Lost));
    }
}
