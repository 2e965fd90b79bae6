//! Until when a claim is valid, and when its waiter polls.

use std::time::Duration;

use crate::queue::claims::{ClaimState, ClaimValidity};
use crate::queue::messages::{AbsenceSeen, Renewed};
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
