//! Resources that refuse late writers: files, keys of a real Redis server, tables of a real PostgreSQL server.

use lab_servers::{Postgres, PostgresSession, Redis, Reply};
use leasehold::fence::{postgres, redis};

/// Tokens of all sizes; none may be read as a number of Lua, which has 53 bits.
const TOKENS: [&str; 7] =
    ["1", "9", "10", "9007199254740992", "9007199254740993", "9223372036854775807", "18446744073709551615"];

fn fenced(server: &Redis, words: &[&str]) -> Reply {
    let call = ["EVAL", redis::FENCED, "2", "{a}:mark", "{a}"];
    server.ask(&[&call[..], words].concat())
}

#[test]
fn redis_refuses_what_is_late() {
    let server = Redis::start();
    for (at, token) in TOKENS.iter().enumerate() {
        assert_eq!(fenced(&server, &[token]).text(), *token);
        for earlier in &TOKENS[..at] {
            let refused = fenced(&server, &[earlier, "SET", "{a}", "late"]);
            assert_eq!(refused.error().map(|error| &error[..5]), Some("LATE "), "{earlier} after {token}: {refused:?}");
        }
        assert_eq!(fenced(&server, &[token, "INCR", "{a}"]).int(), i64::try_from(at).expect("few") + 1);
    }
    assert_eq!(server.command(&["GET", "{a}:mark"]).text(), TOKENS[6]);
}

#[test]
fn redis_changes_nothing_when_something_is_wrong() {
    let server = Redis::start();
    for wrong in ["", "0", "-1", "1.5", "07", "1e9", "184467440737095516150"] {
        assert!(fenced(&server, &[wrong, "SET", "{a}", "1"]).is_error(), "{wrong:?} is taken for a token");
    }
    assert!(server.command(&["KEYS", "*"]).list().is_empty());
    server.command(&["SET", "{a}:mark", "nobody's"]);
    assert!(fenced(&server, &["7", "SET", "{a}", "1"]).error().is_some_and(|error| error.contains("is no mark")));
    server.command(&["DEL", "{a}:mark"]);
    server.command(&["HSET", "{a}:mark", "f", "1"]);
    assert!(fenced(&server, &["7", "SET", "{a}", "1"]).error().is_some_and(|error| error.starts_with("WRONGTYPE")));
    assert!(server.command(&["GET", "{a}"]).is_nil());
}

/// The command fails; the mark is raised all the same, and the next one is judged by it.
#[test]
fn redis_says_what_the_command_says() {
    let server = Redis::start();
    server.command(&["SET", "{a}", "text"]);
    assert!(fenced(&server, &["7", "INCR", "{a}"]).error().is_some_and(|error| error.contains("not an integer")));
    assert!(fenced(&server, &["6", "GET", "{a}"]).is_error());
    assert_eq!(fenced(&server, &["7", "GET", "{a}"]).text(), "text");
}

#[test]
fn redis_without_room_changes_nothing() {
    let server = Redis::start();
    assert_eq!(fenced(&server, &["7", "SET", "{a}", "1"]).text(), "OK");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(fenced(&server, &["8", "SET", "{a}", "2"]).is_error());
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(fenced(&server, &["7", "GET", "{a}"]).text(), "1");
}

fn session(server: &Postgres) -> PostgresSession {
    let mut session = server.session();
    let seal = format!("PREPARE seal (text, bigint) AS {}", postgres::SEAL);
    assert!(session.run(&seal).is_empty());
    session
}

fn database() -> Postgres {
    let server = Postgres::start();
    let mut session = server.session();
    assert!(session.run(postgres::TABLE).is_empty());
    let table = "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL, mark bigint NOT NULL DEFAULT 0)";
    assert!(session.run(table).is_empty());
    assert!(session.run("INSERT INTO accounts VALUES (42, 0)").is_empty());
    server
}

#[test]
fn postgres_refuses_what_is_late() {
    let server = database();
    let mut one = session(&server);
    for (token, mark) in
        [("7", &["7"][..]), ("7", &["7"]), ("9223372036854775807", &["9223372036854775807"]), ("8", &[])]
    {
        assert_eq!(one.run(&format!("EXECUTE seal('a', {token})")), mark, "token {token}");
    }
    assert_eq!(one.run("EXECUTE seal('b', 1)"), ["1"], "another resource has another mark");
    assert!(one.run("EXECUTE seal('b', 0)")[0].contains("violates check constraint"));
    assert!(one.run(postgres::TABLE)[0].contains("already exists"), "asked again it makes no other");
}

/// The earlier holder is in the middle of its transaction: the later one waits for it and sees what it did.
#[test]
fn postgres_waits_for_who_came_in_time() {
    let server = database();
    let (mut early, mut later) = (session(&server), session(&server));
    early.run("BEGIN");
    assert_eq!(early.run("EXECUTE seal('a', 7)"), ["7"]);
    later.run("BEGIN");
    later.send("EXECUTE seal('a', 9)");
    wait_for_a_lock(&server);
    early.run("UPDATE accounts SET balance = balance + 1");
    early.run("COMMIT");
    assert_eq!(later.hear(), ["9"]);
    assert_eq!(later.run("SELECT balance FROM accounts"), ["1"]);
    later.run("COMMIT");
}

/// A late one waits for the later holder's transaction, and is then refused, at each level of isolation.
#[test]
fn postgres_refuses_who_waited() {
    let server = database();
    for (level, at) in [("READ COMMITTED", 1), ("REPEATABLE READ", 2), ("SERIALIZABLE", 3)] {
        let (mut late, mut now) = (session(&server), session(&server));
        now.run(&format!("EXECUTE seal('a', {at})"));
        late.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        late.run("SELECT 1");
        now.run("BEGIN");
        assert_eq!(now.run(&format!("EXECUTE seal('a', {at}9)")), [format!("{at}9")]);
        late.send(&format!("EXECUTE seal('a', {at})"));
        wait_for_a_lock(&server);
        now.run("COMMIT");
        let told = late.hear();
        let refused = told.is_empty() || told[0].contains("could not serialize access");
        assert!(refused, "{level}: {told:?}");
        late.run("ROLLBACK");
        now.run("DELETE FROM leasehold_marks");
    }
}

/// What is rolled back has raised nothing.
#[test]
fn postgres_forgets_what_was_not_committed() {
    let server = database();
    let mut one = session(&server);
    one.run("BEGIN");
    assert_eq!(one.run("EXECUTE seal('a', 9)"), ["9"]);
    one.run("ROLLBACK");
    assert_eq!(one.run("EXECUTE seal('a', 7)"), ["7"]);
}

/// The examples of the documentation, word for word.
#[test]
fn postgres_examples_run() {
    let server = database();
    let mut one = session(&server);
    assert_eq!(one.run(include_str!("../src/fence/postgres/example.sql")), ["7", "0"]);
    assert_eq!(one.run(include_str!("../src/fence/postgres/column.sql")), ["100"]);
    one.run("UPDATE accounts SET mark = 8, balance = 8");
    assert_eq!(one.run(include_str!("../src/fence/postgres/column.sql")), [""; 0], "late");
    assert_eq!(one.run("SELECT balance FROM accounts"), ["8"]);
}

fn wait_for_a_lock(server: &Postgres) {
    let mut onlooker = server.session();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    lab_servers::until("a session to wait for a lock", || Ok((onlooker.run(waits) == ["1"]).then_some(())))
        .expect("it waits");
}

#[cfg(feature = "file")]
mod file {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;

    use leasehold::Token;
    use leasehold::fence::File;
    use proptest::prelude::*;

    fn token(number: u64) -> Token {
        Token::new(number).expect("above zero")
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn it_refuses_what_is_late() {
        let folder = folder();
        let file = File::open(folder.path(), "a").expect("opened");
        assert_eq!((file.mark().expect("read"), file.seal(token(7)).expect("sealed")), (None, None));
        file.write(token(7), b"seven").expect("written");
        // Another opening, as of another process.
        let other = File::open(folder.path(), "a").expect("opened");
        assert_eq!(other.seal(token(9)).expect("sealed").as_deref(), Some(&b"seven"[..]));
        let refused = file.write(token(7), b"late").expect_err("late");
        assert!(refused.is_lost() && refused.to_string().contains("token 9"), "{refused}");
        assert!(file.seal(token(8)).expect_err("late").is_lost());
        other.write(token(u64::MAX), b"last").expect("written");
        assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"last");
        assert_eq!(file.mark().expect("read"), Some(token(u64::MAX)));
    }

    #[test]
    fn names_stay_in_their_folder() {
        let folder = folder();
        let long = "n".repeat(250);
        for name in ["", ".", "..", "../a", "a/b", "/etc/passwd", "a/", "a\0b", &long] {
            let refused = File::open(folder.path(), name).expect_err(name);
            assert!(refused.is_invalid(), "{name:?}: {refused:?}");
        }
        assert!(File::open(folder.path().join("missing"), "a").expect_err("missing").is_invalid());
        File::open(folder.path(), "ä b..c").expect("a plain name").write(token(1), b"x").expect("written");
    }

    #[test]
    fn links_are_refused_and_their_targets_kept() {
        let (folder, elsewhere) = (folder(), folder());
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
    fn a_mark_that_is_none_is_refused_and_kept() {
        let folder = folder();
        let file = File::open(folder.path(), "a").expect("opened");
        for text in ["", "0\n", "seven", "-1"] {
            fs::write(folder.path().join("a.fence/mark"), text).expect("written");
            assert!(file.write(token(1), b"x").expect_err(text).is_damaged());
            assert_eq!(fs::read_to_string(folder.path().join("a.fence/mark")).expect("there"), text);
        }
        assert!(!folder.path().join("a").exists());
    }

    #[test]
    fn permissions_stay_and_what_a_crash_left_is_written_over() {
        let folder = folder();
        let path = folder.path().join("a");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let file = File::open(folder.path(), "a").expect("opened");
        fs::write(folder.path().join("a.fence/new"), "half of something long that was never put in place")
            .expect("written");
        file.write(token(1), b"new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
    }

    /// Many threads with one opening and many: no update of the highest token is lost, none of a lower one comes after it.
    #[test]
    fn threads_exclude_each_other() {
        let folder = folder();
        let shared = File::open(folder.path(), "a").expect("opened");
        thread::scope(|scope| {
            for number in 1..=8 {
                let (shared, folder) = (&shared, folder.path());
                scope.spawn(move || {
                    let own = File::open(folder, "a").expect("opened");
                    for file in [shared, &own] {
                        // Whoever is late is refused, and nothing else goes wrong.
                        for done in [
                            file.seal(token(number)).map(drop),
                            file.write(token(number), &[b'0' + u8::try_from(number).expect("few"); 4096]),
                        ] {
                            assert!(done.is_ok() || file.mark().expect("whole") > Some(token(number)));
                        }
                    }
                });
            }
        });
        assert_eq!(shared.seal(token(8)).expect("sealed"), Some(vec![b'8'; 4096]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        /// What it takes is what a mark and a value in memory would take.
        #[test]
        fn it_follows_the_rule(steps in proptest::collection::vec((1_u64..6, proptest::option::of(any::<u8>())), 1..20)) {
            let folder = folder();
            let file = File::open(folder.path(), "a").expect("opened");
            let (mut mark, mut value) = (0, None);
            for (number, write) in steps {
                let taken = match write {
                    Some(byte) => file.write(token(number), &[byte]).is_ok(),
                    None => file.seal(token(number)).map(|found| assert_eq!(found, value)).is_ok(),
                };
                prop_assert_eq!(taken, number >= mark);
                if taken {
                    mark = number;
                    value = write.map(|byte| vec![byte]).or(value);
                }
            }
        }
    }
}
