//! What users do to the keys of locks, and what a server refuses: other requests of the same lock
//! still get a true answer.

use lab_redis_model::Reply;

use super::scripts::{HOLDER, LEASE, SHARES, WAITER, claims, link, queue};
use super::server::{KEY, ModelServer, Paths, claim, id, liveness, request};
use crate::client::id_text;
use crate::queue::messages::{AbsenceSeen, EnterMode, Renewed};
use crate::queue::scripts::RENEW;
use leasehold_core::store::{Share, Standing};

/// A user removes the expiry of the key, so nothing says when the holder's lease ends.
///
/// Shows S12.
#[test]
fn renewal_of_a_waiter_behind_a_key_without_expiry_reports_no_end() {
    let mut server = ModelServer::start();
    let alive = |number| liveness(number, 1, None);
    for number in [HOLDER, WAITER] {
        queue(&mut server, &claim(number, LEASE), alive(number));
    }
    server.execute(0, &["PERSIST", KEY]);

    let queued = Renewed::Queued {
        position: 1,
        absence: AbsenceSeen::None,
    };
    let renewed = server.renew(&claim(WAITER, LEASE), &alive(WAITER));
    assert_eq!(renewed, queued);
}

/// A user may lack the rights to find out who is connected. Every client then counts as alive.
///
/// Shows G-02.
#[test]
fn nobody_is_absent_for_a_user_without_rights() {
    for denied in ["INFO", "PUBSUB"] {
        for claim in SHARES.map(claims) {
            let mut server = ModelServer::start();
            server.deny(denied);
            for number in [HOLDER, WAITER, 2] {
                let reply =
                    server.enter(&request(&claim(number), EnterMode::Queue, link(number, 1)));
                assert_eq!(reply.absences, []);
            }
            let connected = server.inspect().into_iter().map(|entry| entry.connected);
            assert_eq!(connected.collect::<Vec<_>>(), [None; 3]);

            assert!(server.leave(HOLDER));
            assert!(server.is_held_by(WAITER));
        }
    }
}

/// Without the right to publish, waiters poll.
///
/// Shows G-29.
#[test]
fn lock_is_handed_over_without_the_right_to_publish() {
    for claim in SHARES.map(claims) {
        let mut server = ModelServer::start();
        server.deny("PUBLISH");
        for number in [HOLDER, WAITER, 2] {
            queue(&mut server, &claim(number), liveness(number, 1, None));
        }
        assert!(server.leave(HOLDER));
        assert!(server.is_held_by(WAITER));
    }
}

/// A user has deleted the records, or the order of the waiters. Those who have waited enter again.
///
/// Shows S12.
#[test]
fn waiters_without_one_of_their_keys_are_gone() {
    for (part, claim) in ["claims", "queue"]
        .into_iter()
        .flat_map(|part| SHARES.map(|shares| (part, claims(shares))))
    {
        let mut server = ModelServer::start();
        for number in [HOLDER, WAITER] {
            queue(&mut server, &claim(number), liveness(number, 1, None));
        }
        server.execute(0, &["DEL", &format!("{KEY}:{part}")]);
        assert!(server.inspect().len() <= 1);

        server.leave(HOLDER);
        let waiter = claim(WAITER);
        let poll = request(&waiter, EnterMode::Poll, liveness(WAITER, 1, None));
        assert_eq!(server.enter(&poll).standing, Standing::Gone);
        let next = queue(&mut server, &claim(9), liveness(9, 1, None));
        assert!(next.token().is_some(), "{next:?}");
    }
}

/// A user has deleted the key of the lock. Those who have waited enter again.
///
/// Shows S12.
#[test]
fn claims_without_the_key_of_their_lock_are_gone() {
    for last in [WAITER, 2] {
        let mut server = ModelServer::start();
        for number in HOLDER..=last {
            queue(
                &mut server,
                &claim(number, LEASE),
                liveness(number, 1, None),
            );
        }
        server.execute(0, &["DEL", KEY]);

        let next = queue(&mut server, &claim(9, LEASE), liveness(9, 1, None));
        assert!(next.token().is_some(), "{next:?}");
        assert_eq!(server.inspect().len(), 1);
    }
}

/// The record of a free lock lives for a day, also on a server without memory.
///
/// Shows G-11, S12.
#[test]
fn lock_is_released_on_a_server_without_memory() {
    let mut server = ModelServer::start();
    queue(
        &mut server,
        &claim(HOLDER, LEASE),
        liveness(HOLDER, 1, None),
    );
    server.fill();

    assert!(server.leave(HOLDER));
    assert_eq!(server.holder(), None);
    assert_eq!(server.lives()[0], 86_400_000);
}

/// A user has deleted the record of one of the first two waiters.
///
/// Shows S12.
#[test]
fn lock_is_released_to_waiters_without_records() {
    for lost in [WAITER, 2] {
        let mut server = ModelServer::start();
        for number in 0..3 {
            let claim = claim(number, LEASE);
            queue(&mut server, &claim, liveness(number, 1, None));
        }
        let lost = id_text(id(lost));
        server.execute(0, &["HDEL", &format!("{KEY}:claims"), &lost]);
        assert!(server.leave(HOLDER));
    }
}

/// A user has deleted the order of the waiters.
///
/// Shows S12.
#[test]
fn waiter_without_a_position_is_renewed() {
    for claim in SHARES.map(claims) {
        let mut server = ModelServer::start();
        for number in [HOLDER, WAITER] {
            queue(&mut server, &claim(number), liveness(number, 1, None));
        }
        server.execute(0, &["DEL", &format!("{KEY}:queue")]);
        let queued = Renewed::Queued {
            position: 1,
            absence: AbsenceSeen::None,
        };
        let renewed = server.renew(&claim(WAITER), &liveness(WAITER, 1, None));
        assert_eq!(renewed, queued);
    }
}

/// A user has removed the expiry of its key.
///
/// Shows S12.
#[test]
fn name_without_expiry_is_listed_while_it_is_held() {
    let mut server = ModelServer::start();
    queue(
        &mut server,
        &claim(HOLDER, LEASE),
        liveness(HOLDER, 1, None),
    );
    server.execute(0, &["PERSIST", KEY]);
    assert!(server.is_listed());
    assert_eq!(server.inspect().len(), 1);
}

/// Shows S12.
#[test]
fn renewal_of_a_foreign_key_fails_with_the_reason() {
    renewal_fails_with_the_reason(ModelServer::start());
    let mut redis_7 = ModelServer::start();
    redis_7.throw_tables();
    renewal_fails_with_the_reason(redis_7);
}

fn renewal_fails_with_the_reason(mut server: ModelServer) {
    server.execute(0, &["HSET", KEY, "field", "foreign"]);

    let reply = server.send_renew(&claim(HOLDER, LEASE), &link(HOLDER, 1));
    let is_reason = |reply: &str| reply.starts_with("WRONGTYPE");
    assert!(
        matches!(&reply, Reply::Error(error) if is_reason(error)),
        "{reply:?}"
    );

    let ids = [HOLDER, WAITER].map(|number| id_text(id(number)).to_string());
    let [all, link_text] = [ids.concat(), link(HOLDER, 1).to_string()];
    let renew = |server: &mut ModelServer, second: &str| {
        let keys = ["EVALSHA", RENEW.hash(), "2", KEY, second];
        server.execute(0, &[&keys, &[&*all, &*link_text, "86430000"][..]].concat())
    };
    let reply = renew(&mut server, KEY);
    assert!(matches!(reply, Reply::Error(error) if is_reason(&error)));

    // Another claim of the request is renewed.
    server.execute(0, &["HSET", "foreign", "field", "foreign"]);
    server.execute(0, &["DEL", KEY]);
    queue(&mut server, &claim(HOLDER, LEASE), link(HOLDER, 1));
    let expected = format!("{}1!", ids[0]);
    assert_eq!(renew(&mut server, "foreign"), Reply::Bytes(expected.into()));
}

/// A user has replaced one key of a lock by a key of another type.
///
/// Shows S12.
#[test]
fn request_that_a_foreign_key_refuses_changes_nothing() {
    for claim in SHARES.map(claims) {
        for part in ["", ":claims", ":queue", ":holders"] {
            let mut server = ModelServer::start();
            for number in [HOLDER, WAITER] {
                queue(&mut server, &claim(number), liveness(number, 1, None));
            }
            let key = format!("{KEY}{part}");
            server.execute(0, &["DEL", &key]);
            if part.is_empty() {
                server.execute(0, &["HSET", &key, "field", "foreign"]);
            } else {
                server.execute(0, &["SET", &key, "foreign"]);
            }

            for number in [HOLDER, WAITER, 2] {
                server.assert_refused_without_effect(&claim(number));
            }
        }
    }
}

/// Nothing depends on the note of the last end, whatever a user makes of its key.
#[test]
fn inspection_ignores_a_foreign_note_of_the_last_end() {
    let mut server = ModelServer::start();
    queue(&mut server, &claim(HOLDER, LEASE), link(HOLDER, 1));
    server.execute(0, &["HSET", &format!("{KEY}:ended"), "field", "foreign"]);
    let lock_state = server.lock_state();
    assert_eq!(lock_state.ended, None);
    assert_eq!(lock_state.entries.len(), 1);
}

/// A user has brought back a record of an exclusive holder while others hold.
///
/// Shows S12.
#[test]
fn holders_beside_an_exclusive_one_are_gone() {
    let mut server = ModelServer::with(Paths::Slow, None);
    for number in [HOLDER, WAITER] {
        let claim = claim(number, LEASE);
        queue(&mut server, &claim, liveness(number, 1, None));
    }
    let other = id_text(id(5));
    let [claims, holders] = ["claims", "holders"].map(|part| format!("{KEY}:{part}"));
    server.execute(0, &["HSET", &claims, &other, "a record"]);
    server.execute(0, &["ZADD", &holders, "9999999999999999", &other]);

    let next = queue(&mut server, &claim(9, LEASE), liveness(9, 1, None));
    assert_eq!(next, Standing::Queued { ahead: 1 });
}

/// A user has deleted the list of the holders.
///
/// Shows S12.
#[test]
fn slots_without_their_holders_are_free() {
    let slot = |number| {
        let mut claim = claim(number, LEASE);
        claim.share = Share::slots(1, 2).expect("in range");
        claim
    };
    let mut server = ModelServer::start();
    for number in [HOLDER, WAITER] {
        queue(&mut server, &slot(number), liveness(number, 1, None));
    }
    server.execute(0, &["DEL", &format!("{KEY}:holders")]);

    let tried = slot(9);
    let reply = server.enter(&request(&tried, EnterMode::TryNow, liveness(9, 1, None)));
    assert!(reply.standing.token().is_some(), "{reply:?}");
}

/// While a slot of a cluster moves, its keys are on two nodes.
///
/// Shows G-18.
#[test]
fn name_that_has_moved_to_another_node_is_not_listed() {
    let mut server = ModelServer::start();
    queue(&mut server, &claim(HOLDER, LEASE), link(HOLDER, 1));
    assert!(server.is_listed());
    server.move_away(KEY);
    assert!(!server.is_listed());
}
