//! What a client keeps of its claims between requests.

use std::time::Duration;

use super::server::claim;
use crate::queue::claims::{ClaimState, ClaimValidity, Claims, PollDue};
use crate::queue::messages::{AbsenceSeen, EnterMode, EnterReply, Push, Renewed, Sent};
use crate::queue::wait::may_poll;
use leasehold_core::Token;
use leasehold_core::internal::BootInstant;
use leasehold_core::store::Standing;

const LEASE: Duration = Duration::from_secs(30);
const QUEUED: Standing = Standing::Queued { ahead: 1 };

fn second(number: u64) -> BootInstant {
    BootInstant::from_nanos(number * 1_000_000_000)
}

fn held(token: u64) -> Standing {
    let token = Token::new(token).expect("not zero");
    Standing::Held { token }
}

fn validity() -> ClaimValidity {
    ClaimValidity::new(LEASE, None)
}

fn sent() -> Sent {
    Sent {
        at: second(1),
        liveness_epoch: 1,
        caller_epoch: 1,
    }
}

fn reply(standing: Standing, last_token: u64) -> EnterReply {
    EnterReply {
        standing,
        last_token,
        is_next: false,
        position: 1,
        next_expiry: None,
        absences: Vec::new(),
        refused: None,
    }
}

fn apply(state: &mut ClaimState, standing: Standing, last_token: u64) {
    state.apply_reply(&reply(standing, last_token), sent(), sent().at);
}

/// A poll does not begin the lease of a waiter again on the server.
///
/// Shows G-13.
#[test]
fn poll_extends_no_lease_of_a_waiter() {
    for (mode, extends) in [
        (EnterMode::Queue, true),
        (EnterMode::Refresh, true),
        (EnterMode::Poll, false),
    ] {
        let tracked = Claims::default().begin(&claim(0, LEASE), validity());
        tracked.apply_reply(mode, &reply(QUEUED, 0), sent());
        assert_eq!(tracked.validity().confirmed.is_some(), extends, "{mode:?}");
    }
}

/// The client that has marked an absence revokes the hold. If the absence is still marked at the next
/// renewal, that client may be absent too.
///
/// Shows G-02.
#[test]
fn absence_that_stays_marked_is_a_reason_to_poll() {
    for (seen, due) in [
        (&[AbsenceSeen::New][..], PollDue::Absence),
        (&[AbsenceSeen::Noted], PollDue::No),
        (&[AbsenceSeen::Noted, AbsenceSeen::Noted], PollDue::Absence),
        (
            &[AbsenceSeen::Noted, AbsenceSeen::None, AbsenceSeen::Noted],
            PollDue::No,
        ),
    ] {
        let mut state = ClaimState::default();
        apply(&mut state, QUEUED, 0);
        for absence in seen {
            let renewed = Renewed::Queued {
                position: 1,
                absence: *absence,
            };
            assert!(state.apply_renewal(renewed, second(2), 1));
        }
        assert_eq!(state.due, due, "{seen:?}");
    }
}

/// Of a client's waiters, the foremost one polls for all, unless another one has a reason.
#[test]
fn waiter_polls_if_it_is_next_or_foremost() {
    for (is_next, due, is_foremost, polls) in [
        (false, PollDue::No, false, false),
        (false, PollDue::Absence, false, false),
        (true, PollDue::No, false, true),
        (false, PollDue::Grant, false, true),
        (false, PollDue::No, true, true),
    ] {
        let mut state = ClaimState::default();
        (state.is_next, state.due) = (is_next, due);
        assert_eq!(may_poll(&state, is_foremost), polls, "{due:?}");
    }
}

/// A client that ends a claim leaves once more after the last request that may be executed late.
///
/// Shows G-10.
#[test]
fn requests_without_a_reply_are_remembered_until_they_expire() {
    let tracked = Claims::default().begin(&claim(0, LEASE), validity());
    assert_eq!(tracked.late_until(), None);
    for (until, latest) in [(5, 5), (9, 9), (7, 9)] {
        tracked.may_be_late(second(until));
        assert_eq!(tracked.late_until(), Some(second(latest)));
    }
    tracked.is_answered();
    assert_eq!(tracked.late_until(), None);

    for mode in [EnterMode::Queue, EnterMode::TryNow] {
        assert!(mode.adds_claim());
    }
    for mode in [EnterMode::Refresh, EnterMode::Keep, EnterMode::Poll] {
        assert!(!mode.adds_claim());
    }
}

#[test]
fn claim_is_held_from_its_grant_on() {
    let mut state = ClaimState::new(validity());
    assert!(!state.is_held());
    apply(&mut state, QUEUED, 3);
    assert!(!state.is_held());
    apply(&mut state, held(4), 4);
    assert!(state.is_held(), "its caller is about to receive it");

    // The caller knows of the loss later.
    state.pass_on(second(1));
    apply(&mut state, Standing::Gone, 4);
    assert!(state.is_held());
}

/// Replies and notifications take different ways.
///
/// Shows G-05.
#[test]
fn reply_undoes_a_grant_only_if_that_is_over() {
    for (token, is_over) in [(4, true), (5, true), (6, false)] {
        let mut state = ClaimState::new(validity());
        state.apply_push(&Push::Held(Token::new(token).expect("not zero")));
        apply(&mut state, QUEUED, 5);
        let standing = if is_over { QUEUED } else { held(token) };
        assert_eq!(state.standing, Some(standing), "{token}");
    }
}

/// Of the waiters of one client, one polls for all.
#[test]
fn first_waiter_of_a_client_is_the_foremost() {
    let claims = Claims::default();
    let [first, second] = [0, 1].map(|number| claims.listen(&claim(number, LEASE), validity()));
    assert!(claims.is_foremost(&first) && !claims.is_foremost(&second));

    first.apply_push(&Push::Held(Token::new(1).expect("not zero")));
    assert!(claims.is_foremost(&second), "a holder does not wait");
    let third = claims.listen(&claim(2, LEASE), validity());
    assert!(!claims.is_foremost(&third));
    claims.end(claim(1, LEASE).id).expect("it was there");
    assert!(claims.is_foremost(&third));
}
