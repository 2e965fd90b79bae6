//! How a client counts the votes of independent masters.
//!
//! `redlock/lua/vote.lua` and `redlock/lua/leave.lua` are the rule of one master. The models check
//! the consequences of both.

use std::collections::BTreeSet;
use std::time::Duration;

use super::record::Holder;
use crate::client::NO_REPLY;
use leasehold_core::{Error, Result};

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

/// Counts the masters that had a claim which leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaveCount {
    masters: usize,
    holding: usize,
    others: usize,
}

impl LeaveCount {
    pub(super) fn of(masters: usize) -> Self {
        Self {
            masters,
            holding: 0,
            others: 0,
        }
    }

    pub(super) fn count(&mut self, was_holding: bool) {
        if was_holding {
            self.holding += 1;
        } else {
            self.others += 1;
        }
    }

    /// Whether no further reply can tell more.
    pub(super) fn is_known(self) -> bool {
        self.holding >= quorum(self.masters) || !self.may_have_held()
    }

    /// Whether a quorum had the claim, or may have had it.
    pub(super) fn may_have_held(self) -> bool {
        self.others + quorum(self.masters) <= self.masters
    }
}

/// What the reply of a master means for the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MasterVote {
    Granted,
    /// Granted by a master that may have forgotten another hold, for this reason.
    Quarantined(String),
    /// Granted again after the master had lost its vote. It counts once a renewal has succeeded
    /// without it; until then another claim may have held the lock.
    Restored,
    /// Another claim has the vote; the duration is zero if its lease has no end.
    HeldByOther {
        token: u64,
        remaining: Duration,
        /// `None` if this client waits, and if the holder is of another library.
        holder: Option<Box<Holder>>,
    },
    /// The token is not above the last one of this master.
    Stale,
}

/// What the masters have replied to a proposal.
#[derive(Debug)]
pub(super) struct RoundResult {
    pub(super) token: u64,
    pub(super) tally: Tally,
    pub(super) outcome: TallyOutcome,
    /// The tokens of other holders, one for each master that refused because of one.
    holder_tokens: Vec<u64>,
    /// The holders that these masters have named.
    holders: Vec<Holder>,
    /// The masters that refused. The claim has no vote there to take back.
    pub(super) refused_by: BTreeSet<usize>,
    /// The longest remaining lease of another holder, if it has an end.
    pub(super) remaining: Option<Duration>,
    count: QuorumCount,
}

impl RoundResult {
    pub(super) fn begin(masters: usize, token: u64) -> Self {
        Self {
            token,
            tally: Tally::of(masters),
            outcome: TallyOutcome::Unknown,
            holder_tokens: Vec::new(),
            holders: Vec::new(),
            refused_by: BTreeSet::new(),
            remaining: None,
            count: QuorumCount::of(masters),
        }
    }

    /// Whether another claim has the lock, or may have it.
    ///
    /// All votes for a hold have the same token. So the votes of the refusing masters are grouped
    /// by token, and the largest group decides. The masters that have not replied may all have
    /// voted for the same claim, and are added to it. If even so no group reaches a quorum, the
    /// votes are split: no claim holds the lock, and none can by these votes, so the round is worth
    /// repeating after the losers have taken their votes back.
    pub(super) fn is_held(&self) -> bool {
        let tokens = &self.holder_tokens;
        let votes_of = |token: &u64| tokens.iter().filter(|other| *other == token).count();
        let most = tokens.iter().map(votes_of).max();
        let open = self.tally.masters - self.tally.granted - self.tally.refused;
        most.is_some_and(|most| most + open >= quorum(self.tally.masters))
    }

    /// Returns the holder that a quorum of the masters has named.
    pub(super) fn holder(&self) -> Option<&Holder> {
        let has_quorum = |holder: &&Holder| {
            let same = |other: &&Holder| other.id == holder.id;
            self.holders.iter().filter(same).count() >= quorum(self.tally.masters)
        };
        self.holders.iter().find(has_quorum)
    }

    /// Whether a quorum has replied.
    pub(super) fn has_quorum(&self) -> bool {
        !no_quorum_without(self.tally.unknown, self.tally.masters)
    }

    /// Returns the error of a round in which no quorum has decided.
    #[cold]
    pub(super) fn no_quorum(&self) -> Error {
        let replied = self.tally.masters - self.tally.unknown;
        // A minority never decides. The other masters may reply to the next round.
        let refusal = self.count.refusal().cloned();
        refusal.unwrap_or_else(|| self.count.too_few(replied))
    }

    /// Returns the error of a renewal in which no quorum has decided. `url` is that of the master
    /// at a position.
    #[cold]
    pub(super) fn not_renewed(mut self, url: impl Fn(usize) -> String) -> Error {
        for at in &self.refused_by {
            let text = "does not have the vote of this hold";
            self.count.note(Some(url(*at)), text.to_owned());
        }
        let refusal = self.count.refusal().cloned();
        refusal.unwrap_or_else(|| self.count.too_few(self.tally.granted))
    }

    /// Whether the masters refused only because of the token.
    pub(super) fn is_stale(&self) -> bool {
        self.holder_tokens.is_empty() && self.tally.refused > 0
    }

    /// Counts the vote of the master at a position.
    pub(super) fn count(&mut self, at: usize, vote: MasterVote) {
        match vote {
            MasterVote::Granted => self.tally.granted += 1,
            MasterVote::Quarantined(reason) => {
                self.tally.unknown += 1;
                self.count.note(None, reason);
            }
            // The vote is taken back if the claim loses the round.
            MasterVote::Restored => self.tally.refused += 1,
            MasterVote::HeldByOther {
                token,
                remaining,
                holder,
            } => {
                self.refuse(at);
                self.holder_tokens.push(token);
                self.holders.extend(holder.map(|holder| *holder));
                let remaining = Some(remaining).filter(|remaining| !remaining.is_zero());
                self.remaining = self.remaining.max(remaining);
            }
            MasterVote::Stale => self.refuse(at),
        }
    }

    fn refuse(&mut self, at: usize) {
        self.tally.refused += 1;
        self.refused_by.insert(at);
    }

    pub(super) fn fail(&mut self, url: &str, error: Error) {
        self.tally.unknown += 1;
        self.count.note_failure(url, error);
    }

    /// Ends the count without the replies that are missing.
    pub(super) fn time_out(&mut self) {
        let masters = self.tally.masters;
        self.tally.unknown = masters - self.tally.granted - self.tally.refused;
        if masters > 1 {
            let text = "the other masters did not reply in time";
            self.count.note(None, text.to_owned());
        }
    }
}

/// Counts successes and failures until a quorum of masters has succeeded, or none can.
#[derive(Debug)]
pub(super) struct QuorumCount {
    masters: usize,
    succeeded: usize,
    /// Failures that a retry cannot fix.
    refusals: Vec<Error>,
    errors: Vec<MissingVote>,
}

/// Why the vote of a master is missing.
#[derive(Debug)]
struct MissingVote {
    /// `None` if the text names the masters.
    url: Option<String>,
    text: String,
}

impl QuorumCount {
    pub(super) fn of(masters: usize) -> Self {
        Self {
            masters,
            succeeded: 0,
            refusals: Vec::new(),
            errors: Vec::new(),
        }
    }

    pub(super) fn succeed(&mut self) {
        self.succeeded += 1;
    }

    /// Records a failure.
    ///
    /// # Errors
    /// The failure itself, if so many masters refuse that too few remain for a quorum.
    pub(super) fn fail(&mut self, url: &str, error: Error) -> Result<()> {
        self.note_failure(url, error);
        if self.refusal().is_none() {
            return Ok(());
        }
        Err(self.refusals.pop().expect("there is a first one"))
    }

    /// Records a failure of any kind.
    pub(super) fn note_failure(&mut self, url: &str, error: Error) {
        self.note(Some(url.to_owned()), error.to_string());
        if !error.is_unavailable() {
            self.refusals.push(error);
        }
    }

    fn note(&mut self, url: Option<String>, text: String) {
        self.errors.push(MissingVote { url, text });
    }

    /// Returns the first refusal, if so many masters refuse that too few remain for a quorum.
    fn refusal(&self) -> Option<&Error> {
        let is_decisive = no_quorum_without(self.refusals.len(), self.masters);
        self.refusals.first().filter(|_| is_decisive)
    }

    /// Starts again with other successes, and keeps the errors.
    pub(super) fn restart(&mut self, succeeded: usize) {
        self.succeeded = succeeded;
    }

    pub(super) fn is_reached(&self) -> bool {
        self.succeeded >= quorum(self.masters)
    }

    /// Whether the masters that have not failed are too few for a quorum.
    pub(super) fn is_impossible(&self) -> bool {
        no_quorum_without(self.errors.len(), self.masters)
    }

    /// Returns an error if the masters that have succeeded are too few.
    pub(super) fn result(&self) -> Result<()> {
        if self.is_reached() {
            return Ok(());
        }
        Err(self.too_few(self.succeeded))
    }

    /// Returns the error that only `succeeded` of the masters have replied.
    fn too_few(&self, succeeded: usize) -> Error {
        let reasons = reasons(&self.errors);
        if self.masters == 1 {
            return Error::unavailable(format!("{NO_REPLY}{reasons}"));
        }

        let quorum = quorum(self.masters);
        let masters = self.masters;
        Error::unavailable(format!(
            "only {succeeded} of {masters} masters vote, and a majority is {quorum}{reasons}"
        ))
        .help(
            "start the other masters, restore the network to them, or wait until their votes count",
        )
    }
}

/// Whether too few masters for a quorum remain if this number of them is missing.
fn no_quorum_without(missing: usize, masters: usize) -> bool {
    missing > masters - quorum(masters)
}

/// Returns the failures in parentheses. A failure that several masters have in common is named
/// once, after their URLs.
fn reasons(errors: &[MissingVote]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for error in errors {
        match groups.iter_mut().find(|(text, _)| *text == error.text) {
            Some((_, urls)) => urls.extend(error.url.as_deref()),
            None => groups.push((&error.text, Vec::from_iter(error.url.as_deref()))),
        }
    }
    if groups.is_empty() {
        return String::new();
    }

    let groups: Vec<String> = groups
        .iter()
        .map(|(text, urls)| match urls.as_slice() {
            [] => (*text).to_owned(),
            urls => format!("{}: {text}", urls.join(", ")),
        })
        .collect();
    format!(" ({})", groups.join("; "))
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

    #[test]
    fn renewal_without_quorum_names_the_masters_that_refuse() {
        let mut renewal = RoundResult::begin(3, 7);
        renewal.count(0, MasterVote::Granted);
        renewal.count(1, MasterVote::Stale);
        renewal.fail(
            "redis://c",
            Error::unavailable("the server cannot be reached"),
        );

        let error = renewal.not_renewed(|at| format!("redis://{}", ["a", "b", "c"][at]));
        let text = error.to_string();
        let causes = "only 1 of 3 masters vote, and a majority is 2 \
                      (redis://c: the server cannot be reached; \
                      redis://b: does not have the vote of this hold)";
        assert!(text.contains(causes), "{text}");
    }

    #[test]
    fn cause_of_several_masters_is_named_once() {
        let down = || Error::unavailable("the server cannot be reached").help("start it");
        let mut count = QuorumCount::of(3);
        count.note_failure("redis://a", down());
        count.note_failure("redis://b", Error::unavailable("the connection broke"));
        count.note_failure("redis://c", down());

        let text = count.result().expect_err("none has succeeded").to_string();
        let causes = "(redis://a, redis://c: the server cannot be reached; start it; \
                      redis://b: the connection broke)";
        assert!(text.contains(causes), "{text}");
    }

    fn held_by(token: u64, seconds: u64) -> MasterVote {
        MasterVote::HeldByOther {
            token,
            remaining: Duration::from_secs(seconds),
            holder: None,
        }
    }

    /// A split round is repeated, and a claim that may hold the lock is waited for.
    #[test]
    fn split_votes_are_told_from_a_hold() {
        let is_held = |tokens: &[u64]| {
            let mut round = RoundResult::begin(5, 1);
            for (at, token) in tokens.iter().enumerate() {
                round.count(at, held_by(*token, 1));
            }
            round.is_held()
        };
        assert!(is_held(&[7, 7, 7]));
        assert!(is_held(&[7, 7, 8, 9]), "the fifth may have voted for it");
        assert!(
            is_held(&[7, 8]),
            "the others may have voted for one of them"
        );
        assert!(!is_held(&[7, 7, 8, 8, 9]));
        assert!(!is_held(&[7, 8, 9, 10]));
        assert!(!is_held(&[]));
    }

    /// Only a token that is too low is raised.
    #[test]
    fn round_is_stale_if_no_other_claim_has_refused_it() {
        let is_stale = |votes: Vec<MasterVote>| {
            let mut round = RoundResult::begin(3, 1);
            for (at, vote) in votes.into_iter().enumerate() {
                round.count(at, vote);
            }
            round.is_stale()
        };
        assert!(is_stale(vec![MasterVote::Stale]));
        assert!(is_stale(vec![MasterVote::Stale, MasterVote::Stale]));
        assert!(!is_stale(vec![MasterVote::Stale, held_by(7, 1)]));
        assert!(!is_stale(vec![MasterVote::Granted]));
        assert!(!is_stale(Vec::new()));
    }

    #[test]
    fn votes_that_do_not_count_are_unknown_or_refused() {
        let mut round = RoundResult::begin(5, 1);
        let reason = "started recently";
        round.count(0, MasterVote::Quarantined(reason.to_owned()));
        round.count(1, MasterVote::Restored);
        round.count(2, held_by(7, 0));
        round.count(3, held_by(7, 5));
        round.fail("redis://e", Error::unavailable("it is down"));
        let Tally {
            granted,
            refused,
            unknown,
            ..
        } = round.tally;
        assert_eq!((granted, refused, unknown), (0, 3, 2));
        // The vote that was restored is there to be taken back.
        assert_eq!(round.refused_by, BTreeSet::from([2, 3]));
        assert_eq!(round.remaining, Some(Duration::from_secs(5)));

        let text = round.no_quorum().to_string();
        let shown = "only 3 of 5 masters vote, and a majority is 3 \
                     (started recently; redis://e: it is down)";
        assert!(text.contains(shown), "{text}");
    }

    #[test]
    fn missing_replies_are_unknown() {
        let mut round = RoundResult::begin(5, 1);
        round.count(0, MasterVote::Granted);
        round.count(1, MasterVote::Stale);
        round.time_out();
        assert_eq!(round.tally.unknown, 3);
        let text = round.no_quorum().to_string();
        assert!(text.contains("only 2 of 5 masters vote"), "{text}");
        assert!(text.contains("the other masters did not reply"), "{text}");

        let mut single = RoundResult::begin(1, 1);
        single.time_out();
        let text = single.no_quorum().to_string();
        assert!(!text.contains("other masters"), "{text}");
    }

    #[test]
    fn second_chance_counts_the_masters_that_it_reaches() {
        let mut count = QuorumCount::of(3);
        count.note_failure("redis://a", Error::unavailable("it was busy"));
        count.result().expect_err("none has succeeded");
        count.restart(2);
        count.result().expect("a majority");
        count.restart(1);
        let text = count.result().expect_err("a minority").to_string();
        assert!(text.contains("it was busy"), "{text}");
    }
}
