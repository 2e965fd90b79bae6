//! What a client keeps of its claims between requests.

use std::time::Duration;

use super::server::claim;
use crate::queue::claims::{ClaimState, ClaimValidity, Claims};
use crate::queue::messages::{EnterMode, EnterReply, Push, Sent};
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

fn apply(state: &mut ClaimState, standing: Standing, last_token: u64) {
    let reply = EnterReply {
        standing,
        last_token,
        is_next: false,
        position: 1,
        next_expiry: None,
        absences: Vec::new(),
        refused: None,
    };
    let sent = Sent {
        at: second(1),
        liveness_epoch: 1,
        caller_epoch: 1,
    };
    state.apply_reply(&reply, sent, second(1));
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
