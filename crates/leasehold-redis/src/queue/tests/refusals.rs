//! What the scripts refuse, with the reason, and what they make of keys that a user has changed.

use std::time::Duration;

use lab_redis_model::Reply;

use super::server::{DAY, KEY, ModelServer, claim, enter_arguments, liveness, request};
use crate::queue::messages::{EnterMode, EnterRequest, Renewed};
use crate::queue::scripts::ENTER;
use leasehold_core::store::{Claim, Share, Standing};

const LEASE: Duration = Duration::from_secs(30);
const LEASE_MS: i64 = 30_000;
const HOUR: i64 = 3_600_000;

/// Sends a request to enter; returns the error, or nothing.
fn refusal(server: &mut ModelServer, claim: &Claim, mode: EnterMode, hint: u64) -> String {
    let number = claim.id.to_bytes()[0];
    let reply = server.send_enter(&EnterRequest {
        highest_token: hint,
        ..request(claim, mode, liveness(number, 1, None))
    });
    match reply {
        Reply::Error(error) => error,
        _ => String::new(),
    }
}

fn sharing(number: u8, share: Share) -> Claim {
    let mut claim = claim(number, LEASE);
    claim.share = share;
    claim
}

/// A hint may be ahead of the server's clock, which was set back, but not by more than a day.
///
/// Shows G-04.
#[test]
fn hint_may_be_ahead_by_a_day() {
    const DAY_MICROS: u64 = 86_400_000_000;
    for (ahead, refused) in [(DAY_MICROS, ""), (DAY_MICROS + 1, "HINT the token ")] {
        let mut server = ModelServer::start();
        let hint = server.now + ahead;
        let error = refusal(&mut server, &claim(1, LEASE), EnterMode::Queue, hint);
        assert_eq!(error.is_empty(), refused.is_empty(), "{error}");
        assert!(error.starts_with(refused), "{error}");
        assert!(
            refused.is_empty() || error.contains(&hint.to_string()),
            "{error}"
        );
    }

    // The server's own token is trusted, although its clock was set back since.
    let mut server = ModelServer::start();
    let link = || liveness(1, 1, None);
    let first = server.enter(&request(&claim(1, LEASE), EnterMode::Queue, link()));
    let token = first.standing.token().expect("it is free");
    server.leave(1);
    server.now -= 2 * DAY_MICROS;
    let error = refusal(&mut server, &claim(2, LEASE), EnterMode::Queue, token.get());
    assert_eq!(error, "");
}

/// The client waits for a reply until a second of the server's clock.
///
/// Shows G-10.
#[test]
fn late_request_to_enter_has_no_effect() {
    for (until, reply) in [("1750000000", ""), ("1749999999", "LATE 1750000000 0")] {
        let mut server = ModelServer::start();
        let claim = claim(1, LEASE);
        let entering = request(&claim, EnterMode::Queue, liveness(1, 1, None));
        let mut arguments = enter_arguments(&entering, None);
        until.clone_into(&mut arguments[3]);
        let mut words = vec!["EVAL", ENTER.text(), "1", KEY];
        words.extend(arguments.iter().map(String::as_str));
        match server.execute(0, &words) {
            Reply::Error(error) => assert_eq!(error, reply),
            _ => assert!(reply.is_empty(), "{until}"),
        }
        assert_eq!(server.is_held_by(1), reply.is_empty());
    }
}

/// Whether claims hold or only wait, a claim of another kind is refused with theirs.
///
/// Shows G-07.
#[test]
fn claim_of_another_kind_is_refused_with_the_present_one() {
    const CAPACITY: u32 = Share::RW_CAPACITY;
    for (present, waits, weight, capacity) in [
        (Share::MUTEX, false, 1, 1),
        (Share::READER, false, 1, CAPACITY),
        (Share::WRITER, true, CAPACITY, CAPACITY),
        (Share::READER, true, 1, CAPACITY),
    ] {
        let mut server = ModelServer::start();
        // The new master grants nothing before the longest lease has passed.
        server.longest_lease = waits.then_some("30000");
        refusal(&mut server, &sharing(1, present), EnterMode::Queue, 0);
        let slot = Share::slots(1, 3).expect("in range");
        for mode in [EnterMode::Queue, EnterMode::TryNow] {
            let error = refusal(&mut server, &sharing(2, slot), mode, 0);
            assert_eq!(error, format!("MISMATCH {weight} {capacity}"));
        }
    }
}

#[test]
fn layout_of_another_version_is_named() {
    for (version, named) in [(" v2 1 1", "v2"), (" 1 1 0000", "v0"), (" v12 1 1", "v12")] {
        let record = format!("{:016}H{:069}{version}", 5, 0);
        let mut server = ModelServer::start();
        server.execute(0, &["SET", KEY, &record]);
        let error = refusal(&mut server, &claim(1, LEASE), EnterMode::Queue, 0);
        let expected = format!("VERSION the key {KEY} has the layout {named}, not v1");
        assert_eq!(error, expected);
    }
}

/// A token that is far ahead of the server's clock is damage. Clocks are set back by less.
///
/// Shows S12.
#[test]
fn token_far_in_the_future_is_refused() {
    const YEARS: u64 = 10 * 31_557_600_000_000;
    for (ahead, is_refused) in [(YEARS, false), (YEARS + 1, true)] {
        for mode in ['~', 'H'] {
            let mut server = ModelServer::start();
            let token = server.now + ahead;
            let record = format!("{token:016}{mode}{:069} v1 1 1 30000 1 p h l", 0);
            let life = (DAY + LEASE_MS).to_string();
            server.execute(0, &["SET", KEY, &record, "PX", &life]);
            let error = refusal(&mut server, &claim(1, LEASE), EnterMode::Queue, 0);
            assert_eq!(
                error.starts_with("FUTURE the token "),
                is_refused,
                "{error}"
            );
        }
    }

    // A hand-over counts on from that token.
    let mut server = ModelServer::start();
    for number in [1, 2] {
        let link = liveness(number, 1, None);
        server.enter(&request(&claim(number, LEASE), EnterMode::Queue, link));
    }
    let far = format!("{:016}", server.now + YEARS + 1);
    server.execute(0, &["SETRANGE", KEY, "0", &far]);
    let reply = server.send_leave(1);
    let is_refused = |error: &str| error.starts_with("FUTURE the token ");
    assert!(
        matches!(&reply, Reply::Error(error) if is_refused(error)),
        "{reply:?}"
    );
}

/// A user removes the expiry of the key. The hold ends a lease after the next request, or lasts as
/// long as it is renewed.
///
/// Shows S12.
#[test]
fn hold_whose_key_has_no_expiry_ends_after_its_lease() {
    for is_renewed in [false, true] {
        let mut server = ModelServer::start();
        let holder = claim(1, LEASE);
        let link = || liveness(1, 1, None);
        server.enter(&request(&holder, EnterMode::Queue, link()));
        server.pass(LEASE / 2);
        server.execute(0, &["PERSIST", KEY]);
        if is_renewed {
            assert_eq!(server.renew(&holder, &link()), Renewed::Held);
            assert_eq!(server.lives()[0], LEASE_MS + DAY);
            server.execute(0, &["PERSIST", KEY]);
        }

        let next = claim(2, LEASE);
        let tried = |server: &mut ModelServer| {
            let reply = server.enter(&request(&next, EnterMode::TryNow, liveness(2, 1, None)));
            reply.standing != Standing::Gone
        };
        assert!(!tried(&mut server));
        assert_eq!(server.lives()[0], LEASE_MS + DAY);
        server.pass(LEASE.saturating_sub(Duration::from_millis(1)));
        assert!(!tried(&mut server));
        server.pass(Duration::from_millis(1));
        assert!(tried(&mut server));
    }
}

/// A user deletes the keys of the waiters. That of the next waiter does not stay for ever.
#[test]
fn keys_that_a_user_has_deleted_expire_when_they_are_back() {
    let mut server = ModelServer::start();
    for number in 1..=3 {
        server.enter(&request(
            &claim(number, LEASE),
            EnterMode::Queue,
            liveness(number, 1, None),
        ));
    }
    server.execute(
        0,
        &["DEL", &format!("{KEY}:claims"), &format!("{KEY}:queue")],
    );
    server.enter(&request(
        &claim(4, LEASE),
        EnterMode::Queue,
        liveness(4, 1, None),
    ));
    let [_, claims, queue, _] = server.lives();
    for life in [claims, queue] {
        assert!((47 * HOUR..=48 * HOUR).contains(&life), "{life}");
    }
}

/// What a new master must know of the one before, and of its clients, lasts for a month after a
/// request.
///
/// Shows G-01.
#[test]
fn wait_after_a_failover_is_known_for_a_month() {
    const MONTH: i64 = 30 * DAY;
    const KEYS: [&str; 2] = ["leasehold:{history}:since", "leasehold:{history}:longest"];
    for (own, is_longest) in [("30000", true), ("20000", false)] {
        let mut server = ModelServer::start();
        server.longest_lease = Some(own);
        server.execute(0, &["SET", KEYS[1], "30000", "PX", "5000000"]);
        for _ in 0..2 {
            server.enter(&request(
                &claim(1, LEASE),
                EnterMode::Queue,
                liveness(1, 1, None),
            ));
            let [since, longest] = KEYS.map(|key| server.execute(0, &["PTTL", key]).int());
            assert_eq!((since, longest == MONTH), (MONTH, is_longest));
            server.leave(1);
            server.pass(Duration::from_secs(3_600));
        }
    }
}
