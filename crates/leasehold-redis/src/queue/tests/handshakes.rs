//! What the scripts of a new connection find and note.

use std::time::Duration;

use super::server::{DAY, KEY, ModelServer, claim, enter_arguments, liveness, request};
use crate::queue::layout::record as field;
use crate::queue::messages::EnterMode;
use crate::queue::scripts::{ENTER_FIRST, LONGEST_LEASE};
use crate::test_scripts::ScriptServer;

const SCRIPTS: &[(&str, &str)] = &[("server-id", include_str!("../../client/lua/server_id.lua"))];

/// The first claim of a client names the server only if that can tell a missing connection: it
/// counts the subscriber of the client's own channel, and none of a channel that nobody has.
///
/// Shows G-01.
#[test]
fn first_claim_is_bound_to_a_server_that_counts_subscribers() {
    let [own, nobody] = ["leasehold:alive:client-0001", "leasehold:alive:nobody"];
    for (subscribed, is_bound) in [
        (&[own][..], true),
        (&[], false),
        (&[own, nobody], false),
        (&[nobody], false),
    ] {
        let mut server = ModelServer::start();
        for channel in subscribed {
            server.execute(1, &["SUBSCRIBE", channel]);
        }
        let claim = claim(1, Duration::from_secs(30));
        let entering = request(&claim, EnterMode::Queue, liveness(1, 1, None));
        let arguments = enter_arguments(&entering, None);
        let mut words = vec!["EVAL", ENTER_FIRST.text(), "1", KEY];
        words.extend(arguments.iter().map(String::as_str));
        words.extend([own, nobody]);
        server.execute(1, &words);

        let record = server.held().expect("it is held");
        let named = field::SERVER.read(&record).expect("a record");
        let expected = if is_bound { "0123456789" } else { "----------" };
        assert_eq!(named, expected, "{subscribed:?}");
    }
}

#[test]
fn subscribers_and_history_of_a_server_are_read() {
    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[
        ("@server-id | chan nobody", "1,0,0123456789"),
        ("@server-id | nobody chan", "0,1,0123456789"),
    ]);
}

/// The key has the longest lease of all clients, for a month after the last handshake of one that
/// has it.
///
/// Shows G-01.
#[test]
fn longest_lease_of_all_clients_is_kept_for_a_month() {
    const NOTE: &str = "leasehold:{history}:longest";
    const MONTH: i64 = 30 * DAY;
    let mut server = ModelServer::start();
    let mut note = |lease: &str| {
        let reply = server.execute(0, &["EVAL", LONGEST_LEASE.text(), "1", NOTE, lease]);
        assert_eq!(reply, lab_redis_model::Reply::Status("OK".to_owned()));
        server.pass(Duration::from_millis(7));
        let [longest, life] =
            [["GET", NOTE], ["PTTL", NOTE]].map(|words| server.execute(0, &words));
        let longest = match longest {
            lab_redis_model::Reply::Bytes(text) => String::from_utf8(text).expect("a number"),
            reply => panic!("{reply:?}"),
        };
        (longest, life.int() - MONTH)
    };
    assert_eq!(note("9000"), ("9000".to_owned(), -7));
    assert_eq!(note("9000"), ("9000".to_owned(), -7));
    assert_eq!(note("8000"), ("9000".to_owned(), -14));
    assert_eq!(note("10000"), ("10000".to_owned(), -7));
}
