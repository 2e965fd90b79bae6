//! Keys of a Redis server that reject late writers.

use lab_servers::{Redis, Reply};
use leasehold::fence::redis;

use super::{CLAIM, OTHER_CLAIM, TOKENS};

/// Runs a command under a token of the claim `CLAIM`.
fn fenced(server: &Redis, words: &[&str]) -> Reply {
    fenced_as(server, words[0], CLAIM, &words[1..])
}

pub(super) fn fenced_as(server: &Redis, token: &str, claim: &str, words: &[&str]) -> Reply {
    let call = ["EVAL", redis::FENCED, "2", "{a}:mark", "{a}", token, claim];
    server.request(&[&call[..], words].concat())
}

#[track_caller]
pub(super) fn assert_late(reply: &Reply, output: &str) {
    let error = reply
        .error()
        .unwrap_or_else(|| panic!("the late command was accepted: {reply:?}"));
    assert!(
        error.starts_with("LATE ") && error.contains(output),
        "{error}"
    );
}

/// Shows G-19.
#[test]
fn redis_equal_token_of_another_claim_is_rejected() {
    let server = Redis::start();
    for token in TOKENS {
        assert_eq!(
            fenced_as(&server, token, CLAIM, &["SET", "{a}", token]).text(),
            "OK"
        );

        assert_late(
            &fenced_as(&server, token, OTHER_CLAIM, &["SET", "{a}", "other"]),
            "another claim",
        );
        assert_late(
            &fenced_as(&server, token, OTHER_CLAIM, &[]),
            "another claim",
        );

        assert_eq!(
            fenced_as(&server, token, CLAIM, &["GET", "{a}"]).text(),
            token
        );
    }
}

/// A mark of the version without claim ids. The script of that version accepted only such marks.
#[test]
fn redis_mark_without_claim_is_raised_by_a_larger_token_only() {
    let server = Redis::start();
    server.command(&["SET", "{a}:mark", "7"]);
    for token in ["6", "7"] {
        assert_late(
            &fenced_as(&server, token, CLAIM, &["SET", "{a}", "1"]),
            "token 7",
        );
    }
    assert_eq!(server.command(&["GET", "{a}:mark"]).text(), "7");

    assert_eq!(
        fenced_as(&server, "8", CLAIM, &["SET", "{a}", "8"]).text(),
        "OK"
    );
    assert_eq!(
        server.command(&["GET", "{a}:mark"]).text(),
        format!("v2 8 {CLAIM}")
    );
    assert_late(&fenced_as(&server, "8", OTHER_CLAIM, &[]), "another claim");
}

/// A script cannot call a command of more words, and must not raise the mark before it fails.
#[test]
fn redis_command_of_too_many_words_changes_nothing() {
    let server = Redis::start();
    for (values, is_executed) in [(7_898, true), (7_899, false), (8_100, false)] {
        server.command(&["DEL", "{a}", "{a}:mark"]);
        let words = [&["RPUSH", "{a}"][..], &vec!["value"; values]].concat();
        let reply = fenced_as(&server, "9", CLAIM, &words);
        let is_refused = reply
            .error()
            .is_some_and(|error| error.contains("7900 words"));
        assert!(is_refused != is_executed, "{values}: {reply:?}");
        let mark = server.command(&["EXISTS", "{a}:mark"]).int();
        assert_eq!(mark == 1, is_executed, "{values}");
    }
}

/// A call in the form of the earlier version has the command at the position of the claim id.
#[test]
fn redis_call_without_claim_changes_nothing() {
    let server = Redis::start();
    for claim in [
        "",
        "SET",
        "GET",
        &CLAIM[1..],
        &CLAIM.to_uppercase(),
        "6f1c2a4e-9b0d-4c5f-8a7e-3d2b1c0f9e8d",
    ] {
        let error = fenced_as(&server, "7", claim, &["SET", "{a}", "1"]);
        assert!(
            error
                .error()
                .is_some_and(|error| error.contains("a claim id is")),
            "{claim:?}: {error:?}"
        );
    }
    assert!(
        server
            .request(&["EVAL", redis::FENCED, "1", "{a}:mark", "7"])
            .is_error()
    );
    assert!(server.command(&["KEYS", "*"]).list().is_empty());
}

/// Shows G-19.
#[test]
fn redis_fence_refuses_stale_tokens() {
    let server = Redis::start();
    for (at, token) in TOKENS.iter().enumerate() {
        assert_eq!(fenced(&server, &[token]).text(), *token);
        for earlier in &TOKENS[..at] {
            let refused = fenced(&server, &[earlier, "SET", "{a}", "late"]);
            assert_eq!(
                refused.error().map(|error| &error[..5]),
                Some("LATE "),
                "{earlier} after {token}: {refused:?}"
            );
        }
        assert_eq!(
            fenced(&server, &[token, "INCR", "{a}"]).int(),
            i64::try_from(at).expect("few") + 1
        );
    }
    assert_eq!(
        server.command(&["GET", "{a}:mark"]).text(),
        format!("v2 {} {CLAIM}", TOKENS[6])
    );
}

#[test]
fn redis_fence_changes_nothing_on_invalid_input() {
    let server = Redis::start();
    for wrong in ["", "0", "-1", "1.5", "07", "1e9", "184467440737095516150"] {
        assert!(
            fenced(&server, &[wrong, "SET", "{a}", "1"]).is_error(),
            "{wrong:?} is taken for a token"
        );
    }
    assert!(server.command(&["KEYS", "*"]).list().is_empty());
    for foreign in [
        "nobody's",
        "",
        "0",
        "v2 7",
        &format!("v2 x {CLAIM}"),
        &format!("v3 7 {CLAIM}"),
    ] {
        server.command(&["SET", "{a}:mark", foreign]);
        let error = fenced(&server, &["9", "SET", "{a}", "1"]);
        assert!(
            error
                .error()
                .is_some_and(|error| error.contains("is no mark")),
            "{foreign:?}: {error:?}"
        );
    }
    server.command(&["DEL", "{a}:mark"]);
    server.command(&["HSET", "{a}:mark", "f", "1"]);
    assert!(
        fenced(&server, &["7", "SET", "{a}", "1"])
            .error()
            .is_some_and(|error| error.starts_with("WRONGTYPE"))
    );
    assert!(server.command(&["GET", "{a}"]).is_nil());
}

/// The command fails, but the script raises the mark all the same. The next call is compared with
/// the raised mark.
#[test]
fn redis_fence_returns_the_error_of_the_command() {
    let server = Redis::start();
    server.command(&["SET", "{a}", "text"]);
    assert!(
        fenced(&server, &["7", "INCR", "{a}"])
            .error()
            .is_some_and(|error| error.contains("not an integer"))
    );
    assert!(fenced(&server, &["6", "GET", "{a}"]).is_error());
    assert_eq!(fenced(&server, &["7", "GET", "{a}"]).text(), "text");
}

#[test]
fn redis_fence_without_memory_changes_nothing() {
    let server = Redis::start();
    assert_eq!(fenced(&server, &["7", "SET", "{a}", "1"]).text(), "OK");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(fenced(&server, &["8", "SET", "{a}", "2"]).is_error());
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(fenced(&server, &["7", "GET", "{a}"]).text(), "1");
}
