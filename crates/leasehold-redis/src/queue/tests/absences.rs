//! What the scripts find of holders and waiters whose connections are missing, and whom they tell.

use std::time::Duration;

use super::server::{ModelServer, absence, claim, id, liveness, request};
use crate::queue::layout::record as field;
use crate::queue::messages::{AbsenceSeen, EnterMode, EnterRequest, Nonce, Push, Renewed};
use crate::queue::record::LivenessRef;
use leasehold_core::store::{Claim, Share};

const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
const HOLDER: u8 = 0;
const WAITER: u8 = 1;

fn link(number: u8) -> LivenessRef {
    liveness(number, 1, Some(GRACE))
}

fn sharing(number: u8, share: Share) -> Claim {
    let mut claim = claim(number, LEASE);
    claim.share = share;
    claim
}

/// A lock that a client holds, whose connection is not checked, and for which others wait.
fn with_waiters(count: u8) -> ModelServer {
    let mut server = ModelServer::start();
    let held = claim(HOLDER, LEASE);
    server.enter(&request(&held, EnterMode::Queue, liveness(HOLDER, 1, None)));
    for number in 1..=count {
        let waiter = claim(number, LEASE);
        server.enter(&request(&waiter, EnterMode::Queue, link(number)));
    }
    server
}

/// A script passes over a hundred dead waiters at most. Then a later one goes on behind them.
///
/// Shows G-02.
#[test]
fn live_waiter_takes_over_behind_any_number_of_dead_ones() {
    const COUNT: u8 = 250;
    for live in [1, 49, 50, 51, 99, 100, 101, 120, 180, 249, COUNT] {
        let mut server = with_waiters(COUNT);
        server.subscribe(1, "alive", live);
        server.leave(HOLDER);
        let waiter = claim(live, LEASE);
        for _ in 0..=live / 50 {
            let reply = server.enter(&request(&waiter, EnterMode::Poll, link(live)));
            // A waiter that is next sends its next request soon.
            assert!(reply.is_next || server.is_held_by(live), "{live}");
        }
        assert!(server.is_held_by(live), "{live}");
    }
}

/// Where a script finds no live waiter among many, it tells the last one that it is next, because
/// that one is the least likely to be dead too.
///
/// Shows G-02.
#[test]
fn last_of_many_dead_waiters_is_told() {
    for count in [60, 250] {
        let mut server = with_waiters(count);
        for number in 1..=count {
            server.subscribe(number.into(), "inbox", number);
        }
        server.leave(HOLDER);
        let pushes = server.take_pushes();
        assert!(pushes.contains(&(id(count), Push::Next)), "{pushes:?}");
    }
}

/// The first waiter is dead. The one behind it looks after the holder.
///
/// Shows G-02.
#[test]
fn waiter_behind_a_dead_one_is_next() {
    let mut server = with_waiters(3);
    for number in [2, 3] {
        server.subscribe(number.into(), "alive", number);
    }
    for (number, is_next) in [(2, true), (3, false)] {
        let waiter = claim(number, LEASE);
        let reply = server.enter(&request(&waiter, EnterMode::Poll, link(number)));
        assert_eq!(reply.is_next, is_next, "{number}");
    }
}

/// The renewal of a waiter says whether a holder is absent, and whether a contender has noted that.
///
/// Shows G-02.
#[test]
fn renewal_of_a_waiter_reports_absences() {
    for (holders, share) in [(1, Share::MUTEX), (1, Share::READER), (2, Share::READER)] {
        // One bit for each holder that is renewed, which makes its absence a new one.
        for renewed in 0..1 << holders {
            let mut server = ModelServer::start();
            for number in 1..=holders {
                let holder = sharing(number, share);
                server.enter(&request(&holder, EnterMode::Queue, link(number)));
            }
            let waiter = sharing(9, Share::WRITER);
            server.subscribe(9, "alive", 9);
            server.enter(&request(&waiter, EnterMode::Queue, link(9)));
            let noted = if renewed == 0 {
                AbsenceSeen::Noted
            } else {
                AbsenceSeen::New
            };
            for number in (1..=holders).filter(|number| renewed & (1 << (number - 1)) != 0) {
                server.renew(&sharing(number, share), &link(number));
            }

            for expected in [noted, AbsenceSeen::None] {
                let queued = Renewed::Queued {
                    position: 1,
                    absence: expected,
                };
                let seen = server.renew(&waiter, &link(9));
                assert_eq!(seen, queued, "{holders} of {share}, {renewed}");
                for number in 1..=holders {
                    server.subscribe(number.into(), "alive", number);
                }
            }
        }
    }
}

/// A holder whose absence has lasted for its grace learns that its hold has ended.
///
/// Shows G-12.
#[test]
fn revoked_holder_is_told() {
    for share in [Share::MUTEX, Share::READER] {
        let mut server = ModelServer::start();
        server.subscribe(1, "inbox", HOLDER);
        server.enter(&request(
            &sharing(HOLDER, share),
            EnterMode::Queue,
            link(HOLDER),
        ));
        let waiter = sharing(WAITER, Share::WRITER);
        for (mode, expired) in [
            (EnterMode::Queue, Vec::new()),
            (EnterMode::Poll, vec![absence(HOLDER, 1)]),
        ] {
            assert_eq!(server.take_pushes(), []);
            server.enter(&EnterRequest {
                nonce: Nonce(1),
                expired,
                ..request(&waiter, mode, link(WAITER))
            });
        }
        assert_eq!(server.take_pushes(), [(id(HOLDER), Push::Gone)]);
        assert!(server.is_held_by(WAITER));
    }
}

/// A record names the connection of the last renewal, but a renewal that comes late does not bring
/// back an earlier one. In a cluster, another client may renew the claim, which counts for itself.
///
/// Shows G-01.
#[test]
fn record_names_the_latest_connection() {
    for share in [Share::MUTEX, Share::READER] {
        for (client, epoch, is_named) in [(0, 2, false), (0, 4, true), (9, 1, true), (9, 4, true)] {
            let mut server = ModelServer::start();
            let holder = sharing(HOLDER, share);
            let link = |client, epoch| liveness(client, epoch, Some(GRACE));
            server.enter(&request(&holder, EnterMode::Queue, link(0, 3)));
            assert_eq!(server.renew(&holder, &link(client, epoch)), Renewed::Held);

            let record = server.held().expect("it is held");
            let expected = if is_named { (client, epoch) } else { (0, 3) };
            let named = field::CLIENT
                .to(field::EPOCH)
                .read(&record)
                .expect("a record");
            let (client, epoch) = expected;
            assert_eq!(named, format!("client-{client:04}{epoch:08}"), "{share}");
        }
    }
}

/// A client tells that the process of a holder has ended, after the holder was connected again.
///
/// Shows G-01.
#[test]
fn end_of_a_process_before_a_reconnect_revokes_nothing() {
    for (epoch, is_revoked) in [(1, true), (2, false)] {
        let mut server = ModelServer::start();
        let holder = claim(HOLDER, LEASE);
        server.enter(&request(&holder, EnterMode::Queue, link(HOLDER)));
        let seen = server.held().expect("it is held");
        server.renew(&holder, &liveness(HOLDER, epoch, Some(GRACE)));
        assert_eq!(server.revoke_ended(&seen), is_revoked, "{epoch}");
    }
}
