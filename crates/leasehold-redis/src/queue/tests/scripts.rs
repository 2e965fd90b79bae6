//! Single steps of the scripts that no history shows, each with a wrong step beside the right one.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use lab_redis_model::Reply;

use super::server::{KEY, ModelServer, absence, claim, id, liveness, request};
use crate::client::id_text;
use crate::queue::layout::record as field;
use crate::queue::may_be_dead;
use crate::queue::messages::{AbsenceSeen, EnterMode, EnterRequest, Nonce, Push, Renewed};
use crate::queue::record::{LivenessRef, bound_hold, client_of};
use crate::queue::scripts::RENEW;
use leasehold_core::store::{Claim, Share, Standing};

pub(super) const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
pub(super) const HOLDER: u8 = 0;
pub(super) const WAITER: u8 = 1;

pub(super) fn link(number: u8, epoch: u32) -> LivenessRef {
    liveness(number, epoch, Some(GRACE))
}

pub(super) fn queue(server: &mut ModelServer, claim: &Claim, liveness: LivenessRef) -> Standing {
    server
        .enter(&request(claim, EnterMode::Queue, liveness))
        .standing
}

/// A holder and a waiter, exclusive ones and sharing ones.
pub(super) const SHARES: [[Share; 2]; 2] =
    [[Share::MUTEX, Share::MUTEX], [Share::READER, Share::WRITER]];

/// The claims of a holder and of waiters.
pub(super) fn claims(shares: [Share; 2]) -> impl Fn(u8) -> Claim {
    move |number| {
        let mut claim = claim(number, LEASE);
        claim.share = shares[usize::from(number.min(1))];
        claim
    }
}

/// A lock whose holder is absent, which a waiter has noted with the nonce 1.
fn with_noted_absence(claim: impl Fn(u8) -> Claim) -> ModelServer {
    let mut server = ModelServer::start();
    server.subscribe(2, "alive", WAITER);
    queue(&mut server, &claim(HOLDER), link(HOLDER, 1));

    let waiter = claim(WAITER);
    let reply = server.enter(&EnterRequest {
        nonce: Nonce(1),
        ..request(&waiter, EnterMode::Queue, link(WAITER, 1))
    });
    assert_eq!(reply.absences.len(), 1);
    server
}

/// A waiter looks at the holder, and names the holder's absence with a nonce.
fn waiter_revokes(server: &mut ModelServer, waiter: &Claim, named: u8, fresh: u8) -> bool {
    server.enter(&EnterRequest {
        nonce: Nonce(fresh.into()),
        expired: vec![absence(HOLDER, named)],
        ..request(waiter, EnterMode::Refresh, link(WAITER, 1))
    });
    server.is_held_by(WAITER)
}

/// Shows G-01, S12.
#[test]
fn holder_that_comes_back_ends_its_absence() {
    for claim in SHARES.map(claims) {
        let (holder, waiter) = (claim(HOLDER), claim(WAITER));
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
            let is_revoked = waiter_revokes(server, &waiter, 1, 2);
            assert!(!is_revoked, "the holder is connected");
            server.disconnect(1);
        };

        let ways: [&dyn Fn(&mut ModelServer); 4] = [&renew, &renew_late, &enter_again, &connect];
        for (number, come_back) in ways.into_iter().enumerate() {
            let mut server = with_noted_absence(&claim);
            come_back(&mut server);
            for (named, fresh) in [(1, 3), (1, 4)] {
                let is_revoked = waiter_revokes(&mut server, &waiter, named, fresh);
                assert!(!is_revoked, "{holder:?}, way {number}");
            }
            let is_revoked = waiter_revokes(&mut server, &waiter, 3, 5);
            assert!(is_revoked, "{holder:?}, way {number}");
        }
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

/// A late request to enter belongs to an older connection as well. Connections of two clients, such
/// as those to two masters, have no order.
#[test]
fn request_to_enter_keeps_the_newer_connection() {
    for (first, second) in [(1, 2), (2, 1)] {
        let mut server = ModelServer::start();
        for epoch in [first, second] {
            queue(&mut server, &claim(HOLDER, LEASE), link(HOLDER, epoch));
        }
        let epoch = |server: &mut ModelServer| {
            let record = server.held().expect("it is held");
            field::EPOCH.read_number(&record)
        };
        assert_eq!(epoch(&mut server), Some(2));
        queue(&mut server, &claim(HOLDER, LEASE), link(WAITER, 1));
        assert_eq!(epoch(&mut server), Some(1));
    }
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

/// Each absence that has lasted for its grace ends a hold, and nothing else.
///
/// Shows G-02.
#[test]
fn all_absences_that_have_ended_count_at_once() {
    const NEXT: u8 = 2;
    let sharing = |number, share| {
        let mut claim = claim(number, LEASE);
        claim.share = share;
        claim
    };
    let mut server = ModelServer::start();
    for number in [HOLDER, WAITER] {
        queue(
            &mut server,
            &sharing(number, Share::READER),
            link(number, 1),
        );
    }
    let writer = sharing(NEXT, Share::WRITER);
    let behind = sharing(NEXT + 1, Share::WRITER);
    let asks = |expired| EnterRequest {
        nonce: Nonce(1),
        expired,
        ..request(&writer, EnterMode::Queue, liveness(NEXT, 1, None))
    };
    // The second reader has noted that the first one is absent.
    assert_eq!(server.enter(&asks(Vec::new())).absences.len(), 2);
    queue(&mut server, &behind, link(NEXT + 1, 1));

    // A waiter has no absence, nor has a claim that is not there.
    let reply = server.enter(&asks([NEXT + 1, 99].map(|other| absence(other, 1)).into()));
    assert_eq!(reply.absences.len(), 2);
    let ended = vec![absence(HOLDER, 0), absence(WAITER, 1)];
    let reply = server.enter(&asks(ended));
    assert!(reply.standing.token().is_some(), "{reply:?}");
    assert_eq!(server.inspect().len(), 2);
}

/// A request may name an earlier absence of the same holder.
#[test]
fn absence_is_named_once() {
    for claim in SHARES.map(claims) {
        let mut server = with_noted_absence(&claim);
        let waiter = claim(WAITER);
        let reply = server.enter(&EnterRequest {
            expired: vec![absence(HOLDER, 9)],
            ..request(&waiter, EnterMode::Refresh, link(WAITER, 1))
        });
        assert_eq!(reply.absences.len(), 1);
        assert_eq!(reply.absences[0].nonce, Nonce(1).to_string());
    }
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

/// A refused try reports that a holder is absent, and the next one revokes its hold. What it does not
/// take itself goes to the waiter.
///
/// Shows G-02, G-05.
#[test]
fn try_revokes_the_hold_of_an_absent_slot() {
    let slots = |number, permits| {
        let mut claim = claim(number, LEASE);
        claim.share = Share::slots(permits, 2).expect("in range");
        claim
    };
    for waits in [false, true] {
        let mut server = ModelServer::start();
        for number in [HOLDER, WAITER] {
            let alive = liveness(number, 1, None);
            let link = if number == HOLDER {
                link(number, 1)
            } else {
                alive
            };
            queue(&mut server, &slots(number, 1), link);
        }
        if waits {
            queue(&mut server, &slots(2, 1), liveness(2, 1, None));
        }

        let tried = slots(3, if waits { 2 } else { 1 });
        let mut attempt = |expired| {
            server.enter(&EnterRequest {
                nonce: Nonce(1),
                expired,
                ..request(&tried, EnterMode::TryNow, liveness(3, 1, None))
            })
        };
        let refused = attempt(Vec::new());
        assert_eq!(refused.standing, Standing::Gone);
        assert_eq!(refused.absences.len(), 1);

        attempt(refused.absences);
        let holders: Vec<_> = server.lock_state().holders().map(|held| held.id).collect();
        assert_eq!(holders, [WAITER, if waits { 2 } else { 3 }].map(id));
    }
}

/// A waiter finds that the writer is absent, which lets a reader in. The answer is when the lease of
/// that reader ends.
#[test]
fn next_expiry_is_that_of_the_holder_that_follows() {
    let of = |number, share, lease| {
        let mut claim = claim(number, lease);
        claim.share = share;
        claim
    };
    let writer = of(2, Share::WRITER, LEASE);
    let mut server = ModelServer::start();
    queue(
        &mut server,
        &of(HOLDER, Share::WRITER, LEASE * 5),
        link(HOLDER, 1),
    );
    queue(
        &mut server,
        &of(WAITER, Share::READER, LEASE * 2),
        liveness(WAITER, 1, None),
    );
    queue(&mut server, &writer, liveness(2, 1, None));

    let mut poll = |expired| {
        server.enter(&EnterRequest {
            nonce: Nonce(1),
            expired,
            ..request(&writer, EnterMode::Poll, liveness(2, 1, None))
        })
    };
    let noted = poll(Vec::new());
    assert_eq!(noted.next_expiry, Some(LEASE * 5));
    assert_eq!(poll(noted.absences).next_expiry, Some(LEASE * 2));
}

/// A refused client looks whether the holder's process has ended, or its connection.
///
/// Shows G-02.
#[test]
fn refusal_tells_whether_the_holder_may_be_dead() {
    for is_connected in [true, false] {
        let mut server = ModelServer::start();
        if is_connected {
            server.subscribe(1, "alive", HOLDER);
        }
        queue(&mut server, &claim(HOLDER, LEASE), link(HOLDER, 1));
        let tried = claim(WAITER, LEASE);
        let reply = server.enter(&EnterRequest {
            nonce: Nonce(1),
            ..request(&tried, EnterMode::TryNow, link(WAITER, 1))
        });
        assert_eq!(may_be_dead(&reply), !is_connected);

        let holders = &reply.refused.as_ref().expect("it is refused").holders;
        let clients: Vec<_> = holders.iter().map(|text| client_of(text)).collect();
        assert_eq!(clients, [Some("client-0000")]);
    }
}

/// Only a hold is bound to a connection, and only one of this version is understood.
#[test]
fn bound_hold_is_a_hold_of_this_version() {
    let mut server = ModelServer::start();
    queue(&mut server, &claim(HOLDER, LEASE), link(HOLDER, 1));
    let record = format!("-{}", server.held().expect("a holder"));
    assert!(bound_hold(&record).is_some());
    for (from, to) in [("H", "Q"), (" v1 ", " v2 ")] {
        let other = record.replacen(from, to, 1);
        assert_ne!(other, record);
        assert!(bound_hold(&other).is_none(), "{other}");
    }
}

/// One request renews all claims of a client, and the keys of a lock that is shared.
///
/// Shows G-13.
#[test]
fn renewal_is_of_each_claim_and_of_all_keys() {
    let mut server = ModelServer::start();
    let alive = liveness(1, 1, None);
    for number in [1, 2] {
        let mut reader = claim(number, LEASE * 1000);
        reader.share = Share::READER;
        queue(&mut server, &reader, alive.clone());
    }
    server.pass(LEASE);

    for number in [3, 4] {
        let mut writer = claim(number, LEASE);
        writer.share = Share::WRITER;
        queue(&mut server, &writer, alive.clone());
    }

    let ids = [1, 9, 2, 3, 4].map(|number| id_text(id(number)).to_string());
    let request = [ids.concat(), alive.to_string(), "86430000".to_owned()];
    let [all, liveness, life] = request.each_ref().map(String::as_str);
    let keys = ["EVALSHA", RENEW.hash(), "5", KEY, KEY, KEY, KEY, KEY];
    let words = [&keys, &[all, liveness, life][..]].concat();
    let expected = format!("{}101QQ0000000100000002", ids[0]);
    assert_eq!(server.execute(0, &words), Reply::Bytes(expected.into()));
    let [key, claims, _, holders] = server.lives();
    assert_eq!([key, claims, holders], [48 * 3_600_000; 3]);
}

#[test]
fn renewal_of_a_released_claim_does_not_acquire() {
    let mut server = ModelServer::start();
    let holder = claim(HOLDER, LEASE);
    queue(&mut server, &holder, link(HOLDER, 1));
    assert!(server.leave(HOLDER));

    assert_eq!(server.renew(&holder, &link(HOLDER, 1)), Renewed::Gone);
    assert_eq!(server.holder(), None);

    // The server has lost its data.
    let mut empty = ModelServer::start();
    assert_eq!(empty.renew(&holder, &link(HOLDER, 1)), Renewed::Gone);
    assert_eq!(empty.inspect(), []);

    // A waiter that has left, while others hold and wait.
    for claim in SHARES.map(claims) {
        let mut server = ModelServer::start();
        for number in 0..=2 {
            queue(&mut server, &claim(number), link(number, 1));
        }
        assert!(server.leave(2));
        assert_eq!(server.renew(&claim(2), &link(2, 1)), Renewed::Gone);
    }
}

/// Afterwards, another client acquires the lock at once.
///
/// Shows G-03, G-15.
#[test]
fn renewal_of_a_claim_whose_lease_is_over_changes_nothing() {
    for claim in SHARES.map(claims) {
        for last in [HOLDER, WAITER] {
            let mut server = ModelServer::start();
            for number in HOLDER..=last {
                queue(&mut server, &claim(number), link(number, 1));
            }
            server.pass(LEASE);

            let before = server.clone();
            for number in HOLDER..=last {
                let renewed = server.renew(&claim(number), &link(number, 1));
                assert_eq!(renewed, Renewed::Gone, "{number} of {last}");
            }
            assert_eq!(server, before);
            let next = queue(&mut server, &claim(9), link(9, 1));
            assert!(next.token().is_some(), "{next:?}");
        }
    }
}

/// Shows G-02.
#[test]
fn renewal_of_a_waiter_reports_the_end_of_the_holders_lease() {
    for claim in SHARES.map(claims) {
        let mut server = ModelServer::start();
        let mut holder = claim(HOLDER);
        holder.lease = LEASE / 2;
        queue(&mut server, &holder, liveness(HOLDER, 1, None));
        let waiter = claim(WAITER);
        let alive = liveness(WAITER, 1, None);
        queue(&mut server, &waiter, alive.clone());

        for absence in [AbsenceSeen::None, AbsenceSeen::New] {
            server.pass(LEASE / 4);
            let queued = Renewed::Queued {
                position: 1,
                absence,
            };
            assert_eq!(server.renew(&waiter, &alive), queued);
        }
    }
}

/// A script passes over at most 50 absent waiters at the front, and then those behind the waiter
/// that was next. So one of the first 50 need not send a request when it is connected again.
///
/// Shows G-05.
#[test]
fn waiter_that_comes_back_is_granted_before_those_behind_it() {
    const LAST: u8 = 60;
    for (back, sends) in [(2, true), (50, true), (55, true), (2, false), (50, false)] {
        let mut server = ModelServer::start();
        queue(
            &mut server,
            &claim(HOLDER, LEASE),
            liveness(HOLDER, 1, None),
        );
        for number in 1..=LAST {
            queue(&mut server, &claim(number, LEASE), link(number, 1));
        }

        for (connection, number, sends) in [(1, LAST, true), (2, back, sends)] {
            server.subscribe(connection, "alive", number);
            let claim = claim(number, LEASE);
            if sends {
                server.enter(&request(&claim, EnterMode::Refresh, link(number, 1)));
            }
        }
        server.leave(HOLDER);
        assert!(server.is_held_by(back), "{back} is overtaken");
    }
}

/// The request of a waiter passes over absent ones, and not over one that is connected again.
///
/// Shows G-05.
#[test]
fn waiter_overtakes_nobody_behind_fifty_absent_ones() {
    const BACK: u8 = 55;
    const LAST: u8 = 60;
    let mut server = ModelServer::start();
    let holder = claim(HOLDER, LEASE / 2);
    queue(&mut server, &holder, liveness(HOLDER, 1, None));
    for number in 1..=LAST {
        queue(&mut server, &claim(number, LEASE), link(number, 1));
    }
    for (connection, number) in [(1, BACK), (2, LAST)] {
        server.subscribe(connection, "alive", number);
    }

    server.pass(LEASE / 2);
    let last = claim(LAST, LEASE);
    server.enter(&request(&last, EnterMode::Poll, link(LAST, 1)));
    assert!(server.is_held_by(BACK));
}

/// A waiter that brought a hint has left nothing but that, and nobody was notified to be next.
///
/// Shows G-02.
#[test]
fn waiter_behind_a_hint_is_next() {
    let mut server = ModelServer::start();
    let known = |number| liveness(number, 1, None);
    queue(&mut server, &claim(HOLDER, LEASE), known(HOLDER));
    server.enter(&EnterRequest {
        highest_token: server.now + 1_000_000,
        ..request(&claim(WAITER, LEASE), EnterMode::Queue, known(WAITER))
    });
    server.leave(WAITER);

    let reply = server.enter(&request(&claim(2, LEASE), EnterMode::Queue, known(2)));
    assert!(reply.is_next, "{reply:?}");
}

/// Shows G-18.
#[test]
fn refusal_names_eight_holders() {
    let mut server = ModelServer::start();
    for number in 1..=9 {
        let mut reader = claim(number, LEASE);
        reader.share = Share::READER;
        queue(&mut server, &reader, liveness(number, 1, None));
    }
    let mut writer = claim(HOLDER, LEASE);
    writer.share = Share::WRITER;
    let tried = request(&writer, EnterMode::TryNow, liveness(HOLDER, 1, None));
    let refused = server.enter(&tried).refused.expect("it is held");
    assert_eq!((refused.ahead, refused.holders.len()), (9, 8));
}

/// Shows G-18.
#[test]
fn holder_holds_since_its_grant() {
    for claim in SHARES.map(claims) {
        let mut server = ModelServer::start();
        for number in [HOLDER, WAITER] {
            queue(&mut server, &claim(number), liveness(number, 1, None));
        }
        server.pass(Duration::from_secs(7));
        server.leave(HOLDER);
        let since = UNIX_EPOCH + Duration::from_millis(server.now / 1000);
        assert_eq!(server.inspect()[0].info.since, since);
    }
}

/// A script passes over at most 100 absent waiters, and notifies the one behind them.
///
/// Shows G-05.
#[test]
fn search_for_the_next_waiter_goes_on_behind_a_hundred() {
    const NEXT: u8 = 101;
    let mut server = ModelServer::start();
    for kind in ["alive", "inbox"] {
        server.subscribe(1, kind, NEXT);
    }
    for number in 0..=NEXT + 1 {
        queue(&mut server, &claim(number, LEASE), link(number, 1));
    }
    server.take_pushes();
    server.leave(HOLDER);
    assert_eq!(server.take_pushes(), [(id(NEXT), Push::Next)]);
}

/// A waiter that arrives behind a hundred absent ones is granted by its own request.
///
/// Shows G-05.
#[test]
fn waiter_behind_a_hundred_absent_ones_is_granted() {
    const ABSENT: u8 = 100;
    let mut server = ModelServer::start();
    for number in 0..=ABSENT {
        queue(&mut server, &claim(number, LEASE), link(number, 1));
    }
    server.leave(HOLDER);
    let next = claim(ABSENT + 1, LEASE);
    let standing = queue(&mut server, &next, link(ABSENT + 1, 1));
    assert!(standing.token().is_some(), "{standing:?}");
}

/// A script checks 40 of many holders: eight with the oldest renewals, and others each time.
///
/// Shows G-02.
#[test]
fn every_absent_holder_is_found_among_many() {
    for holders in [8, 9, 100] {
        let mut server = ModelServer::start();
        for number in 1..=holders {
            let mut reader = claim(number, LEASE);
            reader.share = Share::READER;
            queue(&mut server, &reader, link(number, 1));
        }
        let mut writer = claim(HOLDER, LEASE);
        writer.share = Share::WRITER;
        let alive = liveness(HOLDER, 1, None);
        let first = server.enter(&request(&writer, EnterMode::Queue, alive.clone()));
        let named: BTreeSet<_> = first.absences.into_iter().map(|one| one.claim).collect();
        assert!(named.len() >= usize::from(holders).min(9));

        let mut found = BTreeSet::new();
        for _ in 0..20 {
            server.pass(Duration::from_micros(17));
            let reply = server.enter(&request(&writer, EnterMode::Poll, alive.clone()));
            assert!(reply.absences.len() <= 40);
            found.extend(reply.absences.into_iter().map(|absence| absence.claim));
        }
        assert_eq!(found.len(), usize::from(holders));
    }
}

/// The only waiter that brought a hint leaves, or its lease ends. The token of the next grant exceeds
/// the hint all the same.
///
/// Shows G-04.
#[test]
fn hint_outlives_the_waiter_that_brought_it() {
    for claim in SHARES.map(claims) {
        for leaves in [true, false] {
            let mut server = ModelServer::start();
            let hint = server.now + 1_000_000 * LEASE.as_secs();
            let mut holder = claim(HOLDER);
            holder.lease = LEASE * 2;
            let link = liveness(HOLDER, 1, None);
            queue(&mut server, &holder, link.clone());
            server.enter(&EnterRequest {
                highest_token: hint,
                ..request(&claim(WAITER), EnterMode::Queue, liveness(WAITER, 1, None))
            });
            if leaves {
                server.leave(WAITER);
            } else {
                server.pass(LEASE);
                for mode in [EnterMode::Queue, EnterMode::Poll] {
                    server.enter(&request(&claim(2), mode, liveness(2, 1, None)));
                }
                server.leave(2);
            }

            server.renew(&holder, &link);
            server.leave(HOLDER);
            let now = server.now;
            let token = granted(&mut server, now + 1);
            assert!(token > hint, "{token} after {hint}, {leaves}");
        }
    }
}

/// The record of a holder keeps the hint of a waiter that has left. It lives for a day after the
/// lease of the holder.
///
/// Shows G-18.
#[test]
fn name_whose_record_keeps_a_hint_is_listed_until_its_last_lease_ends() {
    let claim = claims(SHARES[0]);
    for waiter_stays in [false, true] {
        let mut server = ModelServer::start();
        queue(&mut server, &claim(HOLDER), liveness(HOLDER, 1, None));
        server.enter(&EnterRequest {
            highest_token: server.now + 1_000_000,
            ..request(&claim(WAITER), EnterMode::Queue, liveness(WAITER, 1, None))
        });
        if !waiter_stays {
            server.leave(WAITER);
        }

        assert!(server.is_listed());
        server.pass(LEASE);
        assert_eq!(server.is_listed(), waiter_stays);
    }
}

/// A master that has just been promoted may lack grants of the one before, so a release hands over
/// no lock there before the longest lease has passed.
///
/// Shows G-01.
#[test]
fn release_on_a_new_master_grants_nothing_before_the_wait_is_over() {
    let mut server = ModelServer::start();
    let holder = claim(HOLDER, LEASE);
    let waiter = claim(WAITER, LEASE * 2);
    let not_checked = |number| liveness(number, 1, None);
    queue(&mut server, &holder, not_checked(HOLDER));
    queue(&mut server, &waiter, not_checked(WAITER));

    // No script has seen the history of this server yet.
    server.longest_lease = Some("30000");
    server.leave(HOLDER);
    let poll = request(&waiter, EnterMode::Poll, not_checked(WAITER));
    assert_eq!(server.enter(&poll).next_expiry, Some(LEASE));
    assert!(!server.is_held_by(WAITER));

    server.pass(LEASE);
    server.enter(&poll);
    assert!(server.is_held_by(WAITER));
}

/// The key of a free lock says nothing of the grants that a new master may lack.
///
/// Shows G-01.
#[test]
fn free_lock_on_a_new_master_is_not_granted_at_once() {
    let mut server = ModelServer::start();
    let known = |number| liveness(number, 1, None);
    queue(&mut server, &claim(HOLDER, LEASE), known(HOLDER));
    server.leave(HOLDER);
    server.pass(Duration::from_secs(1));

    server.longest_lease = Some("30000");
    let waiter = claim(WAITER, LEASE * 2);
    let standing = queue(&mut server, &waiter, known(WAITER));
    assert_eq!(standing, Standing::Queued { ahead: 0 });
    // It looks again, and then the wait may be over.
    let queued = Renewed::Queued {
        position: 1,
        absence: AbsenceSeen::New,
    };
    assert_eq!(server.renew(&waiter, &known(WAITER)), queued);
}

/// The client that waits after a failover may have a shorter lease than another one had.
///
/// Shows G-01.
#[test]
fn wait_after_a_failover_is_that_of_the_longest_lease() {
    for (own, of_all, waits) in [("30000", "60000", 60), ("60000", "30000", 60)] {
        let mut server = ModelServer::start();
        server.longest_lease = Some(own);
        server.execute(0, &["SET", "leasehold:{history}:longest", of_all]);

        let claim = claim(HOLDER, LEASE);
        let reply = server.enter(&request(
            &claim,
            EnterMode::Queue,
            liveness(HOLDER, 1, None),
        ));
        assert_eq!(reply.next_expiry, Some(Duration::from_secs(waits)));
    }
}

/// The server's tokens may be behind those that a client has received, after a loss of its data.
///
/// Shows G-04.
#[test]
fn tokens_exceed_the_hint_that_a_waiter_brought() {
    for (claim, with_hint) in SHARES
        .into_iter()
        .flat_map(|shares| [1, 2].map(|n| (shares, n)))
    {
        let claim = claims(claim);
        let mut server = ModelServer::start();
        let hint = server.now + u64::try_from(LEASE.as_micros()).expect("a short lease");
        for number in 0..3 {
            server.enter(&EnterRequest {
                highest_token: if number == with_hint { hint } else { 0 },
                ..request(&claim(number), EnterMode::Queue, liveness(number, 1, None))
            });
        }

        for number in 1..3 {
            server.leave(number - 1);
            let standing = queue(&mut server, &claim(number), liveness(number, 1, None));
            let token = standing.token().expect("the lock is handed over");
            assert!(token.get() > hint, "{token} of {number}");
        }
    }
}

/// The keys of a queue live for two days after a change, and are not written again for an hour.
///
/// Shows S12.
#[test]
fn keys_of_a_queue_outlive_each_hour_of_changes() {
    const LIFE: i64 = 48 * 3_600_000;
    let mut server = ModelServer::start();
    let enter = |server: &mut ModelServer, number| {
        let claim = claim(number, LEASE * 1000);
        queue(server, &claim, liveness(number, 1, None));
    };
    let lives = |server: &mut ModelServer| {
        let [_, claims, queue, _] = server.lives();
        [claims, queue]
    };
    for number in 0..4 {
        enter(&mut server, number);
    }
    assert_eq!(lives(&mut server), [LIFE; 2]);

    for (seconds, leaving, left) in [(3_599, 3, LIFE - 3_599_000), (2, 2, LIFE)] {
        server.pass(Duration::from_secs(seconds));
        assert!(server.leave(leaving));
        assert_eq!(lives(&mut server), [left; 2], "after {leaving} has left");
    }
    server.pass(Duration::from_secs(3_601));
    enter(&mut server, 4);
    assert_eq!(lives(&mut server), [LIFE; 2]);
}

/// The waiter's own request finds that the holder's lease is over, and grants to the readers ahead.
///
/// Shows G-18.
#[test]
fn waiter_counts_those_that_its_request_has_granted() {
    const LAST: u8 = 4;
    let sharing = |number, share| {
        let mut claim = claim(number, LEASE * 2);
        claim.share = share;
        claim
    };
    let mut holder = sharing(HOLDER, Share::WRITER);
    holder.lease = LEASE;
    let readers = (1..LAST).map(|number| sharing(number, Share::READER));
    let writer = sharing(LAST, Share::WRITER);

    let mut server = ModelServer::start();
    let claims = [holder].into_iter().chain(readers).chain([writer.clone()]);
    for (number, claim) in (0..).zip(claims) {
        queue(&mut server, &claim, liveness(number, 1, None));
    }
    server.pass(LEASE);
    let poll = request(&writer, EnterMode::Poll, liveness(LAST, 1, None));
    assert_eq!(server.enter(&poll).standing, Standing::Queued { ahead: 3 });
}

/// A try that is refused hands over what an ended lease has left.
///
/// Shows G-15.
#[test]
fn refused_try_grants_to_the_waiter() {
    for claim in SHARES.map(claims) {
        let mut server = ModelServer::start();
        queue(&mut server, &claim(HOLDER), liveness(HOLDER, 1, None));
        let mut waiter = claim(WAITER);
        waiter.lease = LEASE * 2;
        queue(&mut server, &waiter, liveness(WAITER, 1, None));
        server.pass(LEASE);

        let tried = claim(2);
        let reply = server.enter(&request(&tried, EnterMode::TryNow, liveness(2, 1, None)));
        assert_eq!(reply.standing, Standing::Gone);
        assert!(server.is_held_by(WAITER));
    }
}

/// It is not refused for its kind, although the lock has another one by now.
#[test]
fn waiter_that_is_gone_learns_that() {
    for permits in [2, 3] {
        let mut server = ModelServer::start();
        let known = |number| liveness(number, 1, None);
        for number in [HOLDER, WAITER] {
            queue(&mut server, &claim(number, LEASE), known(number));
        }
        server.pass(LEASE);
        let mut slots = claim(9, LEASE);
        slots.share = Share::slots(permits, 3).expect("at most 3 permits");
        let held = queue(&mut server, &slots, known(9));
        assert!(held.token().is_some(), "{held:?}");

        for mode in [EnterMode::Poll, EnterMode::Refresh] {
            let waiter = claim(WAITER, LEASE);
            let reply = server.enter(&request(&waiter, mode, known(WAITER)));
            assert_eq!(reply.standing, Standing::Gone);
        }
    }
}

/// A request of another kind finds that the holder's lease is over. The waiter is granted, and is
/// what the refusal names.
///
/// Shows G-06, G-15.
#[test]
fn refusal_of_another_kind_names_the_new_holder() {
    for permits in [2, 3] {
        let mut server = ModelServer::start();
        for (number, lease) in [(HOLDER, LEASE), (WAITER, LEASE), (2, LEASE * 2)] {
            queue(
                &mut server,
                &claim(number, lease),
                liveness(number, 1, None),
            );
        }
        server.pass(LEASE);

        let mut slots = claim(9, LEASE);
        slots.share = Share::slots(permits, 3).expect("at most 3 permits");
        let entering = request(&slots, EnterMode::Queue, liveness(9, 1, None));
        let refused = server.send_enter(&entering);
        assert_eq!(refused, Reply::Error("MISMATCH 1 1".to_owned()));
        assert!(server.is_held_by(2));
    }
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

        server.pass(LEASE / 3);
        for number in (0..4).filter(|number| *number != over) {
            assert!(server.is_held_by(number), "{number} holds in its turn");
            server.leave(number);
        }
        assert_eq!((server.holder(), server.waiters()), (None, Vec::new()));
    }
}

/// The lease of a holder ends, and nobody polls. The release of another one hands over both shares.
///
/// Shows G-05.
#[test]
fn release_hands_over_what_an_ended_lease_has_left() {
    let mut server = ModelServer::start();
    for number in 0..4 {
        let lease = if number == 0 { LEASE / 3 } else { LEASE };
        let mut slot = claim(number, lease);
        slot.share = Share::slots(1, 2).expect("in range");
        queue(&mut server, &slot, liveness(number, 1, None));
    }
    server.pass(LEASE / 3);
    server.leave(1);
    let held = server
        .lock_state()
        .holders()
        .map(|holder| holder.id)
        .collect::<Vec<_>>();
    assert_eq!(held, [id(2), id(3)]);
}

/// A client may propose the token that the server gave last, or one that is far ahead of the clock.
#[test]
fn proposed_token_must_exceed_the_last_token() {
    for ahead in [0, 1, 100_000_000] {
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

/// The others may have died with their program, and each question takes the server some time.
#[test]
fn inspection_asks_for_the_connections_of_the_first_hundred() {
    let mut server = ModelServer::start();
    for number in 0..102 {
        queue(&mut server, &claim(number, LEASE), link(number, 1));
    }
    let connected = server.inspect().into_iter().map(|entry| entry.connected);
    let known: Vec<_> = connected.flatten().collect();
    assert_eq!(known, [false; 100]);
}
