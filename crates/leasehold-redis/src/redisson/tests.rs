//! The scripts, request by request: what programs of Redisson have written, and what they receive.

use crate::test_scripts::ScriptServer;

const LOCK: &[(&str, &str)] = &[
    ("lock", include_str!("lua/lock.lua")),
    ("unlock", include_str!("lua/unlock.lua")),
    ("renew", include_str!("lua/renew.lua")),
    ("inspect", include_str!("lua/inspect.lua")),
    ("list", include_str!("lua/list.lua")),
];
const READ_WRITE: &[(&str, &str)] = &[
    ("lock", include_str!("lua/rw_lock.lua")),
    ("unlock", include_str!("lua/rw_unlock.lua")),
    ("renew", include_str!("lua/rw_renew.lua")),
    ("inspect", include_str!("lua/rw_inspect.lua")),
    ("list", include_str!("lua/rw_list.lua")),
];
const SEMAPHORE: &[(&str, &str)] = &[
    ("lock", include_str!("lua/semaphore_lock.lua")),
    ("unlock", include_str!("lua/semaphore_unlock.lua")),
    ("renew", include_str!("lua/semaphore_renew.lua")),
    ("inspect", include_str!("lua/semaphore_inspect.lua")),
    ("list", include_str!("lua/semaphore_list.lua")),
];

/// A thread of Redisson, and the beginning of the hash of its field.
const THREAD: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
/// The claims of leasehold.
const OURS: &str = "00000000-0000-4000-8000-000000000001";
const THEIRS: &str = "00000000-0000-4000-8000-000000000002";
/// The clock of the server at the start, in microseconds and in milliseconds.
const NOW: &str = "1750000000000000";
const NOW_MS: i64 = 1_750_000_000_000;

fn hash_of(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()[..32].to_owned()
}

/// The reply names the type of the key, or what other lock it is. Nothing is changed.
///
/// Shows G-55.
#[test]
fn key_of_another_kind_is_named_and_not_changed() {
    let rw = &[
        "HSET a mode write field 1",
        "HSET a field 1 mode write",
        "HSET a mode read",
        "HSET a mode read f:1 1 f:2 1",
    ];
    let lock = &format!("HSET a {THREAD} 1");
    let set = &["SET a text"];
    let zset = &["ZADD a 1 member"];
    for (scripts, commands, kind) in [
        (LOCK, &rw[..], "readwrite"),
        (LOCK, &["HSET a field 1"], "hash"),
        (LOCK, &["HSET a f:1 1 f:2 1"], "hash"),
        (LOCK, set, "string"),
        (LOCK, zset, "zset"),
        (READ_WRITE, &[&**lock], "lock"),
        (READ_WRITE, set, "string"),
        (SEMAPHORE, set, "text"),
        (SEMAPHORE, zset, "zset"),
        (SEMAPHORE, &["SET c 1"], "string"),
    ] {
        for command in commands {
            let mut server = ScriptServer::start(scripts);
            let created = if command.starts_with("SET") { "OK" } else { "" };
            let reply = match command.split(' ').count() {
                _ if !created.is_empty() => created,
                4 => "1",
                6 => "2",
                _ => "3",
            };
            server.check(&[
                (command, reply),
                (
                    &format!("@lock a d c | {OURS} 5000 9999999999999999 _ write chan 1 ''"),
                    &format!("F,{kind}"),
                ),
                ("@inspect a c", &format!("{kind},,")),
            ]);
            for field in ["mode", "field", "f:1", "f:2", "text", THREAD] {
                let unlock = format!("@unlock a d c | {OURS} {} chan ''", hash_of(field));
                if kind != "hash" {
                    server.check(&[(&unlock, "0,0")]);
                }
            }
            server.check(&[("@list a c", "00"), ("EXISTS a c", "1")]);
        }
    }
}

/// A holder of an `RReadWriteLock` is shown with its kind, its acquires and its lease.
///
/// Shows G-55.
#[test]
fn holders_of_redisson_are_shown_with_their_kind() {
    let mut server = ScriptServer::start(READ_WRITE);
    let timeout =
        |number: u8, lease: u32| format!("SET c:{THREAD}:rwlock_timeout:{number} 1 PX {lease}");
    server.check(&[
        ("@inspect a c", ",,"),
        ("@list a", "0"),
        (&format!("HSET a mode write {THREAD}:write 2"), "2"),
        ("PEXPIRE a 9000", "1"),
        ("@inspect a c", &format!(",,,{THREAD}:write,2,9000,W")),
        // The thread that writes may read as well.
        (&format!("HSET a {THREAD} 2"), "1"),
        (&timeout(1, 3000), "OK"),
        (&timeout(2, 7000), "OK"),
        (
            "@inspect a c",
            &format!(",,,{THREAD}:write,2,9000,W,{THREAD},2,7000,R"),
        ),
        ("@list a", "1"),
        (
            &format!("@lock a d c | {OURS} 5000 9999999999999999 _ write chan"),
            &format!("H,9000,{THREAD}:write,2,9000,W,{THREAD},2,9000,W"),
        ),
        (
            &format!("@unlock a d c | {OURS} {} chan ''", hash_of("mode")),
            "0,0",
        ),
        // The writer leaves.
        (
            &format!(
                "@unlock a d c | {OURS} {} chan ''",
                hash_of(&format!("{THREAD}:write"))
            ),
            "1,1 <1>",
        ),
        ("@inspect a c", &format!(",,,{THREAD},2,7000,R")),
        (
            &format!("@lock a d c | {OURS} 5000 9999999999999999 _ write chan"),
            &format!("H,9000,{THREAD},2,9000,R"),
        ),
        ("@list a", "1"),
        (
            &format!("@unlock a d c | {OURS} {} chan ''", hash_of(THREAD)),
            "1,1 <0>",
        ),
        ("EXISTS a", "0"),
        (
            &format!("@unlock a d c | {OURS} {} chan ''", hash_of(THREAD)),
            "0,0",
        ),
        (&format!("HSET a mode neither {THREAD} 1"), "2"),
        ("@list a", "0"),
    ]);
}

/// What leasehold writes has the layout of Redisson: a key for the lease of each reader, and a hash
/// that lives as long as the last of them. The messages are those of Redisson.
///
/// Shows G-55.
#[test]
fn readers_and_writers_of_leasehold_are_those_of_redisson() {
    let lock = |claim: &str, lease: u32, mode: &str| {
        format!("@lock a d c | {claim} {lease} 9999999999999999 _ {mode} chan")
    };
    let unlock = |claim: &str, late: &str| format!("@unlock a d c | {claim} - chan {late}");
    let [ours, theirs] = [OURS, THEIRS].map(|claim| format!("{claim}:{NOW}_"));
    let timeout = format!("c:{ours}:rwlock_timeout:1");
    let renew = |field: &str, lease: &str| format!("@renew a c | {field} {lease} ''");
    let mut server = ScriptServer::start(READ_WRITE);
    server.check(&[
        (&lock(OURS, 5000, "read"), &format!("G,{ours}")),
        (&format!("GET {timeout}"), "1"),
        (&format!("PTTL {timeout}"), "5000"),
        (&format!("HGET a {ours}"), "1"),
        ("PTTL a", "5000"),
        (&lock(THEIRS, 2000, "read"), &format!("G,{theirs}")),
        ("PTTL a", "5000"),
        (&renew(&theirs, "9000"), "1"),
        ("PTTL a", "9000"),
        (&renew(&ours, "4000"), "1"),
        ("PTTL a", "9000"),
        (&format!("PTTL {timeout}"), "4000"),
        (&renew(&ours, "''"), "1"),
        (&format!("PTTL {timeout}"), "4000"),
        // The lease of the other reader is the last one.
        (&unlock(THEIRS, "''"), "1,0"),
        ("PTTL a", "4000"),
        (
            &lock(THEIRS, 5000, "write"),
            &format!("H,4000,{ours},1,4000,R"),
        ),
        (&unlock(OURS, "700"), "1,1 <0>"),
        ("PTTL d", "700"),
        ("EXISTS a", "0"),
        (&lock(OURS, 5000, "read"), "C,"),
        ("DEL d", "1"),
        // A writer becomes a reader, and another reader comes.
        (&lock(OURS, 5000, "write"), &format!("G,{ours}")),
        (&format!("EXISTS {timeout}"), "0"),
        (&renew(&ours, "6000"), "1"),
        ("PTTL a", "6000"),
        (&lock(OURS, 5000, "downgrade"), &format!("G,{ours} <1>")),
        (&format!("PTTL {timeout}"), "5000"),
        (&lock(OURS, 5000, "downgrade"), &format!("G,{ours}")),
        (&lock(THEIRS, 5000, "read"), &format!("G,{theirs}")),
        ("PTTL a", "6000"),
        // The lease of a reader that asks again is over, and it is the last one, or it is not.
        (&format!("DEL {timeout}"), "1"),
        (&renew(&ours, "5000"), "0"),
        (&lock(OURS, 5000, "downgrade"), "C,"),
        (&format!("HEXISTS a {ours}"), "0"),
        (&format!("HEXISTS a {theirs}"), "1"),
        (&format!("DEL c:{theirs}:rwlock_timeout:1"), "1"),
        (&lock(THEIRS, 5000, "downgrade"), "C,"),
        ("EXISTS a", "0"),
    ]);
}

/// The reader that leaves is followed by one whose lease ends this very moment, or a moment later.
///
/// Shows G-23.
#[test]
fn lock_is_free_when_the_lease_of_the_last_reader_has_ended() {
    for (left, exists) in [("1", "1"), ("0", "0")] {
        let ours = format!("{OURS}:{NOW}_");
        let mut server = ScriptServer::start(READ_WRITE);
        server.check(&[
            (
                &format!("@lock a d c | {OURS} 5000 9999999999999999 _ read chan"),
                &format!("G,{ours}"),
            ),
            (&format!("HSET a {THREAD} 1"), "1"),
        ]);
        if left == "1" {
            let timeout = format!("SET c:{THREAD}:rwlock_timeout:1 1 PX {left}");
            server.check(&[(&timeout, "OK")]);
        }
        let reply = if left == "1" { "1,0" } else { "1,1 <0>" };
        server.check(&[
            (&format!("@unlock a d c | {OURS} - chan ''"), reply),
            ("EXISTS a", exists),
        ]);
    }
}

/// A reader whose lease has ended held the lock no more when it left.
///
/// Shows G-52.
#[test]
fn reader_whose_lease_has_ended_did_not_hold() {
    let ours = format!("{OURS}:{NOW}_");
    let mut server = ScriptServer::start(READ_WRITE);
    server.check(&[
        (
            &format!("@lock a d c | {OURS} 5000 9999999999999999 _ read chan"),
            &format!("G,{ours}"),
        ),
        ("PEXPIRE a 9000", "1"),
        ("pass 5001", "nil"),
        (&format!("@unlock a d c | {OURS} - chan ''"), "0,1 <0>"),
        ("EXISTS a", "0"),
    ]);
}

/// An `RLock` is a hash with one field, which lives for the lease. A request that is repeated finds it.
///
/// Shows G-55.
#[test]
fn locks_of_leasehold_are_those_of_redisson() {
    let lock =
        |claim: &str, lease: u32| format!("@lock a d c | {claim} {lease} 9999999999999999 _");
    let ours = format!("{OURS}:{NOW}_");
    let renew = |lease: &str| format!("@renew a | {ours} {lease} ''");
    let mut server = ScriptServer::start(LOCK);
    server.check(&[
        ("@inspect a c", ",,"),
        ("@list a", "0"),
        (&lock(OURS, 5000), &format!("G,{ours}")),
        (&format!("HGET a {ours}"), "1"),
        ("PTTL a", "5000"),
        ("pass 1000", "nil"),
        (&lock(THEIRS, 5000), &format!("H,4000,{ours},1,4000,M")),
        ("@inspect a c", &format!(",,,{ours},1,4000,M")),
        ("@list a", "1"),
        (&renew("''"), "1"),
        ("PTTL a", "4000"),
        (&renew("6000"), "1"),
        ("PTTL a", "6000"),
        (&lock(OURS, 7000), &format!("G,{ours}")),
        ("PTTL a", "7000"),
        (&format!("@unlock a d c | {THEIRS} - chan ''"), "0,0"),
        (&format!("@unlock a d c | {OURS} - chan 700"), "1,1 <0>"),
        ("EXISTS a", "0"),
        (&renew("6000"), "0"),
        ("PTTL d", "700"),
        (&lock(OURS, 5000), "C,"),
        // The fencing token of an RFencedLock is a counter of the server.
        (
            &format!("@lock a e c t | {OURS} 5000 9999999999999999 _"),
            &format!("G,{OURS}:1_"),
        ),
        ("@inspect a c t", &format!(",1,,{OURS}:1_,1,5000,M")),
        // A thread of Redisson, without an end.
        (&format!("@unlock a d c | {OURS} - chan ''"), "1,1 <0>"),
        (&format!("HSET a {THREAD} 2"), "1"),
        (&lock(THEIRS, 5000), &format!("H,-1,{THREAD},2,-1,M")),
        ("@list a", "1"),
        (
            &format!("@unlock a d c | {OURS} {} chan ''", hash_of(THREAD)),
            "1,1 <0>",
        ),
        // The waiters of an RFairLock, whether somebody holds it or not.
        ("SET c waiters", "OK"),
        (&lock(THEIRS, 5000), "F,fair"),
        (&format!("HSET a {THREAD} 2"), "1"),
        (&lock(THEIRS, 5000), "F,fair"),
        // The request is late.
        (
            &format!("@lock a d e | {THEIRS} 5000 1750000000999999 _"),
            "L,1750000001000000",
        ),
    ]);
}

/// A permit of an `RPermitExpirableSemaphore` is free when its lease has ended, and the waiters
/// receive the number of free ones.
///
/// Shows G-55.
#[test]
fn permits_of_leasehold_are_those_of_redisson() {
    let lock = |claim: &str, permits: u8, has_earlier: &str| {
        format!("@lock a d c | {claim} 5000 9999999999999999 _ {permits} chan 3 {has_earlier}")
    };
    let ours = format!("{OURS}:{NOW}_");
    let second = format!("{ours}#2");
    let end = NOW_MS + 5000;
    let renew = |permits: u8, lease: &str| format!("@renew a c | {ours} {lease} {permits}");
    let mut server = ScriptServer::start(SEMAPHORE);
    server.check(&[
        ("@inspect a c", ",,0"),
        ("@list c", "0"),
        (&lock(OURS, 2, "''"), &format!("G,{ours}")),
        ("GET a", "1"),
        ("@list c", "1"),
        (
            "@inspect a c",
            &format!(",,3,{ours},1,5000,P,{second},1,5000,P"),
        ),
        (
            &lock(THEIRS, 2, "''"),
            &format!("H,5000,{ours},1,5000,P,{second},1,5000,P"),
        ),
        // The lease of a permit that Redisson holds without an end.
        ("ZADD c 922337203685477 endless", "1"),
        ("DECRBY a 1", "0"),
        (
            "@inspect a c",
            &format!(",,3,{ours},1,5000,P,{second},1,5000,P,endless,1,-1,P"),
        ),
        ("pass 1000", "nil"),
        // The claim finds what it has, after a reply that was lost.
        (&lock(OURS, 2, "1"), &format!("G,{ours}")),
        (&format!("ZSCORE c {second}"), &(end + 1000).to_string()),
        (
            &lock(OURS, 2, "''"),
            &format!("H,5000,{ours},1,5000,P,{second},1,5000,P,endless,1,-1,P"),
        ),
        ("pass 1000", "nil"),
        (&renew(2, "5000"), "1"),
        (&format!("ZSCORE c {ours}"), &(end + 2000).to_string()),
        (&format!("ZSCORE c {second}"), &(end + 2000).to_string()),
        (&renew(3, "5000"), "0"),
        (&renew(2, "''"), "1"),
        (&format!("ZREM c {second}"), "1"),
        (&renew(2, "5000"), "0"),
        (&renew(1, "5000"), "1"),
        ("pass 4999", "nil"),
        ("@list c", "1"),
        (&format!("@unlock a d c | {OURS} - chan ''"), "1,1 <1>"),
        ("ZCARD c", "1"),
        // Another program has counted the permits wrongly.
        (&lock(THEIRS, 2, "''"), "S,2"),
        ("SET a 2", "OK"),
        (
            &lock(THEIRS, 2, "''"),
            &format!("G,{THEIRS}:1750000006999000_"),
        ),
        ("GET a", "0"),
        ("pass 5000", "nil"),
        // The leases of two permits end, and the first request after that gives them back.
        (&lock(OURS, 3, "''"), "H,-1,endless,1,-1,P <2>"),
        ("GET a", "2"),
        (
            &format!("@unlock a d c | {OURS} {} chan 700", hash_of("endless")),
            "1,1 <3>",
        ),
        ("PTTL d", "700"),
        (&lock(OURS, 3, "''"), "C,"),
        // A permit whose lease ends this very moment is given back, and was held no more.
        ("DEL d", "1"),
        (&lock(OURS, 1, "''"), &format!("G,{OURS}:1750000011999000_")),
        ("pass 5000", "nil"),
        ("@list c", "0"),
        ("@inspect a c", ",,3"),
        (&format!("@unlock a d c | {OURS} - chan ''"), "0,1 <3>"),
    ]);
}

/// More permits are held than there are: a program of Redisson has lowered the number. No waiter is
/// told of the permit that ends, because none is free.
#[test]
fn permit_that_ends_below_zero_is_no_news() {
    for (free, message) in [("-1", ""), ("0", " <1>")] {
        let mut server = ScriptServer::start(SEMAPHORE);
        let size = free.parse::<i64>().expect("a number") + 2;
        let reply = format!("@lock a d c | {OURS} 5000 9999999999999999 _ 3 chan {size} ''");
        server.check(&[
            (&format!("SET a {free}"), "OK"),
            ("ZADD c 1 ended 922337203685477 endless", "2"),
            (&reply, &format!("H,-1,endless,1,-1,P{message}")),
        ]);
    }
}

/// A server without memory renews all permits of a claim, or none.
#[test]
fn server_without_memory_renews_no_permit_in_part() {
    let ours = format!("{OURS}:{NOW}_");
    let mut server = ScriptServer::start(SEMAPHORE);
    server.check(&[
        (
            &format!("@lock a d c | {OURS} 5000 9999999999999999 _ 2 chan 2 ''"),
            &format!("G,{ours}"),
        ),
        ("pass 1000", "nil"),
        ("fill", "nil"),
        (&format!("@renew a c | {ours} 5000 2"), "1"),
        (&format!("ZSCORE c {ours}#2"), &(NOW_MS + 6000).to_string()),
        (&format!("@renew a c | {ours} '' 2"), "1"),
    ]);
}

/// A server on which the lease cannot be set keeps no lock.
#[test]
fn lock_without_a_lease_is_not_kept() {
    for (scripts, mode) in [(LOCK, ""), (READ_WRITE, "write chan")] {
        let mut server = ScriptServer::start(scripts);
        server.check(&[
            (
                &format!("@lock a d c | {OURS} 1e30 9999999999999999 _ {mode}"),
                "ERR value is not an integer or out of range",
            ),
            ("EXISTS a", "0"),
        ]);
    }
}

/// The time until which a client waits is the last one at which the server grants.
///
/// Shows G-55.
#[test]
fn request_is_late_a_microsecond_after_its_time() {
    for (scripts, rest) in [
        (LOCK, ""),
        (READ_WRITE, "read chan"),
        (SEMAPHORE, "1 chan 3 ''"),
    ] {
        let lock = |until: i64| format!("@lock a d c | {OURS} 5000 {until} _ {rest}");
        let mut server = ScriptServer::start(scripts);
        server.check(&[
            (&lock(NOW_MS * 1000 - 1), &format!("L,{NOW}")),
            (&lock(NOW_MS * 1000), &format!("G,{OURS}:{NOW}_")),
        ]);
    }
}

/// A claim whose hold is gone renews nothing, whatever has its key now, and the other holds of the
/// request are renewed.
///
/// Shows G-55.
#[test]
fn renewal_changes_no_key_of_others() {
    let permit = format!("ZADD b {} {OURS}", NOW_MS + 5000);
    for (scripts, keys, own, added) in [
        (LOCK, "a b", &format!("HSET b {OURS} 1"), "1"),
        (
            READ_WRITE,
            "a c b c",
            &format!("HSET b mode write {OURS} 1"),
            "2",
        ),
        (SEMAPHORE, "c a c b", &permit, "1"),
    ] {
        for (other, reply) in [
            ("SET a text", "OK"),
            ("HSET a f:1 1", "1"),
            ("ZADD a 9999999999999 member", "1"),
        ] {
            let mut server = ScriptServer::start(scripts);
            server.check(&[
                (other, reply),
                ("PEXPIRE a 5000", "1"),
                (own, added),
                (
                    &format!("@renew {keys} | {OURS} 9000 1 {OURS} 9000 1"),
                    "01",
                ),
                ("PTTL a", "5000"),
            ]);
        }
    }
}

/// A claim that asks again keeps the lock as it has it. A reader does not become a writer before
/// its lease has ended.
///
/// Shows G-55.
#[test]
fn claim_that_asks_again_keeps_its_kind() {
    let lock = |claim: &str, mode: &str| {
        format!("@lock a d c | {claim} 5000 9999999999999999 _ {mode} chan")
    };
    let ours = format!("{OURS}:{NOW}_");
    let granted = format!("G,{ours}");
    let mut server = ScriptServer::start(READ_WRITE);
    server.check(&[
        (&lock(OURS, "write"), &granted),
        (&lock(OURS, "write"), &granted),
        ("@inspect a c", &format!(",,,{ours},1,5000,W")),
        (&lock(THEIRS, "read"), &format!("H,5000,{ours},1,5000,W")),
        (&format!("@unlock a d c | {OURS} - chan ''"), "1,1 <1>"),
        ("EXISTS a", "0"),
        (&lock(OURS, "read"), &granted),
        (&lock(OURS, "read"), &granted),
        ("@inspect a c", &format!(",,,{ours},1,5000,R")),
        (&lock(OURS, "write"), &format!("H,5000,{ours},1,5000,R")),
        (&format!("DEL c:{ours}:rwlock_timeout:1"), "1"),
        ("@inspect a c", ",,"),
        (&lock(OURS, "write"), &granted),
        ("HGET a mode", "write"),
    ]);
}

/// The lease of a reader is the longest one of its acquires, and that of the hash is the longest
/// one of the readers that stay.
///
/// Shows G-55.
#[test]
fn longest_lease_of_readers_counts() {
    let timeout = |field: &str, number: u8, lease: u32| {
        format!("SET c:{field}:rwlock_timeout:{number} 1 PX {lease}")
    };
    let mut server = ScriptServer::start(READ_WRITE);
    server.check(&[
        (&format!("HSET a mode read {THREAD} 2 f:1 1 f:2 1"), "4"),
        (&timeout(THREAD, 1, 9000), "OK"),
        (&timeout(THREAD, 2, 3000), "OK"),
        (&timeout("f:1", 1, 8000), "OK"),
        (
            "@inspect a c",
            &format!(",,,{THREAD},2,9000,R,f:1,1,8000,R"),
        ),
        ("pass 4000", "nil"),
        (
            &format!("@unlock a d c | {OURS} {} chan ''", hash_of(THREAD)),
            "1,0",
        ),
        ("PTTL a", "4000"),
    ]);
}

/// A number of acquires that no program of Redisson has written does not stop the server.
#[test]
fn first_thousand_acquires_of_a_reader_count() {
    for (acquires, number, is_held) in [
        (0, 1001, false),
        (2, 2, true),
        (1000, 1000, true),
        (1001, 1001, false),
    ] {
        let timeout = format!("SET c:{THREAD}:rwlock_timeout:{number} 1 PX 5000");
        let shown = format!(",,,{THREAD},{acquires},5000,R");
        let mut server = ScriptServer::start(READ_WRITE);
        server.check(&[
            (&format!("HSET a mode read {THREAD} {acquires} f:1 1"), "3"),
            (&timeout, "OK"),
            ("@inspect a c", if is_held { &shown } else { ",," }),
            (
                &format!("@unlock a d c | {OURS} {} chan ''", hash_of("f:1")),
                if is_held { "0,0" } else { "0,1 <0>" },
            ),
            ("PTTL a", if is_held { "5000" } else { "-2" }),
        ]);
    }
}

/// A thread of Redisson that writes holds the lock when it has ceased to read.
///
/// Shows G-55.
#[test]
fn writer_that_ceases_to_read_still_writes() {
    let mut server = ScriptServer::start(READ_WRITE);
    server.check(&[
        (
            &format!("HSET a mode write {THREAD}:write 1 {THREAD} 1"),
            "3",
        ),
        (&format!("SET c:{THREAD}:rwlock_timeout:1 1 PX 3000"), "OK"),
        (
            &format!("@unlock a d c | {OURS} {} chan ''", hash_of(THREAD)),
            "1,0",
        ),
        ("@inspect a c", &format!(",,,{THREAD}:write,1,-1,W")),
    ]);
}

/// A claim that was refused learns of eight holders.
#[test]
fn refusal_names_at_most_eight_holders() {
    let words = |each: &dyn Fn(u8) -> String, count| (1..=count).map(each).collect::<String>();
    let permits = words(&|number| format!(" 922337203685477 permit-{number}"), 9);
    let readers = words(&|number| format!(" reader:{number} 1"), 9);
    for (scripts, command, added, rest, named) in [
        (
            SEMAPHORE,
            format!("ZADD c{permits}"),
            "9",
            "1 chan 9 ''",
            ("permit-", "P"),
        ),
        (
            READ_WRITE,
            format!("HSET a mode read{readers}"),
            "10",
            "write chan",
            ("reader:", "R"),
        ),
    ] {
        let named = words(
            &|number| format!(",{}{number},1,-1,{}", named.0, named.1),
            8,
        );
        let lock = format!("@lock a d c | {OURS} 5000 9999999999999999 _ {rest}");
        let mut server = ScriptServer::start(scripts);
        server.check(&[(&command, added), (&lock, &format!("H,-1{named}"))]);
    }
}

/// A request that is repeated takes no more permits, and all of them are given back. A claim
/// without one gives back nothing.
///
/// Shows G-55.
#[test]
fn claim_gives_back_the_permits_that_it_has() {
    let ours = format!("{OURS}:{NOW}_");
    let unlock = format!("@unlock a d c | {OURS} - chan ''");
    for permits in 1..=2 {
        let lock = |has_earlier: &str| {
            let limits = "5000 9999999999999999";
            format!("@lock a d c | {OURS} {limits} _ {permits} chan 3 {has_earlier}")
        };
        let free = (3 - permits).to_string();
        let mut server = ScriptServer::start(SEMAPHORE);
        server.check(&[
            (&lock("''"), &format!("G,{ours}")),
            (&lock("1"), &format!("G,{ours}")),
            ("GET a", &free),
            ("@list a c", "01"),
            (&unlock, "1,1 <3>"),
            ("ZCARD c", "0"),
            (&unlock, "0,0"),
            ("GET a", "3"),
        ]);
    }
}

/// The number of free permits is counted anew when a permit is taken, and not when one is given
/// back.
#[test]
fn lost_number_of_free_permits_is_counted_from_those_that_are_held() {
    let mut server = ScriptServer::start(SEMAPHORE);
    server.check(&[
        ("ZADD c 1 ended 922337203685477 endless", "2"),
        (
            &format!("@lock a d c | {OURS} 5000 9999999999999999 _ 1 chan 3 ''"),
            &format!("G,{OURS}:{NOW}_"),
        ),
        ("GET a", "1"),
        ("DEL a", "1"),
        (&format!("@unlock a d c | {OURS} - chan ''"), "1,0"),
        ("EXISTS a", "0"),
    ]);
}

/// The permits expire with the number of the free ones, as those that Redisson takes.
///
/// Shows G-55.
#[test]
fn semaphore_expires_as_a_whole() {
    for (life, passed, left) in [(5000, 0, "5000"), (1, 0, "1"), (1, 1, "-1")] {
        let mut server = ScriptServer::start(SEMAPHORE);
        server.check(&[
            (&format!("SET a 3 PX {life}"), "OK"),
            (&format!("pass {passed}"), "nil"),
            (
                &format!("@lock a d c | {OURS} 5000 9999999999999999 _ 1 chan 3 ''"),
                &format!("G,{OURS}:{}000_", NOW_MS + passed),
            ),
            ("PTTL c", left),
        ]);
    }
}

/// Permits are renewed all together, and only before their leases end.
///
/// Shows G-23.
#[test]
fn claim_renews_all_of_its_permits_before_their_end() {
    let ours = format!("{OURS}:{NOW}_");
    let renew = |lease: &str| format!("@renew a c | {ours} {lease} 2");
    for (ends, is_held) in [("pass 4999", "1"), ("pass 5000", "0"), ("first", "0")] {
        let remove = format!("ZREM c {ours}");
        let (ends, reply) = if ends == "first" {
            (&*remove, "1")
        } else {
            (ends, "nil")
        };
        let mut server = ScriptServer::start(SEMAPHORE);
        server.check(&[
            (
                &format!("@lock a d c | {OURS} 3000 9999999999999999 _ 2 chan 3 ''"),
                &format!("G,{ours}"),
            ),
            ("pass 999", "nil"),
            (&renew("5000"), "1"),
            (&format!("ZSCORE c {ours}"), &(NOW_MS + 5999).to_string()),
            (ends, reply),
            (&renew("''"), is_held),
            (&renew("5000"), is_held),
        ]);
    }
}

/// The first thousand waiters of an `RFairLock` are shown, and the first one is notified of a
/// release on a channel of its own.
///
/// Shows G-55.
#[test]
fn waiters_of_a_fair_lock_are_shown_and_the_first_is_notified() {
    let each = |count, word: &dyn Fn(u32) -> String| (0..count).map(word).collect::<String>();
    let added = each(1001, &|number| format!(" waiter-{number}"));
    let shown = each(1000, &|number| format!(",waiter-{number},0,-1,Q"));
    let mut server = ScriptServer::start(LOCK);
    server.check(&[
        (&format!("HSET a {THREAD} 1"), "1"),
        (&format!("RPUSH c{added}"), "1001"),
        ("@inspect a c", &format!(",,,{THREAD},1,-1,M{shown}")),
        ("SUBSCRIBE chan:waiter-0", "OK"),
        (
            &format!("@unlock a d c | {OURS} {} chan ''", hash_of(THREAD)),
            "1,1 <0> <0>",
        ),
    ]);
}
