//! The functions that programs in any language call, by psql.

use lab_servers::PostgresSession;

use crate::{Database, TIMEOUT, acquire, granted, is_free, open, queue_up};

/// The columns of a reply to `acquire`: claim, token, position and channel.
fn acquired(session: &mut PostgresSession, arguments: &str) -> [String; 4] {
    let reply = session.run(&format!("CALL leasehold.acquire({arguments})"));
    let columns: Vec<String> = reply[0].split('|').map(str::to_owned).collect();
    columns.try_into().unwrap_or_else(|_| panic!("{reply:?}"))
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

/// psycopg and JDBC open a transaction by themselves. An uncommitted grant would block all clients.
///
/// Shows G-01.
#[tokio::test]
async fn procedures_fail_within_a_transaction() {
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
    }
    // A transaction of one statement that is a block of several calls is one too.
    let error = session.run("DO $$ BEGIN CALL leasehold.acquire('b'); END $$");
    assert!(
        error[0].contains("procedure parameter") || error[0].contains("2D000"),
        "{error:?}"
    );
    held.check().expect("still held");
}

#[tokio::test]
async fn invalid_arguments_are_refused() {
    let database = Database::new();
    database.set_up(&[]).await;
    let mut session = database.session();
    session.run("\\set VERBOSITY sqlstate\n");
    for lease in ["'99 ms'", "'21 days'", "NULL"] {
        let error = session.run(&format!("CALL leasehold.acquire('a', lease => {lease})"));
        assert_eq!(error, ["ERROR:  22023"], "{lease}");
    }
    acquired(&mut session, "'a'");
    let [_, token, position, _] = acquired(&mut session, "'a', shared => true");
    assert!(
        token.is_empty() && position == "1",
        "a reader waits for a writer"
    );
}
