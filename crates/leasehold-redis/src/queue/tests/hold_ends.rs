//! What the server knows of a hold that its client did not release.

use std::time::Duration;

use super::server::{ModelServer, absence, claim, liveness, request};
use crate::queue::messages::{Absence, EnterMode};
use leasehold_core::Token;
use leasehold_core::store::Share;

const HOLDER: u8 = 1;
const NEXT: u8 = 2;
const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(10);

/// A server whose lock one client holds, whose connection is missing, while another one waits.
struct Held {
    server: ModelServer,
    token: Token,
    waits: bool,
}

impl Held {
    fn new(waits: bool) -> Self {
        let mut server = ModelServer::start();
        server.subscribe(0, "alive", NEXT);
        let holder = claim(HOLDER, LEASE);
        let link = liveness(HOLDER, 1, Some(GRACE));
        let held = server.enter(&request(&holder, EnterMode::Queue, link));
        let token = held.standing.token().expect("it is free");
        let mut held = Self {
            server,
            token,
            waits,
        };
        if waits {
            held.enter_next(EnterMode::Queue, &[]);
        }
        held
    }

    fn enter_next(&mut self, mode: EnterMode, expired: &[Absence]) -> Option<Token> {
        let next = claim(NEXT, LEASE * 10);
        let mut request = request(&next, mode, liveness(NEXT, 1, Some(GRACE)));
        request.expired = expired.to_vec();
        self.server.enter(&request).standing.token()
    }

    /// Checks why the hold has ended, also for the client that holds the lock now.
    fn assert_reason(mut self, expected: &str) {
        let next = self.server.held_token();
        assert_eq!(next.is_some(), self.waits);
        let lock_state = self.server.lock_state();
        let ended = lock_state.ended.clone().expect("it is known");
        assert_eq!(ended.token, self.token);
        assert_eq!(ended.reason.to_string(), expected);
        if let Some(next) = next {
            assert_eq!(lock_state.ended_before(next), Some(&ended));
        }

        // The grants behind the next one are not those that followed.
        let holder = if self.waits { NEXT } else { HOLDER };
        assert_eq!(self.server.leave(holder), self.waits);
        let later = self.enter_next(EnterMode::Queue, &[]);
        let later = later.expect("it is free");
        let lock_state = self.server.lock_state();
        assert_eq!(lock_state.ended_before(later), None);
    }
}

#[test]
fn end_of_a_process_names_the_client_that_has_seen_it() {
    for waits in [false, true] {
        let mut held = Held::new(waits);
        let seen = held.server.held().expect("it is held");
        held.server.subscribe(1, "alive", HOLDER);
        assert!(!held.server.revoke_ended(&seen), "it is connected");
        held.server.disconnect(1);
        assert!(held.server.revoke_ended(&seen));
        held.assert_reason("its process ended (seen by program[1]@host (label))");
    }
}

/// The claim has entered again since its hold was read, and holds anew or waits.
///
/// Shows G-36.
#[test]
fn end_of_a_process_ends_no_later_hold_of_its_claim() {
    for waits in [false, true] {
        let mut held = Held::new(waits);
        let seen = held.server.held().expect("it is held");
        assert!(held.server.leave(HOLDER));
        let again = claim(HOLDER, LEASE);
        let link = liveness(HOLDER, 1, Some(GRACE));
        held.server.enter(&request(&again, EnterMode::Queue, link));

        assert!(!held.server.revoke_ended(&seen));
        assert_eq!(held.server.inspect().len(), 1 + usize::from(waits));
    }
}

#[test]
fn release_by_a_watchdog_is_told_from_others() {
    for waits in [false, true] {
        let mut held = Held::new(waits);
        assert!(held.server.leave_as('K', HOLDER, NEXT));
        held.assert_reason("released by its watchdog");
    }
}

#[test]
fn end_of_a_lease_is_noted() {
    for waits in [false, true] {
        let mut held = Held::new(waits);
        held.server.pass(LEASE);
        if waits {
            held.enter_next(EnterMode::Poll, &[]);
        } else {
            // A client that only tries and leaves.
            let token = held.enter_next(EnterMode::TryNow, &[]);
            held.server.leave(NEXT);
            let ended = held.server.lock_state().ended.expect("it is known");
            assert_eq!(Some(ended.followed_by), token);
            assert_eq!(ended.reason.to_string(), "lease ended");
            continue;
        }
        held.assert_reason("lease ended");
    }
}

#[test]
fn end_of_a_readers_lease_is_noted() {
    let mut server = ModelServer::start();
    for (number, lease, share) in [
        (HOLDER, LEASE, Share::READER),
        (NEXT, LEASE * 2, Share::WRITER),
    ] {
        let mut claim = claim(number, lease);
        claim.share = share;
        let link = liveness(number, 1, None);
        server.enter(&request(&claim, EnterMode::Queue, link.clone()));
        server.pass(LEASE);
        server.enter(&request(&claim, EnterMode::Poll, link));
    }
    let ended = server.lock_state().ended.expect("it is known");
    assert_eq!(ended.reason.to_string(), "lease ended");
}

#[test]
fn missing_connection_is_noted() {
    let mut held = Held::new(true);
    held.enter_next(EnterMode::Poll, &[]);
    held.server.pass(GRACE);
    held.enter_next(EnterMode::Poll, &[absence(HOLDER, 0)]);
    held.assert_reason("connection missing");
}

#[test]
fn end_of_a_waiter_is_not_that_of_a_hold() {
    const LAST: u8 = 3;
    let mut held = Held::new(true);
    let seen = held.server.held().expect("it is held");
    assert!(held.server.revoke_ended(&seen));
    let last = claim(LAST, LEASE);
    let link = liveness(LAST, 1, None);
    held.server.enter(&request(&last, EnterMode::Queue, link));

    assert!(held.server.leave_as('K', LAST, HOLDER));
    held.assert_reason("its process ended (seen by program[1]@host (label))");
}

/// The next holder learns nothing of a hold that was released or broken.
#[test]
fn release_is_no_end_to_explain() {
    for kind in ['H', 'B'] {
        let mut held = Held::new(true);
        assert!(held.server.leave_as(kind, HOLDER, NEXT));
        assert_eq!(held.server.lock_state().ended, None, "{kind}");
    }
}
