//! Until when a claim is valid, and when its waiter polls.

use std::time::Duration;

use super::server::{ModelServer, claim, liveness, request};
use crate::queue::claims::{ClaimState, ClaimValidity};
use crate::queue::messages::{AbsenceSeen, EnterMode, Push, Renewed, Sent};
use crate::queue::wait::next_poll;
use leasehold_core::internal::BootInstant;

const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);

fn second(number: u64) -> BootInstant {
    BootInstant::from_nanos(number * 1_000_000_000)
}

/// Shows G-01.
#[test]
fn claim_without_a_usable_renewal_ends_with_the_one_before() {
    let mut state = ClaimState::new(ClaimValidity::new(LEASE, Some(GRACE)));
    state.pass_on(second(1));
    assert!(state.apply_renewal(Renewed::Held, second(1), 1));
    assert_eq!(state.validity.renew(second(1), true), GRACE);

    assert!(state.apply_renewal(Renewed::Unusable, second(3), 1));
    let left = state.validity.remaining(second(3));
    assert_eq!(left + Duration::from_secs(2), GRACE);
}

/// A hold was broken before the client had the reply that granted it.
///
/// Shows G-03.
#[test]
fn grant_behind_the_notification_of_its_end_is_not_trusted_without_a_script() {
    let mut server = ModelServer::start();
    let link = liveness(0, 1, Some(GRACE));
    let granted = server.enter(&request(&claim(0, LEASE), EnterMode::Queue, link));
    let sent = Sent {
        at: second(1),
        liveness_epoch: 1,
        caller_epoch: 1,
    };
    for (push, is_trusted) in [(Push::Next, true), (Push::Gone, false)] {
        let mut state = ClaimState::new(ClaimValidity::new(LEASE, Some(GRACE)));
        state.apply_push(&push);
        state.apply_reply(&granted, sent, second(1));
        assert_eq!(state.is_covered_by_ping(1, second(1)), is_trusted);

        assert!(state.apply_renewal(Renewed::Held, second(1), 1));
        assert!(state.is_covered_by_ping(1, second(1)));
    }
}

/// A long way behind in the queue, only the end of an absence is a reason to poll.
///
/// Shows G-13.
#[test]
fn waiter_polls_when_an_absence_has_lasted_for_the_grace() {
    let mut state = ClaimState::new(ClaimValidity::new(LEASE, None));
    let renewed = Renewed::Queued {
        position: 1_000,
        absence: AbsenceSeen::None,
    };
    assert!(state.apply_renewal(renewed, BootInstant::now(), 1));

    assert_eq!(next_poll(&state, true, None, LEASE), Duration::MAX);
    let absence_end = BootInstant::now().saturating_add(GRACE);
    assert!(next_poll(&state, true, Some(absence_end), LEASE) <= GRACE);
}
