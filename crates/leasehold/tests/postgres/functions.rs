//! The functions that programs in any language call, by psql.

use lab_servers::{PostgresSession, until};
use leasehold_conformance::support::eventually;

use crate::sessions::WAITING;
use crate::{Database, TIMEOUT, acquire, granted, is_free, open, queue_up, use_once};

/// The columns of a reply to `acquire`: claim, token, position and channel.
fn acquired(session: &mut PostgresSession, arguments: &str) -> [String; 4] {
    let reply = session.run(&format!("CALL leasehold.acquire({arguments})"));
    let columns: Vec<String> = reply[0].split('|').map(str::to_owned).collect();
    columns.try_into().unwrap_or_else(|_| panic!("{reply:?}"))
}

/// The first waiter ends it, once the hold has been over for the lease that it waits with. Those
/// behind it look for nothing.
///
/// Shows G-01, G-02.
#[tokio::test]
async fn waiting_psql_ends_the_session_that_pins_a_grant_for_too_long() {
    let database = Database::new();
    database.set_up(&[]).await;
    let mut holder = database.session();
    let [_, token, ..] = acquired(&mut holder, "'a', lease => '1 s'");
    holder.run("BEGIN");
    let pinned = holder.run(&format!("SELECT leasehold.check('a', {token})"));
    assert_eq!(pinned, [""]);

    let mut session = database.session();
    let [claim, ..] = acquired(&mut session, "'a', lease => '1 s'");
    let again = format!("'a', '{claim}', lease => '1 s'");
    let deadline = std::time::Instant::now() + TIMEOUT;
    while acquired(&mut session, &again)[1].is_empty() {
        assert!(std::time::Instant::now() < deadline, "it stays pinned");
    }
}

/// The request waits for longer than its lease, for a name that is new and for one that is free.
///
/// Shows G-01.
#[tokio::test]
async fn lease_of_psql_begins_when_it_is_granted() {
    let database = Database::new();
    database.set_up(&[]).await;
    let [mut blocking, mut session] = [database.session(), database.session()];
    let queue = "hashtextextended('leasehold queue a', 4711)";
    for _ in ["new", "free"] {
        blocking.run(&format!("SELECT pg_advisory_lock({queue})"));
        session.send("CALL leasehold.acquire('a', lease => '1 s')");
        eventually("it waits", async || database.run(WAITING) == ["1"]).await;
        blocking.run(&format!("SELECT pg_sleep(1), pg_advisory_unlock({queue})"));

        let reply = session.read_reply();
        let claim = reply[0].split('|').next().expect("it has columns");
        let held = "SELECT (holder).claim, (holder).deadline > used FROM leasehold_private.lock";
        assert_eq!(database.run(held), [format!("{claim}|t")]);
        session.run(&format!("CALL leasehold.release('a', '{claim}')"));
    }
}

/// Shows G-01, G-02.
#[tokio::test]
async fn session_of_psql_shares_a_queue_with_clients() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();

    let [claim, token, position, channel] = acquired(&mut session, "'a', lease => '1 min'");
    assert!(position.is_empty() && channel.is_empty(), "it is held");
    let waiting = queue_up(&locks, "a").await;
    let renewed = session.run(&format!("CALL leasehold.renew('a', '{claim}')"));
    assert_eq!(renewed, ["t"]);
    let released = format!("CALL leasehold.release('a', '{claim}')");
    assert_eq!(session.run(&released), ["t"]);
    let held = granted(waiting).await;
    assert!(held.token().to_string().parse::<u64>().ok() > token.parse().ok());
    assert_eq!(session.run(&released), ["f"], "it is gone");

    let [claim, token, _, channel] = acquired(&mut session, "'a', label => 'a b'");
    assert!(token.is_empty());
    let shown = locks.inspect("a").await.expect("inspected");
    assert_eq!(shown.waiters().next().expect("it waits").info.label, "a b");
    session.run(&format!("LISTEN \"{channel}\""));
    // A look does not move the notification to another channel.
    let [_, _, position, again] = acquired(&mut session, &format!("'a', '{claim}'"));
    assert_eq!((position, &again), ("1".to_owned(), &channel));
    held.release().await.expect("released");

    // psql prints notifications with the reply to a statement.
    let deadline = std::time::Instant::now() + TIMEOUT;
    let notified = loop {
        let lines = session.run("SELECT 1");
        if let Some(line) = lines.into_iter().find(|line| line.contains(&channel)) {
            break line;
        }
        assert!(std::time::Instant::now() < deadline, "no notification");
    };
    assert!(notified.contains(&format!("H{claim}")), "{notified}");
    let [_, token, ..] = acquired(&mut session, &format!("'a', '{claim}'"));
    assert!(!token.is_empty(), "{notified}");
    assert_eq!(
        session.run("SELECT claim, token FROM leasehold.inspect('a')"),
        [format!("{claim}|{token}")]
    );
}

/// The schema of another program, or one that somebody changed.
#[tokio::test]
async fn replaced_function_is_damaged() {
    let database = Database::new();
    database.set_up(&[]).await;
    for replaced in [
        "inspect_1(name text) RETURNS TABLE (last_token text, last_end text, record text, \
         remaining int, session \"char\", pinned_by int) LANGUAGE sql \
         AS $$ SELECT 'x', NULL::text, NULL::text, 0, NULL::\"char\", 0 $$",
        "list_1(prefix text, count_max int) RETURNS SETOF text LANGUAGE sql \
         AS $$ SELECT NULL::text $$",
    ] {
        let name = replaced.split('(').next().expect("a name");
        database.run(&format!(
            "DROP FUNCTION leasehold.{name}; CREATE FUNCTION leasehold.{replaced}"
        ));
    }

    let locks = open(&database.url()).await;
    let inspected = locks.inspect("a").await.map(drop);
    let listed = locks.list("", 10).await.map(drop);
    for read in [inspected, listed] {
        let error = read.expect_err("it cannot be understood");
        assert!(error.is_damaged(), "{error:?}");
    }
}

#[tokio::test]
async fn shared_claims_of_psql_are_readers() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    let claims = [(); 2].map(|()| {
        let [claim, token, ..] = acquired(&mut session, "'a', shared => true");
        assert!(!token.is_empty());
        claim
    });
    assert!(!is_free(&locks, "a").await);
    let reader = locks.rwlock("a").shared().try_acquire().await;
    let reader = reader.expect("tried").expect("readers share it");
    let [_, token, position, _] = acquired(&mut session, "'a', wait => false");
    assert!(token.is_empty() && position.is_empty(), "it is refused");

    reader.release().await.expect("released");
    for claim in claims {
        session.run(&format!("CALL leasehold.release('a', '{claim}')"));
    }
    assert!(is_free(&locks, "a").await);
}

/// No client could list, show or break such a lock.
#[tokio::test]
async fn name_that_no_client_can_use_is_not_granted() {
    let database = Database::new();
    let _locks = open(&database.url()).await;
    let mut session = database.session();
    session.run("\\set VERBOSITY verbose\n");
    for name in ["''", "repeat('x', 513)", "repeat('ü', 257)"] {
        let error = session.run(&format!("CALL leasehold.acquire({name})"));
        assert!(error.join("\n").contains("22023"), "{name}: {error:?}");
    }
    let rows = session.run("SELECT count(*) FROM leasehold_private.lock");
    assert_eq!(rows, ["0"]);
    acquired(&mut session, "repeat('ü', 256)");
}

/// psycopg and JDBC open a transaction by themselves. An uncommitted grant would block all clients.
///
/// Shows G-01.
#[tokio::test]
async fn procedures_fail_within_a_transaction_or_above_read_committed() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    session.run("\\set VERBOSITY verbose\n");
    let held = acquire(&locks, "a").await;

    for call in [
        "acquire('b')".to_owned(),
        format!("renew('a', '{}')", held.claim_id()),
        format!("release('a', '{}')", held.claim_id()),
    ] {
        assert!(session.run("BEGIN").is_empty());
        let error = session.run(&format!("CALL leasehold.{call}")).join("\n");
        assert!(error.contains("2D000"), "{call}: {error}");
        assert!(error.contains("this_needs_autocommit"), "{call}: {error}");
        assert!(is_free(&locks, "b").await, "{call}");
        session.run("ROLLBACK");

        // There, a step would not see what was committed while it waited for the queue.
        for level in ["repeatable read", "serializable"] {
            session.run(&format!("SET default_transaction_isolation = '{level}'"));
            let error = session.run(&format!("CALL leasehold.{call}")).join("\n");
            assert!(error.contains("LH007"), "{call}: {error}");
        }
        session.run("RESET default_transaction_isolation");
        assert!(is_free(&locks, "b").await, "{call}");
    }
    held.check().expect("still held");
}

/// In a block, a procedure can commit what its caller has written, and the rest of the block takes
/// back what the procedure has not committed.
///
/// Shows G-01.
#[tokio::test]
async fn procedures_in_a_block_commit_their_own_step_alone() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    session.run("\\set VERBOSITY sqlstate\n");
    session.run("CREATE TABLE written (what text)");
    let mut block = |statements: &str| {
        session.run(&format!(
            "DO $$ DECLARE c uuid; t bigint; p int; ch text; done boolean; BEGIN {statements} \
             RAISE 'the block fails'; END $$"
        ))
    };
    let writing = "INSERT INTO written VALUES ('by the caller')";
    let acquiring = "CALL leasehold.acquire('b', c, t, p, ch)";
    for call in [
        acquiring.to_owned(),
        format!("CALL leasehold.renew('a', '{UNKNOWN}', done)"),
        format!("CALL leasehold.release('a', '{UNKNOWN}', done)"),
    ] {
        assert_eq!(block(&format!("{writing}; {call};")), ["ERROR:  2D000"]);
    }
    assert!(is_free(&locks, "b").await);
    assert_eq!(database.run("SELECT * FROM written"), [""; 0]);

    assert_eq!(block(&format!("{acquiring};")), ["ERROR:  P0001"]);
    let state = locks.inspect("b").await.expect("inspected");
    let claim = state.holders().next().expect("it holds").id;
    let renewing = format!("CALL leasehold.renew('b', '{claim}', done);");
    let remaining = "UPDATE leasehold_private.lock SET holder.deadline = (holder).deadline \
        - interval '20 s' WHERE name = 'b'";
    database.run(remaining);
    assert_eq!(block(&renewing), ["ERROR:  P0001"]);
    let is_renewed = "SELECT remaining > '20 s' FROM leasehold.inspect('b')";
    assert_eq!(database.run(is_renewed), ["t"]);
    let releasing = format!("CALL leasehold.release('b', '{claim}', done);");
    assert_eq!(block(&releasing), ["ERROR:  P0001"]);
    assert!(is_free(&locks, "b").await);
}

const UNKNOWN: &str = "00000000-0000-0000-0000-000000000001";

/// By the time of the token that followed it, or else by that of the row.
#[tokio::test]
async fn end_of_a_hold_is_shown_for_a_day() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let ending = format!(
        "SELECT leasehold.release_ended_1('a', '{}')",
        held.claim_id()
    );
    assert_eq!(database.run(&ending), ["t"]);
    for (change, is_shown) in [
        ("used = used", true),
        ("used = used - interval '1 day'", true),
        (
            "used = clock_timestamp(), last_token = last_token - 86400000000, \
             last_end.followed_by = (last_end).followed_by - 86400000000",
            true,
        ),
        ("used = used - interval '1 day'", false),
        (
            "used = clock_timestamp(), last_token = last_token + 1",
            false,
        ),
    ] {
        let change = format!("UPDATE leasehold_private.lock SET {change}");
        assert_eq!(database.run(&change), [""; 0]);
        let lock_state = locks.inspect("a").await.expect("inspected");
        assert_eq!(lock_state.ended.is_some(), is_shown, "{change}");
    }
}

/// Whoever makes a new name removes some others that nobody has used for a day, also if that name
/// comes behind all others, as a date does.
///
/// Shows G-04.
#[tokio::test]
async fn free_name_stays_while_its_token_is_ahead_of_the_clock() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    for name in ["b", "c", "d"] {
        use_once(&locks, name).await;
    }
    for change in [
        "used = used - interval '2 days'",
        "last_token = last_token + 86400000000 WHERE name = 'c'",
        "min_token = last_token + 86400000000 WHERE name = 'd'",
    ] {
        database.run(&format!("UPDATE leasehold_private.lock SET {change}"));
    }
    use_once(&locks, "e").await;
    let names = database.run("SELECT name FROM leasehold_private.lock ORDER BY name");
    assert_eq!(names, ["c", "d", "e"]);

    let mut session = database.session();
    acquired(&mut session, "'crashed', lease => '100 ms'");
    let change = "UPDATE leasehold_private.lock SET used = used - interval '2 days'";
    database.run(&format!("{change} WHERE name = 'crashed'"));
    let taken = "SELECT taken FROM leasehold_private.lock WHERE name = 'crashed'";
    eventually("the hold is over", || async {
        let is_over = "SELECT (holder).deadline < clock_timestamp() FROM leasehold_private.lock \
            WHERE name = 'crashed'";
        database.run(is_over) == ["t"]
    })
    .await;
    assert_ne!(database.run(taken), ["0"], "nobody has noticed");
    use_once(&locks, "f").await;
    assert_eq!(database.run(taken), ["0"]);
}

/// Whoever is behind it may fit beside the holders.
///
/// Shows G-05.
#[tokio::test]
async fn waiter_that_will_not_wait_any_more_lets_the_next_one_pass() {
    let database = Database::new();
    database.set_up(&[]).await;
    let mut session = database.session();
    acquired(&mut session, "'a', shared => true");
    let [writer, ..] = acquired(&mut session, "'a'");
    let [reader, token, ..] = acquired(&mut session, "'a', shared => true");
    assert_eq!(token, "", "it is behind the writer");

    let [_, token, ..] = acquired(&mut session, &format!("'a', '{writer}', wait => false"));
    assert_eq!(token, "");
    let holders = "SELECT claim FROM leasehold.inspect('a') WHERE position IS NULL";
    assert!(session.run(holders).contains(&reader));
}

/// A channel that an earlier version has accepted.
///
/// Shows G-02.
#[tokio::test]
async fn claim_whose_channel_cannot_be_notified_keeps_no_lock() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    acquired(&mut database.session(), "'a', lease => '100 ms'");
    let change = "UPDATE leasehold_private.lock SET holder.channel = ''";
    assert_eq!(database.run(change), [""; 0]);
    acquire(&locks, "a")
        .await
        .release()
        .await
        .expect("released");
}

/// The role of the session may end sessions that the role of the caller may not end.
#[tokio::test]
async fn right_that_another_role_of_the_session_has_is_missing() {
    let database = Database::new();
    for role in ["of_session", "of_caller"] {
        database.role(role);
    }
    database.set_up(&["of_session", "of_caller"]).await;
    database.run("GRANT of_caller TO of_session");
    let [_, token, ..] = acquired(&mut database.session(), "'a', lease => '100 ms'");
    let mut pinning = database.session_of("of_session");
    pinning.run(&format!("BEGIN; SELECT leasehold.check('a', {token})"));

    let mut session = database.session_of("of_session");
    session.run("SET ROLE of_caller");
    let missing = until("the hold is over", || {
        let missing = session.run("SELECT missing_right FROM leasehold.end_pins_1('a', 0)");
        Ok((!missing.is_empty()).then_some(missing))
    });
    assert_eq!(
        missing.expect("it ends"),
        ["membership in pg_signal_backend"]
    );
}

/// A holder that reads a record keeps it for longer, and an observer does not.
///
/// Shows G-58.
#[tokio::test]
async fn old_records_are_removed() {
    let database = Database::new();
    let locks = open(&format!("{}?records=60s", database.url())).await;
    let complete = async |name| {
        let job = locks.once(name).id("1").acquire().await.expect("granted");
        job.expect("not done").complete().await.expect("recorded");
    };
    let keep = |time: &str| {
        let keeping = "UPDATE leasehold_private.record SET kept_until = clock_timestamp()";
        assert_eq!(database.run(&format!("{keeping} + '{time}'")), [""; 0]);
    };
    let is_kept =
        "SELECT kept_until > clock_timestamp() + interval '40 s' FROM leasehold_private.record";

    complete("b").await;
    keep("30 s");
    let record = locks.record("b").await.expect("read");
    assert!(record.last_success().is_some());
    assert_eq!(database.run(is_kept), ["f"]);
    let done = locks.once("b").id("1").acquire().await.expect("granted");
    assert!(done.is_err(), "it is done");
    assert_eq!(database.run(is_kept), ["t"]);

    keep("0 s");
    let record = locks.record("b").await.expect("read");
    assert!(record.last_success().is_none());
    assert!(locks.list_records("", 9).await.expect("listed").is_empty());
    complete("b").await;
    let record = locks.record("b").await.expect("read");
    assert_eq!(record.completions.len(), 1);
    keep("0 s");
    complete("c").await;
    let names = database.run("SELECT name FROM leasehold_private.record");
    assert_eq!(names, ["c"]);
}

#[tokio::test]
async fn invalid_arguments_are_refused() {
    let database = Database::new();
    database.set_up(&[]).await;
    let mut session = database.session();
    session.run("\\set VERBOSITY sqlstate\n");
    for arguments in [
        "'a', lease => '99 ms'",
        "'a', lease => '21 days'",
        "'a', lease => NULL",
        "'a', lease => '-4 years 1445 days'",
        "'a', channel => ''",
        "'a', channel => repeat('x', 64)",
        "NULL",
        "repeat('é', 257)",
    ] {
        let error = session.run(&format!("CALL leasehold.acquire({arguments})"));
        assert_eq!(error, ["ERROR:  22023"], "{arguments}");
    }
    acquired(&mut session, "'a'");
    let [_, token, position, _] = acquired(&mut session, "'a', shared => true");
    assert!(
        token.is_empty() && position == "1",
        "a reader waits for a writer"
    );
}
