//! What a client keeps of the rounds of a claim.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::{Claim, Share, claimant_here};

use crate::local_claims::LocalClaims;
use crate::votes::format::Keys;
use crate::votes::quorum::{LeaveCount, RoundResult, TallyOutcome};
use crate::votes::tracked_claim::{ClaimVotes, TrackedClaim};
use crate::votes::vote::LeaveReply;
use crate::votes::{TOKEN_MAX, TOKEN_STEP, VoteMode, decided, next_token, split_pause};

fn tracked() -> Arc<TrackedClaim> {
    let name = Name::parse("a").expect("a valid name");
    let info = claimant_here("").expect("no label");
    let claim = Claim::new(name, Share::MUTEX, Arc::new(info));
    let keys = Keys {
        lock: String::new(),
        waiters: String::new(),
        counter: String::new(),
    };
    LocalClaims::default().begin(&claim, ClaimVotes::new(keys, 0, 0))
}

/// The clocks of the masters may have been set back.
///
/// Shows G-04.
#[test]
fn token_is_above_all_that_were_seen() {
    const DIGITS: u64 = 123;
    const CLIENT: u64 = 65_000 + DIGITS;
    let next = |micros, seen| next_token(micros, seen, CLIENT).expect("there is one");
    assert_eq!(next(5, 0), 5_123);
    assert_eq!(next(5, 5_122), 5_123);
    assert_eq!(next(5, 5_123), 6_123);
    assert_eq!(next(5, 70_999), 71_123);
    assert_eq!(next(0, 0), DIGITS);

    let last = TOKEN_MAX - 2 * TOKEN_STEP;
    assert!(next(5, last) > last && next(5, last) <= TOKEN_MAX);
    for seen in [last + 1, TOKEN_MAX, u64::MAX] {
        let error = next_token(5, seen, CLIENT).expect_err("none is larger");
        assert!(error.is_damaged(), "{seen}: {error}");
    }
}

/// Shows G-04.
#[test]
fn claim_remembers_its_highest_tokens() {
    let tracked = tracked();
    for (token, highest) in [(5, 5), (9, 9), (7, 9)] {
        tracked.request_sent(token);
        assert_eq!(tracked.highest_token(), highest);
    }
    for (token, highest) in [(3, 3), (8, 8), (4, 8)] {
        tracked.saw_token(token);
        assert_eq!(tracked.highest_reply_token(), highest);
    }
}

/// Shows G-01.
#[test]
fn only_votes_for_the_last_token_make_a_hold_safe() {
    let tracked = tracked();
    let at = |seconds| BootInstant::FAR_FUTURE.before(Duration::from_secs(seconds));
    tracked.request_sent(5);
    tracked.granted_by(0, 5, at(3));
    tracked.granted_by(2, 5, at(1));
    assert_eq!(tracked.safe_until(2), Some(at(3)));
    assert_eq!(tracked.safe_until(3), None);
    tracked.granted_by(1, 4, at(2));
    assert_eq!(tracked.safe_until(3), None, "a late vote for another token");

    tracked.request_sent(5);
    assert_eq!(tracked.safe_until(2), Some(at(3)), "a renewal keeps them");
    tracked.request_sent(6);
    assert_eq!(tracked.safe_until(1), None);
}

/// Shows G-01.
#[test]
fn restored_vote_counts_after_a_renewal_without_it() {
    let tracked = tracked();
    assert!(tracked.renewal_counts(0, 0), "the first grant");
    assert_eq!(tracked.begin_renewal(), 1);
    assert_eq!(tracked.begin_renewal(), 2);
    assert!(!tracked.renewal_counts(0, 1) && !tracked.renewal_counts(0, 2));
    tracked.won_renewal(1);
    assert!(tracked.renewal_counts(0, 1) && !tracked.renewal_counts(0, 2));

    // Another client has broken the hold on one master, which does not restore its vote.
    assert!(!tracked.is_broken_on(0));
    tracked.broken_by_push(0);
    assert!(tracked.is_broken_on(0) && !tracked.is_broken_on(1));
    assert!(!tracked.renewal_counts(0, 1) && tracked.renewal_counts(0, 0));
    assert!(tracked.renewal_counts(1, 1));
}

/// A lease counts from a request that was decided.
///
/// Shows G-01.
#[test]
fn request_is_open_until_its_round_decides() {
    for (mode, outcome, is_open) in [
        (VoteMode::Acquire, TallyOutcome::Lost, false),
        (VoteMode::Renew, TallyOutcome::Lost, false),
        (VoteMode::Renew, TallyOutcome::Won, false),
        // The hold ends it.
        (VoteMode::AcquireOrNotify, TallyOutcome::Won, true),
        (VoteMode::Acquire, TallyOutcome::Unknown, true),
        (VoteMode::Renew, TallyOutcome::Unknown, true),
    ] {
        let tracked = tracked();
        tracked.request_sent(5);
        let renewal = tracked.begin_renewal();
        let mut result = RoundResult::begin(3, 5);
        result.outcome = outcome;
        decided(&tracked, mode, renewal, &result);

        let unanswered = tracked.state.lock().unanswered.len();
        assert_eq!(unanswered, usize::from(is_open), "{mode:?} {outcome:?}");
        let is_won = outcome == TallyOutcome::Won;
        assert_eq!(tracked.renewal_counts(0, renewal), is_won);
    }
}

/// Rivals that pause for the same time collide again.
#[test]
fn pauses_after_split_votes_grow_apart() {
    for (splits, longest) in [(1, 6_000), (6, 26_000)] {
        let pauses: Vec<_> = (0..1_000).map(|_| split_pause(splits)).collect();
        let longest = Duration::from_micros(longest);
        assert!(pauses.iter().all(|pause| *pause < longest));
        assert!(pauses.iter().any(|pause| *pause > longest * 3 / 4));
    }
}

/// A claim that leaves five masters had three of them, or may have had them, until three others have
/// replied that they did not have it.
///
/// Shows G-10.
#[test]
fn leaving_claim_may_have_held_until_a_quorum_denies_it() {
    for (replies, is_known, may_have_held) in [
        (&[][..], false, true),
        (&[true, true], false, true),
        (&[true, true, true], true, true),
        (&[true, true, false, false], false, true),
        (&[true, true, false, false, true], true, true),
        (&[true, true, false, false, false], true, false),
        (&[false, false, false], true, false),
    ] {
        let mut count = LeaveCount::of(5);
        for was_holding in replies {
            count.count(*was_holding);
        }
        let found = (count.is_known(), count.may_have_held());
        assert_eq!(found, (is_known, may_have_held), "{replies:?}");
    }
}

#[test]
fn reply_to_a_leave_names_its_claim() {
    for (reply, expected) in [
        ("0claim", Some(LeaveReply::NotHeld)),
        ("1claim", Some(LeaveReply::Freed)),
        ("2claim", Some(LeaveReply::HandedOver)),
        ("3claim", None),
        ("claim", None),
        ("0other", None),
        ("1other", None),
        ("2other", None),
    ] {
        assert_eq!(LeaveReply::parse(reply, "claim"), expected, "{reply}");
    }
}
