//! How a client counts the votes of independent masters.
//!
//! `redlock/lua/vote.lua` and `redlock/lua/leave.lua` are the rule of one master. The models check
//! the consequences of both.

/// A master's reply to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum VoteOutcome {
    /// The claim has this vote.
    Granted,
    /// Another claim has it, for this token.
    Held(u64),
    /// It is free, or the claim's own, but the token is not above this one.
    Stale(u64),
}

/// Returns how many of `masters` are a majority.
#[must_use]
pub(crate) fn quorum(masters: usize) -> usize {
    masters / 2 + 1
}

/// The votes of one round, counted as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Tally {
    masters: usize,
    /// Votes for the claim.
    pub(crate) granted: usize,
    /// Masters that refused.
    pub(crate) refused: usize,
    /// Masters that do not reply, or whose vote does not count.
    pub(crate) unknown: usize,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TallyOutcome {
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
    pub(crate) fn of(masters: usize) -> Self {
        Self {
            masters,
            granted: 0,
            refused: 0,
            unknown: 0,
        }
    }

    /// Returns the outcome as soon as no further reply can change it.
    ///
    /// A round that cannot be won is not over before it is known whether a quorum replies: a
    /// minority does not show that another claim holds the lock.
    #[must_use]
    pub(crate) fn outcome(&self) -> Option<TallyOutcome> {
        let quorum = quorum(self.masters);
        let spare = self.masters - quorum;
        if self.granted >= quorum {
            return Some(TallyOutcome::Won);
        }
        if self.refused > spare {
            return Some(TallyOutcome::Lost);
        }

        let is_undecided = self.refused + self.unknown > spare;
        let is_known = self.granted + self.refused >= quorum || self.unknown > spare;
        (is_undecided && is_known).then_some(TallyOutcome::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(outcome(5, 0, 2, 2), None);
        assert_eq!(outcome(5, 0, 2, 3), Some(TallyOutcome::Unknown));
        assert_eq!(outcome(5, 1, 2, 2), Some(TallyOutcome::Unknown));
        assert_eq!(outcome(1, 1, 0, 0), Some(TallyOutcome::Won));
        assert_eq!(outcome(4, 0, 2, 0), Some(TallyOutcome::Lost));
    }
}
