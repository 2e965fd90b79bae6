//! The record of a lock: what the scripts add to it, keep of it, and refuse.

use std::time::Duration;

use lab_redis_model::Reply;

use super::server::{KEY, ModelServer, claim, id, liveness, request};
use crate::client::id_text;
use crate::queue::messages::EnterMode;
use crate::queue::scripts::{COMPLETE, READ_RECORD};

const LEASE: Duration = Duration::from_secs(30);
const RECORD: &str = "leasehold:{a}:record";
/// How long a record is kept, in milliseconds.
const KEPT: i64 = 5_000_000;

fn enter(server: &mut ModelServer, number: u8) {
    let claim = claim(number, LEASE);
    server.enter(&request(
        &claim,
        EnterMode::Queue,
        liveness(number, 1, None),
    ));
}

/// Completes a job under a claim, and leaves; returns the reply without the claim.
fn complete(server: &mut ModelServer, number: u8, kind: char, job: u32) -> String {
    let id = id_text(id(number));
    let [leave, client] = [format!("H{id}"), format!("client-{number:04}")];
    let [life, head] = [KEPT.to_string(), format!("{kind} job-{job} 5")];
    let words = [
        "EVAL",
        COMPLETE.text(),
        "2",
        KEY,
        RECORD,
        &leave,
        &client,
        &life,
        &head,
        "p h",
    ];
    match server.execute(0, &words) {
        Reply::Bytes(text) => {
            let text = String::from_utf8(text).expect("a text");
            text.strip_suffix(&*id)
                .expect("it ends with the claim")
                .to_owned()
        }
        Reply::Error(error) => error,
        reply => panic!("{reply:?}"),
    }
}

fn record(server: &mut ModelServer) -> String {
    match server.execute(0, &["GET", RECORD]) {
        Reply::Bytes(text) => String::from_utf8(text).expect("a text"),
        _ => String::new(),
    }
}

/// Shows G-58.
#[test]
fn record_keeps_the_last_completions_and_the_last_failure() {
    let mut server = ModelServer::start();
    let line = |kind: char, job: u32| format!("{kind} job-{job} 5 1750000000000 p h\n");
    for job in 1..=40 {
        enter(&mut server, 1);
        assert_eq!(complete(&mut server, 1, 'S', job), "1");
        assert_eq!(server.holder(), None);
    }
    let last = |from: u32, to: u32| {
        (from..=to)
            .rev()
            .map(|job| line('S', job))
            .collect::<String>()
    };
    assert_eq!(record(&mut server), format!("v1\n{}", last(9, 40)));

    for job in [41, 42] {
        enter(&mut server, 1);
        assert_eq!(complete(&mut server, 1, 'F', job), "1");
        let expected = format!("v1\n{}{}", last(9, 40), line('F', job));
        assert_eq!(record(&mut server), expected);
    }
    enter(&mut server, 1);
    assert_eq!(complete(&mut server, 1, 'S', 43), "1");
    let expected = format!("v1\n{}{}{}", line('S', 43), last(10, 40), line('F', 42));
    assert_eq!(record(&mut server), expected);
}

/// Only the claim that holds completes a job. A job that is recorded already stays so, and the reply
/// says it.
///
/// Shows G-58.
#[test]
fn claim_that_does_not_hold_records_nothing() {
    let mut unused = ModelServer::start();
    assert_eq!(complete(&mut unused, 1, 'S', 7), "0");
    for waits in [false, true] {
        for (passed, persists, recorded) in [
            (LEASE.saturating_sub(Duration::from_millis(1)), false, "1"),
            (LEASE, false, "0"),
            (LEASE, true, "1"),
        ] {
            let mut server = ModelServer::start();
            enter(&mut server, 1);
            if waits {
                enter(&mut server, 2);
                assert_eq!(complete(&mut server, 2, 'S', 7), "0");
                enter(&mut server, 2);
            }
            if persists {
                server.execute(0, &["PERSIST", KEY]);
            }
            server.pass(passed);
            assert_eq!(complete(&mut server, 1, 'S', 7), recorded);
            let before = record(&mut server);
            assert_eq!(before.is_empty(), recorded == "0");
            assert_eq!(complete(&mut server, 1, 'S', 7), recorded);
            enter(&mut server, 3);
            assert_eq!(complete(&mut server, 3, 'S', 7), "1");
            if recorded == "1" {
                assert_eq!(record(&mut server), before);
            }
        }
    }
}

/// A client that keeps records for longer has set a longer life.
///
/// Shows G-58.
#[test]
fn record_lives_for_the_longest_time_that_a_client_has_set() {
    for (before, after) in [(KEPT / 2, KEPT), (KEPT * 2, KEPT * 2)] {
        let mut server = ModelServer::start();
        server.execute(0, &["SET", RECORD, "v1\n", "PX", &before.to_string()]);
        for (wanted, life) in [(0, before), (before - 1, before), (before, before)] {
            let wanted = wanted.to_string();
            let reading = ["EVAL", READ_RECORD.text(), "2", KEY, RECORD, &wanted];
            let read = [
                Reply::Bytes(b"1750000000000".into()),
                Reply::Bytes(b"v1\n".into()),
            ];
            assert_eq!(server.execute(0, &reading), Reply::List(read.into()));
            assert_eq!(server.execute(0, &["PTTL", RECORD]).int(), life);
        }
        enter(&mut server, 1);
        assert_eq!(complete(&mut server, 1, 'S', 1), "1");
        assert_eq!(server.execute(0, &["PTTL", RECORD]).int(), after);

        let longer = (after + 1).to_string();
        server.execute(0, &["EVAL", READ_RECORD.text(), "2", KEY, RECORD, &longer]);
        assert_eq!(server.execute(0, &["PTTL", RECORD]).int(), after + 1);

        server.execute(0, &["PERSIST", RECORD]);
        server.execute(0, &["EVAL", READ_RECORD.text(), "2", KEY, RECORD, "0"]);
        assert_eq!(server.execute(0, &["PTTL", RECORD]).int(), -1);
    }
}

#[test]
fn record_of_another_version_is_refused() {
    let mut server = ModelServer::start();
    server.execute(0, &["SET", RECORD, "v2\nS job-7 5"]);
    enter(&mut server, 1);
    let refused = format!("VERSION the record {RECORD} does not begin with v1");
    assert_eq!(complete(&mut server, 1, 'S', 7), refused);
    assert!(server.is_held_by(1));
}
