//! Single steps of the scripts that no history shows, each with a wrong step beside the right one.

use std::time::Duration;

use super::server::{ModelServer, claim, liveness, nonce, request};
use crate::client::id_text;
use crate::queue::enter::{EnterMode, EnterRequest};
use crate::queue::liveness::LivenessRef;
use crate::queue::renewal::Renewed;
use leasehold_core::store::{Claim, Share, Standing};

const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
const HOLDER: u8 = 0;
const WAITER: u8 = 1;

fn link(number: u8, epoch: u32) -> LivenessRef {
    liveness(number, epoch, Some(GRACE))
}

fn queue(server: &mut ModelServer, claim: &Claim, liveness: LivenessRef) -> Standing {
    server
        .enter(&request(claim, EnterMode::Queue, liveness))
        .standing
}

/// A lock whose holder is absent, which a waiter has noted with the nonce 1.
fn with_noted_absence() -> ModelServer {
    let mut server = ModelServer::start();
    server.subscribe(2, "alive", WAITER);
    queue(&mut server, &claim(HOLDER, LEASE), link(HOLDER, 1));

    let waiter = claim(WAITER, LEASE);
    let reply = server.enter(&EnterRequest {
        nonce: nonce(1),
        ..request(&waiter, EnterMode::Queue, link(WAITER, 1))
    });
    assert_eq!(reply.absences.len(), 1);
    server
}

/// The waiter looks at the holder, and names the holder's absence with a nonce.
fn waiter_revokes(server: &mut ModelServer, named: u8, fresh: u8) -> bool {
    let holder = server.holder().expect("the lock is held").id;
    let waiter = claim(WAITER, LEASE);
    server.enter(&EnterRequest {
        nonce: nonce(fresh),
        expired: id_text(holder) + &nonce(named),
        ..request(&waiter, EnterMode::Refresh, link(WAITER, 1))
    });
    server.is_held_by(WAITER)
}

/// Shows G-01, S12.
#[test]
fn holder_that_comes_back_ends_its_absence() {
    let holder = claim(HOLDER, LEASE);
    let renew = |server: &mut ModelServer| {
        server.renew(&holder, &link(HOLDER, 1));
    };
    let renew_late = |server: &mut ModelServer| {
        server.renew(&holder, &link(HOLDER, 0));
    };
    let enter_again = |server: &mut ModelServer| {
        server.enter(&request(&holder, EnterMode::Refresh, link(HOLDER, 1)));
    };
    let connect = |server: &mut ModelServer| {
        server.subscribe(1, "alive", HOLDER);
        assert!(!waiter_revokes(server, 1, 2), "the holder is connected");
        server.disconnect(1);
    };

    let ways: [&dyn Fn(&mut ModelServer); 4] = [&renew, &renew_late, &enter_again, &connect];
    for (number, come_back) in ways.into_iter().enumerate() {
        let mut server = with_noted_absence();
        come_back(&mut server);
        for fresh in [3, 4] {
            assert!(!waiter_revokes(&mut server, 1, fresh), "way {number}");
        }
        assert!(waiter_revokes(&mut server, 3, 5), "way {number}");
    }
}

#[test]
fn late_renewal_keeps_the_newer_connection() {
    let mut server = ModelServer::start();
    let holder = claim(HOLDER, LEASE);
    queue(&mut server, &holder, link(HOLDER, 3));
    let before = server.record();

    assert_eq!(server.renew(&holder, &link(HOLDER, 1)), Renewed::Held);
    assert_eq!(server.record(), before);
}

/// The holder is connected to another server, or to this server before a failover. This server has
/// no record of the connection.
#[test]
fn absence_on_another_server_is_ignored() {
    let mut server = ModelServer::start();
    let mut elsewhere = link(HOLDER, 1);
    if let Some(check) = &mut elsewhere.crash_check {
        check.server = "another-id".into();
    }
    queue(&mut server, &claim(HOLDER, LEASE), elsewhere);

    let waiter = claim(WAITER, LEASE);
    let reply = server.enter(&request(&waiter, EnterMode::Queue, link(WAITER, 1)));
    assert_eq!(reply.absences, []);
}

/// The claim's connection may have just broken. Its client reconnects, or a contender finds the
/// absence later, as with other holders.
#[test]
fn requesting_claim_counts_as_alive() {
    let mut server = ModelServer::start();
    let mut slot = claim(HOLDER, LEASE);
    slot.share = Share::slots(1, 2).expect("in range");
    for mode in [EnterMode::TryNow, EnterMode::Refresh, EnterMode::Queue] {
        let reply = server.enter(&request(&slot, mode, link(HOLDER, 1)));
        assert!(reply.standing.token().is_some(), "{mode:?}");
    }
}

#[test]
fn renewal_of_another_claim_of_the_same_client_is_refused() {
    let mut server = ModelServer::start();
    let holder = claim(HOLDER, LEASE);
    queue(&mut server, &holder, link(HOLDER, 1));
    let other = claim(9, LEASE);

    assert_eq!(server.renew(&other, &link(HOLDER, 1)), Renewed::Gone);
    assert_eq!(server.renew(&holder, &link(HOLDER, 1)), Renewed::Held);
}

#[test]
fn renewal_of_a_released_claim_does_not_acquire() {
    let mut server = ModelServer::start();
    let holder = claim(HOLDER, LEASE);
    queue(&mut server, &holder, link(HOLDER, 1));
    assert!(server.leave(HOLDER));

    assert_eq!(server.renew(&holder, &link(HOLDER, 1)), Renewed::Gone);
    assert_eq!(server.holder(), None);
}

#[test]
fn waiter_whose_lease_is_over_is_passed_over() {
    for over in 1..4 {
        let mut server = ModelServer::start();
        for number in 0..4 {
            let lease = if number == over { LEASE / 3 } else { LEASE };
            queue(
                &mut server,
                &claim(number, lease),
                liveness(number, 1, None),
            );
        }

        server.pass(LEASE / 2);
        for number in (0..4).filter(|number| *number != over) {
            assert!(server.is_held_by(number), "{number} holds in its turn");
            server.leave(number);
        }
        assert_eq!((server.holder(), server.waiters()), (None, Vec::new()));
    }
}

/// A client may propose the token that the server gave last.
#[test]
fn proposed_token_must_exceed_the_last_token() {
    for ahead in [0, 1] {
        let mut server = ModelServer::start();
        let first = granted(&mut server, 0);
        server.leave(HOLDER);

        let second = granted(&mut server, first + ahead);
        assert_eq!(second, first + 1, "{ahead} ahead");
    }
}

fn granted(server: &mut ModelServer, proposal: u64) -> u64 {
    let holder = claim(HOLDER, LEASE);
    let reply = server.enter(&EnterRequest {
        proposal,
        ..request(&holder, EnterMode::Queue, link(HOLDER, 1))
    });
    reply.standing.token().expect("the lock is free").get()
}

/// A client without crash detection, or connected to another server, may be connected.
#[test]
fn inspection_reports_only_connections_to_its_server() {
    let mut elsewhere = link(3, 1);
    if let Some(check) = &mut elsewhere.crash_check {
        check.server = "another-id".into();
    }
    let links = [link(0, 1), link(1, 1), liveness(2, 1, None), elsewhere];

    let mut server = ModelServer::start();
    server.subscribe(1, "alive", 1);
    for (number, link) in (0..).zip(links) {
        queue(&mut server, &claim(number, LEASE), link);
    }
    let connected = server.inspect().into_iter().map(|entry| entry.connected);
    let connected: Vec<_> = connected.collect();
    assert_eq!(connected, [Some(false), Some(true), None, None]);
}
