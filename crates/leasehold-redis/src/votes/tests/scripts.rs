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
    let base64_like_a_time_uuid = "AAAAAAAAAAAA1AAA8AAA00==";
    let upper = HEXADECIMAL.to_uppercase();
    for (value, with_expiry, without) in [
        ("leasehold:client", "1", "1"),
        (TIME_UUID, "1", "1"),
        (HEXADECIMAL, "1", "0"),
        (&upper, "0", "0"),
        (&HEXADECIMAL[1..], "0", "0"),
        (&HEXADECIMAL[8..], "1", "0"),
        (&HEXADECIMAL[12..], "0", "0"),
        (base64, "1", "0"),
        (almost_base64, "0", "0"),
        (base64_like_a_time_uuid, "1", "0"),
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
            ("pass 1", "nil"),
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
        ("PX 86399999", "0", 0),
        ("", "1", 1),
    ] {
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            ("@red-inspect a", ",0"),
            ("SET b theirs", "OK"),
            ("HSET c field 1", "1"),
            (&format!("{set} {lives}"), "OK"),
            ("@red-list a b c", &format!("{listed}00")),
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

/// Without the right to publish, waiters poll.
///
/// Shows G-29.
#[test]
fn lock_is_released_without_the_right_to_publish() {
    let value = format!("SET a leasehold:{GONE}{CLAIM}{}", token(1));
    let record = format!("SET a {}H{}{CLAIM}{GONE}", token(1), token(1));
    for (script, set) in [("@leave a w c", value), ("@red-leave a w", record)] {
        let leave = format!("{script} | {CLAIM} {} {GONE} '' '' '' ''", token(1));
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&format!("ZADD w 1 {CLIENT}"), "1"),
            (&set, "OK"),
            ("mute", "nil"),
            (&leave, &format!("1{CLAIM}")),
        ]);
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
    let theirs = format!("elsewhere:{CLIENT}");
    let hash = Sha1::from(&theirs).digest().to_string();
    for (value, is_broken) in [(&*theirs, true), ("other", false)] {
        let leave = format!(
            "@leave a w c | {CLAIM} {} {GONE} '' '' {} ''",
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
        (5, 5, "60000", 5),
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
            let set = format!("SET c {} PX 70000", token(counter));
            server.check(&[(&set, "OK")]);
        }
        let left = match after {
            0 => "-2",
            _ if after == counter => "70000",
            _ => "60000",
        };
        let leave = format!(
            "@leave a w c | {CLAIM} {} {CLIENT} '' '' '' {life}",
            token(highest)
        );
        server.check(&[
            (&leave, &format!("0{CLAIM}")),
            ("GET c", &shown(after)),
            ("PTTL c", left),
        ]);
    }
}

/// A claim removes a value of its own, up to the highest token that it has proposed. Its client
/// waits no longer, whether there was one or not.
///
/// Shows G-03.
#[test]
fn claim_leaves_with_its_own_value() {
    for (claim, highest, has_left) in [
        (CLAIM, 6, true),
        (CLAIM, 5, true),
        (CLAIM, 4, false),
        (CLAIM, 0, true),
        (OTHER, 6, false),
        (OTHER, 0, false),
    ] {
        let value = format!("leasehold:{CLIENT}{claim}{}", token(5));
        let hash = Sha1::from(&value).digest().to_string();
        let leave = format!(
            "@leave a w c | {CLAIM} {} {CLIENT} {CLIENT} '' {} ''",
            token(highest),
            &hash[..32]
        );
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&format!("SET a {value}"), "OK"),
            (&format!("ZADD w 1 {CLIENT}"), "1"),
            (&leave, &format!("{}{CLAIM}", u8::from(has_left))),
            ("GET a", if has_left { "nil" } else { &value }),
            ("ZCARD w", "0"),
        ]);
    }
}

/// A claim takes back a vote up to the highest token that it has proposed, and the master votes for
/// no token up to that one any more.
///
/// Shows G-03, G-04.
#[test]
fn master_remembers_the_tokens_of_a_claim_that_has_left() {
    const DAY: &str = "86400000";
    const LONGER: &str = "90000000";
    let record = |last: u8, mode, number: u8, claim: &str| {
        format!("{}{mode}{}{claim}{CLIENT}", token(last), token(number))
    };
    let own = |last, mode, number| record(last, mode, number, CLAIM);
    let other = |last| record(last, 'H', 1, OTHER);
    let free = |last| format!("{}~", token(last));
    let [none, theirs] = ["nil", "-theirs"].map(str::to_owned);
    for (before, life, highest, there, after, left) in [
        (&none, "", 0, "0", &none, "-2"),
        (&none, "", 5, "0", &free(5), DAY),
        (&theirs, LONGER, 5, "0", &theirs, LONGER),
        (&other(1), LONGER, 5, "0", &other(5), LONGER),
        (&other(6), LONGER, 5, "0", &other(6), LONGER),
        (&own(1, '~', 1), LONGER, 5, "0", &free(5), DAY),
        (&own(5, '~', 1), LONGER, 5, "0", &own(5, '~', 1), LONGER),
        (&own(5, '~', 1), LONGER, 0, "0", &own(5, '~', 1), LONGER),
        (&own(3, 'H', 3), LONGER, 5, "1", &own(5, '~', 3), LONGER),
        (&own(3, 'H', 3), LONGER, 3, "1", &own(3, '~', 3), LONGER),
        (&own(3, 'H', 3), LONGER, 2, "0", &own(3, 'H', 3), LONGER),
        (&own(3, 'H', 3), LONGER, 0, "1", &own(3, '~', 3), LONGER),
        (&own(6, 'H', 3), LONGER, 5, "1", &own(6, '~', 3), LONGER),
        // Its lease has just ended.
        (&own(3, 'H', 3), DAY, 3, "0", &own(3, '~', 3), DAY),
    ] {
        let mut server = ScriptServer::start(SCRIPTS);
        if *before != none {
            server.check(&[(&format!("SET a {before} PX {life}"), "OK")]);
        }
        let leave = format!(
            "@red-leave a w | {CLAIM} {} {CLIENT} {CLIENT} ''",
            token(highest)
        );
        server.check(&[
            (&format!("ZADD w 1 {CLIENT}"), "1"),
            (&leave, &format!("{there}{CLAIM}")),
            ("GET a", after),
            ("PTTL a", left),
            ("ZCARD w", "0"),
        ]);
    }
}

/// The vote for another claim counts until a day before its key expires, and for one more lease if
/// another program has removed the expiry.
///
/// Shows G-03.
#[test]
fn vote_for_another_claim_lasts_for_its_lease() {
    let record =
        |claim: &str, number| format!("{}H{}{claim}{CLIENT}", token(number), token(number));
    let theirs = record(OTHER, 5);
    let held = |left: &str| format!("HY{}{}{left}{CLAIM}{theirs}", token(5), token(5));
    let granted = format!("GY{}{}0000000000{CLAIM}", token(6), token(6));
    for (life, reply, left) in [
        ("PX 86400001", held("0000000001"), "86400001"),
        ("PX 86400000", granted, "86405000"),
        ("", held("0000005000"), "86405000"),
    ] {
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&format!("SET a {theirs} {life}"), "OK"),
            (
                &format!("@red-vote a m w | {} 86405000 '' ''", record(CLAIM, 6)),
                &reply,
            ),
            ("PTTL a", left),
        ]);
    }
}

/// A client that wants a notification is noted with the time since when it waits, and not told who
/// holds the lock. A request of another one notes nobody.
///
/// Shows L2.
#[test]
fn client_that_waits_is_noted_for_a_minute() {
    let value = |claim: &str| format!("leasehold:{CLIENT}{claim}{}\\_k", token(1));
    let record = |claim: &str| format!("{}H{}{claim}{CLIENT}", token(1), token(1));
    for (script, theirs, request, last, left) in [
        (
            "@vote a c w",
            value(OTHER),
            format!("{} 5000 60000", value(CLAIM)),
            0,
            "0090000000",
        ),
        (
            "@red-vote a m w",
            record(OTHER),
            format!("{} 90000000 ''", record(CLAIM)),
            1,
            "0003600000",
        ),
    ] {
        let vote = |waits: &str| format!("{script} | {request} {waits} ''");
        let held = format!("HY{}{}{left}{CLAIM}", token(last), token(1));
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&format!("SET a {theirs} PX 90000000"), "OK"),
            (&vote(&format!("{CLIENT}77")), &held),
            (&vote(&format!("{CLIENT}99")), &held),
            ("ZRANGE w 0 -1 WITHSCORES", &format!("{CLIENT},77")),
            ("PTTL w", "60000"),
            ("PEXPIRE w 1000", "1"),
            (
                &vote("''"),
                &format!("{held}{}", theirs.replace("\\_", " ")),
            ),
            ("ZCARD w", "1"),
            ("PTTL w", "1000"),
        ]);
    }
}

/// The token of a grant is above the counter, if tokens are counted. The counter outlives the
/// lease, for however long the hold is renewed.
///
/// Shows G-04.
#[test]
fn token_of_a_grant_is_above_the_counter() {
    let value = |number| format!("leasehold:{CLIENT}{CLAIM}{}", token(number));
    let vote = |number, life: &str, waits: &str| {
        format!("@vote a c w | {} 5000 {life} {waits} ''", value(number))
    };
    let reply = |outcome: &str, last, number| {
        format!(
            "{outcome}Y{}{}0000000000{CLAIM}",
            token(last),
            token(number)
        )
    };
    for (number, life, waits, outcome, counter, left, renewed) in [
        (5, "60000", "''", "L", 5, "70000", "70000"),
        (6, "60000", "''", "G", 6, "60000", "60000"),
        (5, "''", &*format!("{CLIENT}77"), "G", 5, "70000", "70000"),
    ] {
        let vote = vote(number, life, waits);
        let is_granted = outcome == "G";
        let lease = if is_granted { "5000" } else { "-2" };
        let last = if is_granted { 0 } else { 5 };
        let mut server = ScriptServer::start(SCRIPTS);
        server.check(&[
            (&format!("SET c {} PX 70000", token(5)), "OK"),
            (&vote, &reply(outcome, number, number)),
            ("GET c", &token(counter)),
            ("PTTL c", left),
            ("PTTL a", lease),
            ("PEXPIRE a 3000", if is_granted { "1" } else { "0" }),
            ("PEXPIRE c 70000", "1"),
            (&vote, &reply(outcome, last, number)),
            ("PTTL a", lease),
            ("PTTL c", renewed),
        ]);
    }

    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[
        (&format!("SET a {}", value(4)), "OK"),
        (&format!("SET c {}", token(7)), "OK"),
        (&vote(6, "60000", "''"), &reply("L", 7, 6)),
    ]);
}

/// The reply to a renewal says which of them has taken the lock, if the claim had lost it.
///
/// Shows G-18.
#[test]
fn renewal_that_takes_the_lock_again_is_numbered() {
    let vote = |renewal: u8| {
        format!(
            "@vote a c w | leasehold:{CLIENT}{CLAIM}{}\\_+{renewal} 5000 '' '' R",
            token(5)
        )
    };
    let granted = |last| format!("GY{}{}0000000003{CLAIM}", token(last), token(5));
    let mut server = ScriptServer::start(SCRIPTS);
    server.check(&[(&vote(3), &granted(5)), (&vote(4), &granted(0))]);
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
