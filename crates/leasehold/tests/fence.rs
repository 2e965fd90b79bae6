//! Resources that reject late writers: files, keys of a real Redis server, tables of a real
//! PostgreSQL server.

use lab_servers::{Postgres, PostgresSession, Redis, Reply};
use leasehold::fence::{postgres, redis};

/// Tokens of all sizes. The script must not read a token as a number of Lua, which has 53 bits.
const TOKENS: [&str; 7] = [
    "1",
    "9",
    "10",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
];

const CLAIM: &str = "6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d";
const OTHER_CLAIM: &str = "0b7d1e5a3c9f4826b1d0e4f7a2c85936";

/// Runs a command under a token of the claim `CLAIM`.
fn fenced(server: &Redis, words: &[&str]) -> Reply {
    fenced_as(server, words[0], CLAIM, &words[1..])
}

fn fenced_as(server: &Redis, token: &str, claim: &str, words: &[&str]) -> Reply {
    let call = ["EVAL", redis::FENCED, "2", "{a}:mark", "{a}", token, claim];
    server.request(&[&call[..], words].concat())
}

#[track_caller]
fn assert_late(reply: &Reply, output: &str) {
    let error = reply
        .error()
        .unwrap_or_else(|| panic!("the late command was accepted: {reply:?}"));
    assert!(
        error.starts_with("LATE ") && error.contains(output),
        "{error}"
    );
}

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

/// A server and its replica, which became a master too. Their last token is ahead of their clocks.
/// So both servers continue from this token and grant the same next token.
#[cfg(all(feature = "redis", feature = "file"))]
#[tokio::test]
async fn split_brain_grants_one_token_twice_and_resource_accepts_one_claim() {
    use leasehold::fence::File;

    let master = Redis::start();
    let replica = Redis::setup().replica_of(&master).start();
    let last = format!("{}~", master.time() + 3_600_000_000);
    master.command(&["SET", "leasehold:{a}", &last, "PX", "86400000"]);
    replica.in_step_with(&master);
    replica.command(&["REPLICAOF", "NO", "ONE"]);

    let mut guards = Vec::new();
    for server in [&master, &replica] {
        let locks = leasehold::open(&server.url())
            .await
            .expect("the store opens");
        guards.push(locks.mutex("a").acquire().await.expect("granted"));
    }
    let [first, second] = [guards[0].fencing_token(), guards[1].fencing_token()];
    assert_eq!(
        first.token(),
        second.token(),
        "the two servers grant different tokens"
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = File::open(folder.path(), "a").expect("opened");
    file.seal(first).expect("the first holder seals");
    assert!(
        file.seal(second)
            .expect_err("two holders have sealed the resource")
            .is_lost()
    );
    file.write(first, b"first").expect("written");
    assert!(
        file.write(second, b"second")
            .expect_err("two holders have written")
            .is_lost()
    );

    let seal = |server: &Redis, token: leasehold::FencingToken, command: &[&str]| {
        fenced_as(
            server,
            &token.token().to_string(),
            &token.claim().to_string(),
            command,
        )
    };
    let resource = Redis::start();
    assert_eq!(
        seal(&resource, first, &["SET", "{a}", "first"]).text(),
        "OK"
    );
    assert_late(
        &seal(&resource, second, &["SET", "{a}", "second"]),
        "another claim",
    );

    let database = database();
    let mut one = session(&database);
    let mut seal = |token: leasehold::FencingToken| {
        one.run(&format!(
            "EXECUTE seal('a', {}, '{}')",
            token.token(),
            token.claim()
        ))
    };
    assert_eq!(seal(first), [first.token().to_string()]);
    assert_eq!(
        seal(second),
        [""; 0],
        "two holders have sealed the resource"
    );
}

fn session(server: &Postgres) -> PostgresSession {
    let mut session = server.session();
    let seal = format!("PREPARE seal (text, bigint, text) AS {}", postgres::SEAL);
    assert!(session.run(&seal).is_empty());
    session
}

fn database() -> Postgres {
    let server = Postgres::start();
    let mut session = server.session();
    assert!(session.run(postgres::TABLE).is_empty());
    let table = "CREATE TABLE accounts
        (id int PRIMARY KEY, balance int NOT NULL,
        mark bigint NOT NULL DEFAULT 0, claim text NOT NULL DEFAULT '')";
    assert!(session.run(table).is_empty());
    assert!(
        session
            .run("INSERT INTO accounts VALUES (42, 0)")
            .is_empty()
    );
    server
}

#[test]
fn postgres_fence_refuses_stale_tokens() {
    let server = database();
    let mut one = session(&server);
    for (token, highest) in [
        ("7", &["7"][..]),
        ("7", &["7"]),
        ("9223372036854775807", &["9223372036854775807"]),
        ("8", &[]),
    ] {
        assert_eq!(
            one.run(&format!("EXECUTE seal('a', {token}, '{CLAIM}')")),
            highest,
            "token {token}"
        );
    }
    assert_eq!(
        one.run(&format!("EXECUTE seal('b', 1, '{CLAIM}')")),
        ["1"],
        "each resource has a mark of its own"
    );
    assert!(
        one.run(&format!("EXECUTE seal('b', 0, '{CLAIM}')"))[0]
            .contains("violates check constraint")
    );
    assert!(
        one.run(postgres::TABLE)[0].contains("already exists"),
        "the table is created twice"
    );
}

#[test]
fn postgres_equal_token_of_another_claim_is_rejected() {
    let server = database();
    let mut one = session(&server);
    let mut seal =
        |token: u64, claim: &str| one.run(&format!("EXECUTE seal('a', {token}, '{claim}')"));

    assert_eq!(seal(7, CLAIM), ["7"]);
    assert_eq!(
        seal(7, OTHER_CLAIM),
        [""; 0],
        "two claims have sealed with one token"
    );
    assert_eq!(seal(7, CLAIM), ["7"]);
    assert_eq!(seal(8, OTHER_CLAIM), ["8"]);
    assert_eq!(
        seal(8, CLAIM),
        [""; 0],
        "two claims have sealed with one token"
    );

    for claim in ["", &CLAIM[1..]] {
        assert!(
            seal(9, claim)[0].contains("violates check constraint"),
            "{claim:?} is accepted as a claim id"
        );
    }
    assert!(one.run("EXECUTE seal('a', 9, NULL)")[0].contains("violates not-null constraint"));
}

/// A table of the version that compared tokens alone, the statement of that version, and both
/// versions after the upgrade.
#[test]
fn postgres_mark_without_claim_is_raised_by_a_larger_token_only() {
    const OLD_TABLE: &str = "CREATE TABLE leasehold_marks
        (resource text PRIMARY KEY, mark bigint NOT NULL CHECK (mark > 0))";
    const OLD_SEAL: &str = "INSERT INTO leasehold_marks AS known (resource, mark) VALUES ('a', 9)
        ON CONFLICT (resource) DO UPDATE SET mark = EXCLUDED.mark
        WHERE known.mark <= EXCLUDED.mark RETURNING mark";
    let server = Postgres::start();
    let mut one = server.session();
    one.run(OLD_TABLE);
    assert_eq!(one.run(OLD_SEAL), ["9"]);
    assert!(one.run(postgres::TABLE)[0].contains("already exists"));
    let unknown = one.run(&format!(
        "PREPARE early (text, bigint, text) AS {}",
        postgres::SEAL
    ));
    assert!(unknown[0].contains("\"claim\""), "{unknown:?}");

    assert!(one.run(postgres::UPGRADE).is_empty());
    let mut one = session(&server);
    for token in [8, 9] {
        assert_eq!(
            one.run(&format!("EXECUTE seal('a', {token}, '{CLAIM}')")),
            [""; 0],
            "token {token}"
        );
    }
    assert!(one.run(OLD_SEAL)[0].contains("violates check constraint"));
    assert_eq!(
        one.run(&format!("EXECUTE seal('a', 10, '{CLAIM}')")),
        ["10"]
    );
    assert_eq!(
        one.run(&format!("EXECUTE seal('a', 10, '{OTHER_CLAIM}')")),
        [""; 0]
    );
    assert!(one.run("EXECUTE seal('a', 11, '')")[0].contains("violates check constraint"));
    assert!(one.run("EXECUTE seal('a', 11, NULL)")[0].contains("violates check constraint"));
}

/// The earlier holder is in the middle of its transaction. The later holder waits for the end of
/// the transaction and sees its changes.
#[test]
fn postgres_fence_waits_for_the_earlier_holder() {
    let server = database();
    let mut early = session(&server);
    let mut later = session(&server);
    early.run("BEGIN");
    assert_eq!(
        early.run(&format!("EXECUTE seal('a', 7, '{CLAIM}')")),
        ["7"]
    );
    later.run("BEGIN");
    later.send(&format!("EXECUTE seal('a', 9, '{CLAIM}')"));
    wait_for_a_lock(&server);
    early.run("UPDATE accounts SET balance = balance + 1");
    early.run("COMMIT");
    assert_eq!(later.read_reply(), ["9"]);
    assert_eq!(later.run("SELECT balance FROM accounts"), ["1"]);
    later.run("COMMIT");
}

/// A late holder waits for the later holder's transaction, and is then rejected, at each isolation
/// level.
#[test]
fn postgres_fence_refuses_stale_token_after_waiting() {
    let server = database();
    for (level, at) in [
        ("READ COMMITTED", 1),
        ("REPEATABLE READ", 2),
        ("SERIALIZABLE", 3),
    ] {
        let mut late = session(&server);
        let mut now = session(&server);
        now.run(&format!("EXECUTE seal('a', {at}, '{CLAIM}')"));
        late.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        late.run("SELECT 1");
        now.run("BEGIN");
        assert_eq!(
            now.run(&format!("EXECUTE seal('a', {at}9, '{CLAIM}')")),
            [format!("{at}9")]
        );
        late.send(&format!("EXECUTE seal('a', {at}, '{CLAIM}')"));
        wait_for_a_lock(&server);
        now.run("COMMIT");
        let output = late.read_reply();
        let refused = output.is_empty() || output[0].contains("could not serialize access");
        assert!(refused, "{level}: {output:?}");
        late.run("ROLLBACK");
        now.run("DELETE FROM leasehold_marks");
    }
}

/// A transaction that is rolled back does not raise the mark.
#[test]
fn postgres_fence_forgets_rolled_back_tokens() {
    let server = database();
    let mut one = session(&server);
    one.run("BEGIN");
    assert_eq!(one.run(&format!("EXECUTE seal('a', 9, '{CLAIM}')")), ["9"]);
    one.run("ROLLBACK");
    assert_eq!(one.run(&format!("EXECUTE seal('a', 7, '{CLAIM}')")), ["7"]);
}

/// The examples of the documentation, word for word.
#[test]
fn postgres_examples_run() {
    let server = database();
    let mut one = session(&server);
    // The example's token is above the mark that the column has at first.
    assert_eq!(
        one.run(include_str!("../src/fence/postgres/example.sql")),
        ["7", "0"]
    );
    assert_eq!(
        one.run(include_str!("../src/fence/postgres/column.sql")),
        ["100"]
    );
    one.run("UPDATE accounts SET mark = 8, balance = 8");
    assert_eq!(
        one.run(include_str!("../src/fence/postgres/column.sql")),
        [""; 0],
        "late"
    );
    assert_eq!(one.run("SELECT balance FROM accounts"), ["8"]);
}

fn wait_for_a_lock(server: &Postgres) {
    let mut observer = server.session();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    lab_servers::until("a session to wait for a lock", || {
        Ok((observer.run(waits) == ["1"]).then_some(()))
    })
    .expect("it waits");
}

#[cfg(feature = "file")]
mod file {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;

    use leasehold::fence::File;
    use leasehold::{ClaimId, FencingToken, Token};
    use proptest::prelude::*;

    /// A token of the claim `CLAIM`.
    fn token(number: u64) -> FencingToken {
        token_of(super::CLAIM, number)
    }

    fn token_of(claim: &str, number: u64) -> FencingToken {
        FencingToken::new(
            Token::new(number).expect("above zero"),
            claim.parse().expect("a claim id"),
        )
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn file_fence_refuses_stale_tokens() {
        let folder = folder();
        let file = File::open(folder.path(), "a").expect("opened");
        assert_eq!(
            (
                file.highest_token().expect("read"),
                file.seal(token(7)).expect("sealed")
            ),
            (None, None)
        );
        file.write(token(7), b"seven").expect("written");
        // A second `File` for the same path, as another process would open it.
        let other = File::open(folder.path(), "a").expect("opened");
        assert_eq!(
            other.seal(token(9)).expect("sealed").as_deref(),
            Some(&b"seven"[..])
        );
        let refused = file.write(token(7), b"late").expect_err("late");
        assert!(
            refused.is_lost() && refused.to_string().contains("token 9"),
            "{refused}"
        );
        assert!(file.seal(token(8)).expect_err("late").is_lost());
        other.write(token(u64::MAX), b"last").expect("written");
        assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"last");
        assert_eq!(
            file.highest_token().expect("read"),
            Some(token(u64::MAX).token())
        );
    }

    #[test]
    fn file_equal_token_of_another_claim_is_rejected() {
        let folder = folder();
        let file = File::open(folder.path(), "a").expect("opened");
        let ours = token(7);
        let theirs = token_of(super::OTHER_CLAIM, 7);
        file.seal(ours).expect("sealed");

        let other = File::open(folder.path(), "a").expect("opened");
        for rejected in [other.seal(theirs).map(drop), other.write(theirs, b"theirs")] {
            let error = rejected.expect_err("two claims have one token");
            assert!(
                error.is_lost() && error.to_string().contains("another claim"),
                "{error}"
            );
        }

        file.write(ours, b"ours").expect("written");
        assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"ours");
        other
            .write(token_of(super::OTHER_CLAIM, 8), b"theirs")
            .expect("a larger token");
        assert!(
            file.write(token(8), b"ours")
                .expect_err("two claims have one token")
                .is_lost()
        );
    }

    /// A mark of the version without claim ids.
    #[test]
    fn file_mark_without_claim_is_raised_by_a_larger_token_only() {
        let folder = folder();
        let file = File::open(folder.path(), "a").expect("opened");
        let highest = folder.path().join("a.fence/mark");
        fs::write(&highest, "7\n").expect("written");
        assert_eq!(file.highest_token().expect("read"), Some(token(7).token()));
        for number in [6, 7] {
            assert!(
                file.write(token(number), b"late")
                    .expect_err("not larger")
                    .is_lost()
            );
        }
        assert_eq!(fs::read_to_string(&highest).expect("there"), "7\n");

        file.write(token(8), b"eight").expect("written");
        assert_eq!(
            fs::read_to_string(&highest).expect("there"),
            format!("v2 8 {}\n", super::CLAIM)
        );
    }

    #[test]
    fn claim_id_survives_its_text_and_nothing_else_is_one() {
        let id = ClaimId::draw();
        assert_eq!(id.to_string().parse::<ClaimId>().expect("parsed"), id);
        assert_eq!(
            id.to_string()
                .to_uppercase()
                .parse::<ClaimId>()
                .expect("parsed"),
            id
        );
        let shorter = &super::CLAIM[1..];
        for text in [
            "",
            shorter,
            &format!("+{shorter}"),
            &format!("{}0", super::CLAIM),
            &format!("g{shorter}"),
        ] {
            assert!(text.parse::<ClaimId>().expect_err(text).is_invalid());
        }
    }

    #[test]
    fn file_fence_names_stay_in_their_folder() {
        let folder = folder();
        let long = "n".repeat(250);
        for name in [
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "/etc/passwd",
            "a/",
            "a\0b",
            &long,
        ] {
            let refused = File::open(folder.path(), name).expect_err(name);
            assert!(refused.is_invalid(), "{name:?}: {refused:?}");
        }
        assert!(
            File::open(folder.path().join("missing"), "a")
                .expect_err("missing")
                .is_invalid()
        );
        File::open(folder.path(), "ä b..c")
            .expect("a plain name")
            .write(token(1), b"x")
            .expect("written");
    }

    #[test]
    fn file_fence_refuses_links_and_keeps_their_targets() {
        let elsewhere = folder();
        let folder = folder();
        let target = elsewhere.path().join("target");
        fs::write(&target, "kept").expect("written");
        symlink(&target, folder.path().join("a")).expect("linked");
        let file = File::open(folder.path(), "a").expect("opened");
        assert!(file.seal(token(1)).expect_err("a link").is_damaged());
        assert!(file.write(token(1), b"x").expect_err("a link").is_damaged());
        symlink(elsewhere.path(), folder.path().join("b.fence")).expect("linked");
        File::open(folder.path(), "b").expect_err("a link");
        assert_eq!(fs::read(&target).expect("there"), b"kept");
        assert_eq!(fs::read_dir(elsewhere.path()).expect("listed").count(), 1);
    }

    #[test]
    fn file_fence_refuses_and_keeps_a_damaged_token() {
        let folder = folder();
        let file = File::open(folder.path(), "a").expect("opened");
        for text in [
            "",
            "0\n",
            "seven",
            "-1",
            "v2 7",
            "v2 7 6f1c",
            "v3 7 6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d",
            "7 8",
        ] {
            fs::write(folder.path().join("a.fence/mark"), text).expect("written");
            assert!(file.write(token(1), b"x").expect_err(text).is_damaged());
            assert_eq!(
                fs::read_to_string(folder.path().join("a.fence/mark")).expect("there"),
                text
            );
        }
        assert!(!folder.path().join("a").exists());
    }

    #[test]
    fn file_fence_keeps_permissions_and_overwrites_crash_leftovers() {
        let folder = folder();
        let path = folder.path().join("a");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let file = File::open(folder.path(), "a").expect("opened");
        fs::write(
            folder.path().join("a.fence/new"),
            "half of a long value that was never moved into place",
        )
        .expect("written");
        file.write(token(1), b"new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert_eq!(
            fs::metadata(&path).expect("there").permissions().mode() & 0o777,
            0o640
        );
    }

    /// Many threads share one `File`, and each thread opens a `File` of its own. An update of the
    /// highest token is never lost. A write with a lower token never comes after an update with a
    /// higher token.
    #[test]
    fn file_fence_threads_exclude_each_other() {
        let folder = folder();
        let shared = File::open(folder.path(), "a").expect("opened");
        thread::scope(|scope| {
            for number in 1..=8 {
                let shared = &shared;
                let folder = folder.path();
                scope.spawn(move || {
                    let own = File::open(folder, "a").expect("opened");
                    for file in [shared, &own] {
                        // A thread with a stale token is rejected. All other operations succeed.
                        for done in [
                            file.seal(token(number)).map(drop),
                            file.write(
                                token(number),
                                &[b'0' + u8::try_from(number).expect("few"); 4096],
                            ),
                        ] {
                            assert!(
                                done.is_ok()
                                    || file.highest_token().expect("whole")
                                        > Some(token(number).token())
                            );
                        }
                    }
                });
            }
        });
        assert_eq!(
            shared.seal(token(8)).expect("sealed"),
            Some(vec![b'8'; 4096])
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        /// The file accepts the operations that a mark and a value in memory would accept.
        #[test]
        fn file_fence_matches_the_model(
            steps in proptest::collection::vec(
                (1_u64..6, any::<bool>(), proptest::option::of(any::<u8>())),
                1..20,
            )
        ) {
            let folder = folder();
            let file = File::open(folder.path(), "a").expect("opened");
            let mut highest = (0, false);
            let mut value = None;
            for (number, is_other, write) in steps {
                let claim = if is_other { super::OTHER_CLAIM } else { super::CLAIM };
                let token = token_of(claim, number);
                let taken = match write {
                    Some(byte) => file.write(token, &[byte]).is_ok(),
                    None => file.seal(token).map(|found| assert_eq!(found, value)).is_ok(),
                };
                prop_assert_eq!(taken, number > highest.0 || highest == (number, is_other));
                if taken {
                    highest = (number, is_other);
                    value = write.map(|byte| vec![byte]).or(value);
                }
            }
        }
    }
}
