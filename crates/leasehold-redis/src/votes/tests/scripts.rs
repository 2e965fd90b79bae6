//! The scripts on one master, request by request: what other libraries have written there, which
//! waiter is notified, and which tokens are refused.

use sha1_smol::Sha1;

use crate::test_scripts::ScriptServer;

const SCRIPTS: &[(&str, &str)] = &[
    ("list", include_str!("../lua/single_key/list.lua")),
    ("vote", include_str!("../lua/single_key/vote.lua")),
    ("leave", include_str!("../lua/single_key/leave.lua")),
    ("inspect", include_str!("../lua/single_key/inspect.lua")),
    ("red-list", include_str!("../redlock/lua/list.lua")),
    ("red-vote", include_str!("../redlock/lua/vote.lua")),
    ("red-leave", include_str!("../redlock/lua/leave.lua")),
    ("red-inspect", include_str!("../redlock/lua/inspect.lua")),
    ("incarnation", include_str!("../lua/incarnation.lua")),
];
/// Twenty-two characters.
const CLAIM: &str = "claimAAAAAAAAAAAAAAAAA";
const OTHER: &str = "claimBBBBBBBBBBBBBBBBB";
/// The client that receives notifications, and one whose connection is gone.
const CLIENT: &str = "clientXXXXX";
const GONE: &str = "clientYYYYY";

/// Returns a token of nineteen digits.
fn token(number: u8) -> String {
    format!("{number:019}")
}

/// A value is that of a lock by its shape, and if it expires, unless it is a UUID of version 1.
///
/// Shows G-18.
#[test]
fn values_of_other_libraries_are_recognised() {
    const HEXADECIMAL: &str = "9a8e4c7a6f1291efb2c50242ac120002";
    const TIME_UUID: &str = "9a8e4c7a6f1211efb2c50242ac120002";
    let base64 = "AAAA/AAAA+AAAAaaaa0000==";
    let almost_base64 = "AAAA-AAAA+AAAAaaaa0000==";
    let upper = HEXADECIMAL.to_uppercase();
    for (value, with_expiry, without) in [
        ("leasehold:", "1", "1"),
        (TIME_UUID, "1", "1"),
        (HEXADECIMAL, "1", "0"),
        (&upper, "0", "0"),
        (&HEXADECIMAL[1..], "0", "0"),
        (&HEXADECIMAL[8..], "1", "0"),
        (&HEXADECIMAL[12..], "0", "0"),
        (base64, "1", "0"),
        (almost_base64, "0", "0"),
        (&base64[1..], "0", "0"),
        (&format!("{base64}AAAAAAAA"), "0", "0"),
        ("0123456789abcdef012\\xff", "1", "0"),
        ("0123456789abcdef0123456\\xff", "0", "0"),
        ("0123456789abcdef0123456789abcde\\xff", "0", "0"),
        ("0123456789abcdef01\\xff", "0", "0"),
    ] {
        let set = format!("SET a {value}");
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&set, "OK"),
            ("@list a b", &format!("{without}0")),
            (&format!("{set} PX 1"), "OK"),
            ("@list a b", &format!("{with_expiry}0")),
        ]);
    }
    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[("HSET a field 1", "1"), ("@list a", "0")]);
}

#[test]
fn rest_of_a_lease_is_that_of_the_key() {
    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[
        ("@inspect a", ",0"),
        ("SET a leasehold:", "OK"),
        ("@inspect a", "leasehold:,1"),
        ("PEXPIRE a 5000", "1"),
        ("@inspect a", "leasehold:,5000"),
    ]);
}

/// A vote is held while its key lives for more than a day, or without an end.
///
/// Shows G-18.
#[test]
fn vote_is_listed_until_its_lease_ends() {
    let record = format!("{}H{}{CLAIM}{CLIENT}", token(1), token(1));
    let set = format!("SET a {record}");
    for (lives, listed, left) in [
        ("PX 86400001", "1", 1),
        ("PX 86400000", "0", 0),
        ("", "1", 1),
    ] {
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&format!("{set} {lives}"), "OK"),
            ("@red-list a b", &format!("{listed}0")),
            ("@red-inspect a", &format!("{record},{left}")),
        ]);
    }
    // Another program has removed the expiry of the key. The lease ends after the release.
    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[
        (&set, "OK"),
        (
            &format!("@red-leave a w | {CLAIM} {} {CLIENT} '' ''", token(1)),
            &format!("1{CLAIM}"),
        ),
        ("PTTL a", "86400000"),
        (
            "@red-inspect a",
            &format!("{}~{}{CLAIM}{CLIENT},0", token(1), token(1)),
        ),
    ]);
}

/// The votes of a master count only if it has kept what it has voted.
///
/// Shows G-34.
#[test]
fn vote_of_a_master_with_another_incarnation_says_so() {
    let record = format!("{}H{}{CLAIM}{CLIENT}", token(1), token(1));
    let mut server = ScriptServer::start(SCRIPTS);
    for (known, same) in [("''", "Y"), ("mark", "Y"), ("another", "N")] {
        server.check(&[
            ("SET m mark", "OK"),
            ("DEL a", if known == "''" { "0" } else { "1" }),
            (
                &format!("@red-vote a m w | {record} 90000000 {known} ''"),
                &format!("G{same}{}{}0000000000{CLAIM}", token(1), token(1)),
            ),
        ]);
    }
}

/// Sixteen waiters at most are tried. The leaving client is not notified, and waits no longer.
///
/// Shows L2.
#[test]
fn release_notifies_the_first_waiter_with_a_connection() {
    let value = format!("leasehold:{GONE}{CLAIM}{}\\_k", token(1));
    let record = format!("{}H{}{CLAIM}{GONE}\\_k", token(1), token(1));
    for (script, set) in [
        ("@leave a w c", format!("SET a {value}")),
        ("@red-leave a w", format!("SET a {record}")),
    ] {
        let leave = |client: &str, kind: &str| {
            format!(
                "{script} | {CLAIM} {} {GONE} {client} {kind} '' ''",
                token(1)
            )
        };
        let releases = |server: &mut ScriptServer, leave: &str, there: &str, left: &str| {
            server.check(&[(&set, "OK"), (leave, there), ("ZCARD w", left)]);
        };
        let waiting = |gone: usize| {
            let mut server = ScriptServer::start(SCRIPTS);
            for number in 0..gone {
                server.check(&[(&format!("ZADD w {number} client-{number:04}"), "1")]);
            }
            server.check(&[(&format!("ZADD w 99 {CLIENT}"), "1")]);
            server
        };
        let [nobody, somebody] = ["1", "2"].map(|there| format!("{there}{CLAIM}"));
        let notified = format!("{somebody} <Fa>");
        releases(&mut waiting(0), &leave("''", "''"), &notified, "0");
        releases(&mut waiting(15), &leave("''", "''"), &notified, "0");
        releases(&mut waiting(16), &leave("''", "''"), &nobody, "1");
        releases(&mut waiting(0), &leave("''", "Q"), &nobody, "1");
        releases(&mut waiting(1), &leave("client-0000", "Q"), &nobody, "1");
        releases(&mut waiting(0), &leave(CLIENT, "''"), &nobody, "0");
    }
}

/// The client of a broken hold is notified, and only then.
///
/// Shows G-12.
#[test]
fn break_notifies_the_client_of_the_hold() {
    let value = format!("SET a leasehold:{CLIENT}{CLAIM}{}\\_k", token(1));
    let record = format!("SET a {}H{}{CLAIM}{CLIENT}\\_k", token(1), token(1));
    for (script, set) in [("@leave a w c", value), ("@red-leave a w", record)] {
        for (by, note) in [(GONE, format!(" <G{CLAIM}>")), (CLIENT, String::new())] {
            let leave = format!("{script} | {CLAIM} {} {by} '' '' '' ''", token(1));
            let mut server = ScriptServer::start(SCRIPTS);
            server.check(&[(&set, "OK"), (&leave, &format!("1{CLAIM}{note}"))]);
        }
    }
}

/// Shows G-11, S12.
#[test]
fn vote_of_a_master_without_memory_is_released() {
    let record = |mode| format!("{}{mode}{}{CLAIM}{CLIENT}", token(1), token(1));
    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[
        (&format!("SET a {} PX 90000000", record('H')), "OK"),
        ("fill", "nil"),
        (
            &format!("@red-leave a w | {CLAIM} {} {CLIENT} '' ''", token(1)),
            &format!("1{CLAIM}"),
        ),
        ("@red-inspect a", &format!("{},0", record('~'))),
    ]);
}

/// The value of another library is broken if it is as it was read.
///
/// Shows G-18.
#[test]
fn value_of_another_library_is_broken_by_its_hash() {
    let hash = Sha1::from("theirs").digest().to_string();
    for (value, is_broken) in [("theirs", true), ("other", false)] {
        let leave = format!(
            "@leave a w c | {CLAIM} {} {CLIENT} '' '' {} ''",
            token(0),
            &hash[..32]
        );
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&format!("SET a {value}"), "OK"),
            (&leave, &format!("{}{CLAIM}", u8::from(is_broken))),
            ("GET a", if is_broken { "nil" } else { value }),
        ]);
    }
}

/// Leaving raises the counter to the claim's highest proposal, if that is known, and never lowers
/// it.
///
/// Shows G-04.
#[test]
fn counter_of_tokens_never_falls() {
    for (counter, highest, life, after) in [
        (0, 5, "60000", 5),
        (4, 5, "60000", 5),
        (6, 5, "60000", 6),
        (6, 0, "60000", 6),
        (4, 5, "''", 4),
        (0, 0, "60000", 0),
    ] {
        let mut server = ScriptServer::start(SCRIPTS);
        let shown = |number: u8| {
            if number == 0 {
                "nil".to_owned()
            } else {
                token(number)
            }
        };
        if counter > 0 {
            server.check(&[(&format!("SET c {}", token(counter)), "OK")]);
        }
        let leave = format!(
            "@leave a w c | {CLAIM} {} {CLIENT} '' '' '' {life}",
            token(highest)
        );
        server.check(&[(&leave, &format!("0{CLAIM}")), ("GET c", &shown(after))]);
    }
}

/// A vote keeps to the value that is there: of another claim, of the same grant, or of an earlier
/// one. `K` renews a hold only, and `R` takes the lock again if it is free.
///
/// Shows G-03, G-04.
#[test]
fn vote_takes_and_renews_as_its_kind_says() {
    let value = |claim: &str, number: u8| format!("leasehold:{CLIENT}{claim}{}\\_k", token(number));
    let own = |number| value(CLAIM, number);
    let vote =
        |number: u8, kind: &str| format!("@vote a c w | {} 5000 60000 '' {kind}", own(number));
    let granted =
        |last: u8, number: u8| format!("GY{}{}0000000000{CLAIM}", token(last), token(number));
    let refused =
        |last: u8, number: u8| format!("LY{}{}0000000000{CLAIM}", token(last), token(number));
    for (before, number, kind, reply, after) in [
        (None, 5, "''", granted(5, 5), Some(5)),
        (Some(5), 5, "''", granted(0, 5), Some(5)),
        (Some(5), 5, "K", granted(0, 5), Some(5)),
        (Some(5), 5, "R", granted(0, 5), Some(5)),
        (Some(4), 5, "''", granted(5, 5), Some(5)),
        (Some(6), 5, "''", refused(6, 5), Some(6)),
        (Some(4), 5, "K", refused(0, 5), Some(4)),
        (Some(4), 5, "R", refused(0, 5), Some(4)),
        (None, 5, "K", refused(0, 5), None),
        (None, 5, "R", granted(5, 5), Some(5)),
    ] {
        let mut server = ScriptServer::start(SCRIPTS);
        if let Some(before) = before {
            server.check(&[(&format!("SET a {} PX 3000", own(before)), "OK")]);
        }
        let after = after
            .map_or_else(|| "nil".to_owned(), own)
            .replace("\\_", " ");
        server.check(&[(&vote(number, kind), &reply), ("GET a", &after)]);
    }

    // Of another claim, the reply has the token and the time that is left; of another library, the
    // value, if it is a text.
    let theirs = value(OTHER, 7);
    for (value, held) in [
        (theirs.clone(), 7),
        (theirs.replace("\\_", "\\xff"), 0),
        (theirs.replace("leasehold", "elsewhere"), 0),
        ("theirs".to_owned(), 0),
    ] {
        let text = if value.contains("xff") {
            String::new()
        } else {
            value.replace("\\_", " ")
        };
        let mut server = ScriptServer::start(SCRIPTS);
        for (life, left) in [
            ("PX 3000", "0000003000"),
            ("PX 99999999999", "9999999999"),
            ("", "0000000000"),
        ] {
            server.check(&[
                (&format!("SET a {value} {life}"), "OK"),
                (
                    &vote(9, "''"),
                    &format!("HY{}{}{left}{CLAIM}{text}", token(0), token(held)),
                ),
            ]);
        }
    }
}

/// An incarnation lasts as long as its run, and its age counts from the first handshake. After the
/// clock was set back, the age counts from the first handshake after that.
///
/// Shows G-34.
#[test]
fn age_of_an_incarnation_is_never_overestimated() {
    const LATER: &str = "1750000000500000";
    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[
        (
            "@incarnation m n | run 5000",
            "run 1750000000000000 5000,0,5000",
        ),
        ("PTTL m", "864000000"),
        ("pass 10", "nil"),
        (
            "@incarnation m n | run 7000",
            "run 1750000000000000 5000,10000,5000",
        ),
        ("PTTL m", "864000000"),
        (
            "@incarnation m n | other 7000",
            "other 1750000000010000 7000,0,7000",
        ),
        ("EXISTS n", "0"),
    ]);
    let set = format!("SET m run\\_{LATER}\\_5000");
    for noted in [
        "",
        "run\\_1750000000500000\\_1750000000000001",
        "run\\_1\\_1749999999000000",
    ] {
        let mut server = ScriptServer::start(SCRIPTS);
        if !noted.is_empty() {
            server.check(&[(&format!("SET n {noted}"), "OK")]);
        }
        let reply = |age: u32| format!("run {LATER} 5000,{age},5000");
        server.check(&[
            (&set, "OK"),
            ("@incarnation m n | run 5000", &reply(0)),
            ("GET n", &format!("run {LATER} 1750000000000000")),
            ("PTTL n", "864000000"),
            ("pass 100", "nil"),
            ("@incarnation m n | run 5000", &reply(100_000)),
            ("PTTL n", "864000000"),
        ]);
    }
}
