//! What roles may do, and what strangers cannot.

use futures_util::future::join_all;
use leasehold_conformance::support::{eventually, within_timeout};

use crate::{Database, acquire, granted, is_free, open, open_error, queue_up, use_once};

/// Shows G-29.
#[tokio::test]
async fn role_with_execute_alone_uses_locks() {
    let database = Database::new();
    database.role("execute_alone");
    database.set_up(&["execute_alone"]).await;

    let locks = open(&database.url_of("execute_alone")).await;
    let held = acquire(&locks, "a").await;
    let waiting = queue_up(&locks, "a").await;
    assert_eq!(locks.list("", 10).await.expect("listed").len(), 1);
    held.release().await.expect("released");
    locks
        .break_hold("a", granted(waiting).await.token())
        .await
        .expect("broken");

    let mut session = database.session_of("execute_alone");
    for table in ["lock", "claim"] {
        let denied = session.run(&format!("SELECT * FROM leasehold_private.{table}"));
        assert!(denied[0].contains("permission denied"), "{denied:?}");
    }
}

/// PostgreSQL lets everybody call a new function.
///
/// Shows G-29.
#[tokio::test]
async fn nobody_may_call_functions_without_a_grant() {
    let database = Database::new();
    for role in ["without_grant", "with_grant"] {
        database.role(role);
    }
    database.set_up(&["with_grant"]).await;

    let callable = |role: &str, schema: &str| {
        database.run(&format!(
            "SELECT count(*) FROM pg_proc p WHERE has_function_privilege('{role}', p.oid, 'EXECUTE') \
             AND has_schema_privilege('{role}', p.pronamespace, 'USAGE') \
             AND p.pronamespace = '{schema}'::regnamespace"
        ))
    };
    assert_eq!(callable("without_grant", "leasehold"), ["0"]);
    assert_eq!(callable("without_grant", "leasehold_private"), ["0"]);
    assert_eq!(callable("with_grant", "leasehold_private"), ["0"]);
    assert_ne!(callable("with_grant", "leasehold"), ["0"]);

    let error = open_error(&database.url_of("without_grant")).await;
    assert!(error.is_denied(), "{error}");
    assert!(error.to_string().contains("setup-postgres"), "{error}");
}

/// A role without any right takes all advisory locks that it can see or compute, and sends
/// notifications.
///
/// Shows G-01, G-29.
#[tokio::test]
async fn stranger_delays_grants_and_grants_nothing() {
    let database = Database::new();
    database.role("stranger");
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let waiting = queue_up(&locks, "a").await;
    let token = held.token();

    let mut stranger = database.session_of("stranger");
    let visible =
        "FROM pg_stat_activity WHERE query LIKE '%LISTEN%' AND query NOT LIKE '%activity%'";
    assert_eq!(stranger.run(&format!("SELECT count(*) {visible}")), ["0"]);
    stranger.run(
        "SELECT count(*) FROM (SELECT pg_try_advisory_lock_shared(classid::bigint << 32 \
         | objid::bigint) FROM pg_locks JOIN pg_database ON pg_database.oid = database \
         WHERE locktype = 'advisory' AND granted AND datname = current_database()) taken",
    );
    for key in ["leasehold queue a", &format!("leasehold pin {token} a")] {
        let taking = format!("SELECT pg_try_advisory_lock(hashtextextended('{key}', 4711))");
        assert_eq!(stranger.run(&taking), ["t"]);
    }
    for claim in locks.inspect("a").await.expect("inspected").entries {
        for channel in ["leasehold", "leasehold_"] {
            stranger.run(&format!(
                "NOTIFY \"{channel}\", 'H{}{}'",
                claim.id,
                token.get() + 9
            ));
        }
    }

    // A request that is stopped is in front of the others of its client.
    let others = open(&database.url()).await;
    let releasing = tokio::spawn(held.release());
    assert!(is_free(&others, "b").await, "other clients go on");
    assert!(!releasing.is_finished() && !waiting.is_finished());
    stranger.run("SELECT pg_advisory_unlock_all()");
    within_timeout("released", releasing)
        .await
        .expect("it ran")
        .expect("released");
    assert!(granted(waiting).await.token() > token);
}

/// They are meant for the owner's other routines.
///
/// Shows G-29.
#[tokio::test]
async fn default_privileges_of_the_owner_grant_no_routine() {
    let database = Database::new();
    database.role("by_default");
    database.run("ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON ROUTINES TO by_default");
    database.set_up(&[]).await;
    let granted = "SELECT p.oid::regprocedure FROM pg_proc p \
        WHERE p.pronamespace = 'leasehold'::regnamespace \
        AND has_function_privilege('by_default', p.oid, 'EXECUTE')";
    assert_eq!(database.run(granted), [""; 0]);
}

/// What a caller puts in the way of names: earlier schemas, temporary tables, operators.
///
/// Shows G-29.
#[tokio::test]
async fn search_path_of_the_caller_changes_nothing() {
    let database = Database::new();
    database.role("hostile");
    database.set_up(&["hostile"]).await;
    database.run("CREATE SCHEMA evil AUTHORIZATION hostile");
    database.run("ALTER ROLE hostile SET search_path = evil, pg_temp, pg_catalog");
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;

    let mut session = database.session_of("hostile");
    for statement in [
        "CREATE TABLE evil.calls (role name, what text)",
        "CREATE FUNCTION evil.note(what text) RETURNS void LANGUAGE sql AS \
         'INSERT INTO evil.calls VALUES (current_user, what)'",
        "CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS \
         'SELECT evil.note(''clock''); SELECT ''infinity''::timestamptz'",
        "CREATE FUNCTION evil.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS \
         'SELECT evil.note(''lock''); SELECT true'",
        "CREATE FUNCTION evil.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS \
         'SELECT evil.note(''queue'')'",
        "CREATE FUNCTION evil.pg_advisory_xact_lock_shared(bigint) RETURNS void LANGUAGE sql AS \
         'SELECT evil.note(''pin'')'",
        "CREATE FUNCTION evil.pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql AS \
         'SELECT evil.note(''role''); SELECT true'",
        "CREATE FUNCTION evil.split_part(text, text, int) RETURNS text LANGUAGE sql AS \
         'SELECT evil.note(''record''); SELECT NULL::text'",
        "CREATE FUNCTION evil.later(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS \
         'SELECT evil.note(''operator''); SELECT true'",
        "CREATE OPERATOR evil.<= (LEFTARG = timestamptz, RIGHTARG = timestamptz, \
         FUNCTION = evil.later)",
        "CREATE TEMPORARY TABLE lock (name text, last_token bigint)",
        "CREATE TEMPORARY TABLE claim (name text)",
        "CREATE TEMPORARY TABLE pg_locks (pid int)",
    ] {
        assert_eq!(session.run(statement), [""; 0], "{statement}");
    }
    let tried = session.run("CALL leasehold.acquire('a', wait => false)");
    assert!(tried[0].ends_with("|||"), "it is held: {tried:?}");
    let granted = session.run("CALL leasehold.acquire('b')");
    let columns: Vec<&str> = granted[0].split('|').collect();
    let (claim, token) = (columns[0], columns[1]);
    assert!(!is_free(&locks, "b").await);
    session.run("BEGIN");
    for (call, reply) in [
        (format!("SELECT leasehold.check('b', {token})"), ""),
        (
            "SELECT pid = pg_backend_pid() FROM leasehold.pins_1('b')".to_owned(),
            "t",
        ),
        (
            format!("SELECT claim = '{claim}' FROM leasehold.inspect('b')"),
            "t",
        ),
    ] {
        assert_eq!(session.run(&call), [reply], "{call}");
    }
    session.run("COMMIT");
    for verb in ["renew", "release"] {
        let done = session.run(&format!("CALL leasehold.{verb}('b', '{claim}')"));
        assert_eq!(done, ["t"]);
    }
    let calls = session.run("SELECT * FROM evil.calls WHERE role <> 'hostile'");
    assert_eq!(calls, [""; 0], "its functions ran with the owner's rights");
    let others = "SELECT oid::regprocedure FROM pg_proc \
        WHERE pronamespace = 'leasehold'::regnamespace AND prosecdef \
        AND (proconfig = '{\"search_path=pg_catalog, pg_temp\"}') IS NOT TRUE";
    assert_eq!(database.run(others), [""; 0]);
    held.release().await.expect("released");
}

#[tokio::test]
async fn two_schemas_share_nothing() {
    let database = Database::new();
    let [one, two] = ["one", "two"].map(|schema| format!("{}?schema={schema}", database.url()));
    let [one, two] = join_all([open(&one), open(&two)])
        .await
        .try_into()
        .expect("two");
    let held = acquire(&one, "a").await;
    let other = acquire(&two, "a").await;
    let waiting = queue_up(&one, "a").await;

    assert!(
        two.inspect("a")
            .await
            .expect("inspected")
            .waiters()
            .next()
            .is_none()
    );
    let keys = |key: &str| format!("SELECT one_private.{key} = two_private.{key}");
    assert_eq!(database.run(&keys("queue_key('a')")), ["f"]);
    assert_eq!(database.run(&keys("pin_key('a', 1)")), ["f"]);
    let channels = ["one", "two"].map(|schema| {
        let id = "00000000-0000-0000-0000-000000000001";
        let waiting = database.run(&format!("CALL {schema}.acquire('a', '{id}')"));
        let channel = waiting[0].rsplit('|').next();
        channel.expect("it has columns").to_owned()
    });
    assert!(!channels.contains(&String::new()), "they wait");
    assert_ne!(channels[0], channels[1]);
    other.release().await.expect("released");
    assert!(!waiting.is_finished());
    held.release().await.expect("released");
    let _next = granted(waiting).await;
    let others = database.run("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'leasehold%'");
    assert_eq!(others, [""; 0]);
}

#[tokio::test]
async fn role_that_may_not_make_the_schema_learns_the_command() {
    let database = Database::new();
    database.role("poor");
    let error = open_error(&database.url_of("poor")).await;
    assert!(error.is_denied(), "{error}");
    assert!(
        error.to_string().contains("leasehold setup-postgres"),
        "{error}"
    );

    database.set_up(&["poor"]).await;
    use_once(&open(&database.url_of("poor")).await, "a").await;
}

/// A role that may create no schema can be given empty ones.
#[tokio::test]
async fn empty_schemas_are_used_by_their_owner() {
    let database = Database::new();
    database.role("given_schemas");
    let url = database.url_of("given_schemas");
    database.run("CREATE SCHEMA leasehold AUTHORIZATION given_schemas");
    let error = open_error(&url).await;
    assert!(error.is_denied(), "{error}");
    let text = error.to_string();
    assert!(text.contains("permission denied for database"), "{text}");
    let error = open_error(&database.url()).await;
    assert!(error.is_denied(), "{error}");
    assert!(error.to_string().contains("given_schemas"), "{error}");

    let private = "CREATE SCHEMA leasehold_private AUTHORIZATION given_schemas";
    database.run(private);
    use_once(&open(&url).await, "a").await;
    database.run("DROP SCHEMA leasehold_private CASCADE");
    database.run(private);
    use_once(&open(&url).await, "a").await;
}

#[tokio::test]
async fn clients_that_make_the_schema_at_once_all_succeed() {
    let database = Database::new();
    let url = database.url();
    let clients = join_all((0..8).map(|_| open(&url))).await;
    let held = acquire(&clients[0], "a").await;
    for locks in &clients[1..] {
        assert!(!is_free(locks, "a").await);
    }
    held.release().await.expect("released");
    eventually("the lock is free", || is_free(&clients[7], "a")).await;
}
