//! Upgrades of the schema: `schema_1.sql` is what version 1 made, without its comments.

use futures_util::future::join_all;
use lab_servers::PostgresSession;
use leasehold::stores;
use leasehold_conformance::support::eventually;

use crate::servers::Contention;
use crate::sessions::terminate;
use crate::{Database, acquire, granted, open, open_error, queue_up, set_up, use_once};

const VERSION_1: &str = include_str!("schema_1.sql");
/// Takes the lock of those who make or upgrade the schema.
const LOCK: &str = "SELECT pg_advisory_lock(hashtextextended('leasehold schema leasehold', 4711))";

impl Database<'static> {
    /// A database with version 1 of the schema, which a role may use.
    fn of_version_1(role: &str) -> Self {
        let database = Self::new();
        // Another database of the test may have made it: roles belong to the server.
        database.run(&format!("CREATE ROLE {role} LOGIN"));
        for statements in [VERSION_1, &schema_grants(role)] {
            assert_eq!(database.run(statements), [""; 0]);
        }
        database
    }

    /// All that is in the database, its rights too.
    fn contents(&self) -> Vec<String> {
        let dump = self.server.dump(&self.name);
        // Each dump has a key of its own, and the order of grants is that of their making.
        let mut lines: Vec<String> = dump
            .lines()
            .filter(|line| !line.starts_with('\\'))
            .map(str::to_owned)
            .collect();
        lines.sort_unstable();
        lines
    }
}

fn schema_grants(role: &str) -> String {
    format!(
        "GRANT USAGE ON SCHEMA leasehold TO {role}; \
         GRANT EXECUTE ON ALL ROUTINES IN SCHEMA leasehold TO {role}"
    )
}

/// By a client, by `set_up`, and by the printed statements, as often as they are executed.
#[tokio::test]
async fn upgraded_schema_is_as_a_new_one() {
    let made = Database::new();
    made.role("upgraded");
    set_up(&made.url(), &["upgraded"]).await.expect("made");
    let expected = made.contents();
    assert!(expected.len() > 1_000, "{}", expected.len());

    let builder = stores::Postgres::builder(&made.url()).expect("a URL");
    let printed = builder.setup_sql(["upgraded"]);
    let empty = Database::new();
    let databases = [(); 3].map(|()| Database::of_version_1("upgraded"));
    let [first_use, by_command, by_tool] = &databases;
    use_once(&open(&first_use.url()).await, "a").await;
    first_use.run("DELETE FROM leasehold_private.lock");
    set_up(&by_command.url(), &[]).await.expect("upgraded");
    for database in [by_tool, &empty] {
        for _ in 0..2 {
            let output = database.run(&printed);
            let is_error = |line: &String| line.contains("ERROR");
            assert!(!output.iter().any(is_error), "{output:?}");
        }
    }
    for database in databases.iter().chain([&empty]) {
        assert_eq!(database.contents(), expected, "{}", database.name);
    }
}

/// Programs call these by their arguments, the names and defaults of arguments, and columns.
#[tokio::test]
async fn routines_of_version_1_keep_their_signatures() {
    let database = Database::of_version_1("keeps_signatures");
    let signatures = || {
        database.run(
            "SELECT p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), \
             p.prokind, p.prosecdef, p.proconfig FROM pg_proc p \
             WHERE p.pronamespace = 'leasehold'::regnamespace ORDER BY 1, 2",
        )
    };
    let before = signatures();
    let mut session = database.session_of("keeps_signatures");
    use_functions(&mut session);
    database.set_up(&[]).await;
    use_functions(&mut session);
    let after = signatures();
    assert!(before.len() > 15 && after.len() > before.len(), "{after:?}");
    for signature in before {
        assert!(after.contains(&signature), "{signature}");
    }
    // What a client of version 1 compares with its own version.
    let version = database.run("SELECT schema_version FROM leasehold.connect_1()");
    assert_eq!(version, ["1"]);
}

/// Calls what version 1 has for programs in any language, with all arguments.
fn use_functions(session: &mut PostgresSession) {
    let acquired = session
        .run("CALL leasehold.acquire('a', NULL, NULL, NULL, NULL, '1 min', false, false, 'a job')");
    let columns: Vec<&str> = acquired[0].split('|').collect();
    let [claim, token, "", ""] = columns[..] else {
        panic!("{acquired:?}");
    };
    for (call, reply) in [
        (format!("CALL leasehold.renew('a', '{claim}', NULL)"), "t"),
        (
            format!("SELECT leasehold.check('a', {token}, '{claim}', '1 s')"),
            "",
        ),
        (
            "SELECT claim, token, \"position\", remaining > '50 s', label, pinned_by \
             FROM leasehold.inspect('a')"
                .to_owned(),
            &format!("{claim}|{token}||t|a job|"),
        ),
        (format!("CALL leasehold.release('a', '{claim}', NULL)"), "t"),
    ] {
        assert_eq!(session.run(&call), [reply], "{call}");
    }
}

/// Clients of both versions share the queues, and reconnect.
///
/// Shows G-01, G-02.
#[tokio::test]
async fn schema_is_upgraded_under_running_clients() {
    for role in ["running_1", "running_2", "running_3"] {
        let database = Database::of_version_1(role);
        let url = database.url_of(role);
        let locks = open(&url).await;
        let held = acquire(&locks, "a").await;
        let waiting = queue_up(&locks, "a").await;
        let contention = Contention::start(&vec![url; 8]).await;
        let grants = "SELECT last_token FROM leasehold_private.lock WHERE name = 'contended'";
        eventually("the clients contend", || async {
            !database.run(grants).is_empty()
        })
        .await;

        database.set_up(&[]).await;
        let owner = open(&database.url()).await;
        let job = owner.once("job").id("1").acquire().await.expect("granted");
        job.expect("not done").complete().await.expect("recorded");
        terminate(&database, "random() < 0.3");
        use_once(&locks, "b").await;
        assert_ne!(contention.end().await, 0);
        held.release().await.expect("still held");
        let next = granted(waiting).await;
        next.release().await.expect("released");
    }
}

/// Shows G-29.
#[tokio::test]
async fn older_schema_is_used_by_a_role_that_may_not_upgrade_it() {
    let database = Database::of_version_1("old_schema");
    let url = database.url_of("old_schema");
    let locks = open(&url).await;
    use_once(&locks, "a").await;
    let refusals = [
        locks.once("a").id("1").try_acquire().await.err(),
        locks.record("a").await.err(),
        locks.list_records("", 1).await.err(),
    ];
    for refused in refusals {
        let refused = refused.expect("it is refused");
        assert!(refused.is_unsupported(), "{refused}");
        assert!(
            refused.to_string().contains("leasehold setup-postgres"),
            "{refused}"
        );
    }
    let denied = set_up(&url, &[]).await.expect_err("it is not the owner");
    assert!(denied.is_denied(), "{denied}");
    assert!(denied.to_string().contains("version 2"), "{denied}");
    // Not even with all rights: the new functions would run with them.
    database.run("ALTER ROLE old_schema SUPERUSER");
    let denied = set_up(&url, &[]).await.expect_err("it is not the owner");
    assert!(denied.is_denied(), "{denied}");
    database.run("ALTER ROLE old_schema NOSUPERUSER");

    // Its rights are those that it had, on the new functions too.
    database.set_up(&[]).await;
    let locks = open(&url).await;
    let job = locks.once("a").id("1");
    let first = job.acquire().await.expect("granted").expect("not done");
    first.complete().await.expect("recorded");
    assert!(job.acquire().await.expect("granted").is_err(), "it is done");
    let mut session = database.session_of("old_schema");
    let denied = session.run("SELECT * FROM leasehold_private.record");
    assert!(denied[0].contains("permission denied"), "{denied:?}");
}

/// An administrator may trust everybody, or take a single right from a role.
#[tokio::test]
async fn upgrade_keeps_the_rights_that_were_granted() {
    let database = Database::of_version_1("keeps_rights");
    database.role("everybody");
    database.run(
        "GRANT USAGE ON SCHEMA leasehold TO PUBLIC; \
         GRANT EXECUTE ON FUNCTION leasehold.inspect_1, leasehold.connect_1 TO PUBLIC; \
         REVOKE EXECUTE ON FUNCTION leasehold.end_pins_1 FROM keeps_rights",
    );
    let callable = |role: &str| {
        let names = "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'leasehold'::regnamespace \
                     AND has_schema_privilege('{role}', p.pronamespace, 'USAGE') \
                     AND has_function_privilege('{role}', p.oid, 'EXECUTE') ORDER BY 1";
        database.run(&names.replace("{role}", role))
    };
    assert_eq!(callable("everybody"), ["connect_1", "inspect_1"]);
    let before = callable("keeps_rights");
    assert!(!before.contains(&"end_pins_1".to_owned()), "{before:?}");

    database.set_up(&[]).await;
    assert_eq!(callable("everybody"), ["connect_1", "inspect_1"]);
    let added = [
        "check",
        "complete_1",
        "connect_2",
        "list_records_1",
        "record_1",
    ];
    let added = added.map(str::to_owned);
    let mut expected = [&before[..], &added].concat();
    expected.sort_unstable();
    assert_eq!(callable("keeps_rights"), expected);
}

/// Everybody may enter claims, and then may call what an upgrade adds too.
#[tokio::test]
async fn schema_that_everybody_may_use_is_upgraded_for_everybody() {
    let database = Database::of_version_1("PUBLIC");
    database.role("anybody");
    database.set_up(&[]).await;
    let locks = open(&database.url_of("anybody")).await;
    locks.record("a").await.expect("it may read");
}

#[tokio::test]
async fn clients_that_upgrade_at_once_all_succeed() {
    let database = Database::of_version_1("upgrades_at_once");
    let url = database.url();
    let clients = join_all((0..8).map(|_| open(&url))).await;
    let job = |number: usize| clients[number].once("a").id("1");
    let first = job(0).acquire().await.expect("granted").expect("not done");
    first.complete().await.expect("recorded");
    for number in 1..8 {
        let done = job(number).acquire().await.expect("granted");
        assert!(done.is_err(), "it is done");
    }
}

/// An upgrade that cannot be made now takes nothing from clients.
#[tokio::test]
async fn older_schema_is_used_while_its_upgrade_fails() {
    let database = Database::of_version_1("upgrade_fails");
    let url = database.url();
    for state in ["53100", "57014", "XX000"] {
        database.run(&format!(
            "CREATE FUNCTION public.fail() RETURNS event_trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'it fails' USING ERRCODE = '{state}'; END $$; \
             CREATE EVENT TRIGGER fails ON ddl_command_start WHEN TAG IN ('CREATE TABLE') \
             EXECUTE FUNCTION public.fail()"
        ));
        let locks = open(&url).await;
        use_once(&locks, "a").await;
        let refused = locks.record("a").await.expect_err("it is version 1");
        assert!(refused.is_unsupported(), "{refused}");
        let failed = set_up(&url, &[]).await.expect_err("it is not upgraded");
        assert!(failed.to_string().contains("it fails"), "{failed}");
        database.run("DROP EVENT TRIGGER fails; DROP FUNCTION public.fail()");
    }

    let mut other = database.session();
    other.run(LOCK);
    use_once(&open(&url).await, "a").await;
    let denied = set_up(&database.url_of("upgrade_fails"), &[]).await;
    let denied = denied.expect_err("it is not the owner");
    assert!(denied.is_denied(), "it waited: {denied}");
    other.run("SELECT pg_advisory_unlock_all()");
    database.set_up(&[]).await;
    let locks = open(&url).await;
    locks.record("a").await.expect("upgraded");
}

/// Or else each of many clients would replace all functions, while the others wait.
#[tokio::test]
async fn client_that_waited_for_an_upgrade_makes_none() {
    let database = Database::of_version_1("upgrade_waits");
    let url = database.url();
    let builder = stores::Postgres::builder(&url).expect("a URL");
    let mut other = database.session();
    other.run(LOCK);
    let opening = tokio::spawn(async move { open(&url).await });
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                   WHERE d.datname = current_database() AND NOT l.granted";
    eventually("the client waits", || async {
        database.run(waiting) == ["1"]
    })
    .await;
    let output = other.run(&builder.setup_sql([]));
    assert!(!output.concat().contains("ERROR"), "{output:?}");
    let made_by = "SELECT xmin FROM pg_proc WHERE oid = 'leasehold.connect_2'::regproc";
    let before = database.run(made_by);
    other.run("SELECT pg_advisory_unlock_all()");
    use_once(&opening.await.expect("it opens"), "a").await;
    assert_eq!(database.run(made_by), before);
}

/// A later version that no longer serves clients of this one. Its functions or its comment say so.
#[tokio::test]
async fn newer_schema_is_not_made_older() {
    for (role, newer) in [
        (
            "newer_functions",
            "CREATE FUNCTION leasehold.connect_4() RETURNS int LANGUAGE sql RETURN 4",
        ),
        (
            "newer_comment",
            "COMMENT ON SCHEMA leasehold IS 'leasehold 10'",
        ),
    ] {
        let database = Database::new();
        let url = database.url();
        database.set_up(&[]).await;
        database.run(newer);
        database.run("DROP FUNCTION leasehold.connect_2");
        let before = database.contents();
        // It still serves clients of version 1, and no upgrade gives them records.
        database.role(role);
        database.run(&schema_grants(role));
        for url in [&url, &database.url_of(role)] {
            let locks = open(url).await;
            use_once(&locks, "a").await;
            let refused = locks.record("a").await.expect_err("it is version 1");
            assert!(refused.is_unsupported(), "{newer}");
            let text = refused.to_string();
            assert!(text.ends_with("use a newer leasehold"), "{text}");
        }
        database.run(&format!(
            "DELETE FROM leasehold_private.lock; DROP OWNED BY {role}"
        ));
        assert_eq!(database.contents(), before);

        database.run("DROP FUNCTION leasehold.connect_1");
        let before = database.contents();
        let error = open_error(&url).await;
        assert!(error.is_unsupported(), "{error}");
        assert!(
            error.to_string().contains("newer than version 2"),
            "{error}"
        );
        assert_eq!(database.contents(), before);
    }
}

#[tokio::test]
async fn newer_schema_is_refused_by_name() {
    let database = Database::new();
    database.set_up(&[]).await;
    database.run("CREATE FUNCTION leasehold.connect_3() RETURNS int LANGUAGE sql RETURN 3");
    // It still serves clients of this version, whose statements would make it older.
    use_once(&open(&database.url()).await, "a").await;
    database.run("COMMENT ON SCHEMA leasehold IS 'leasehold 3'");
    let before = database.contents();
    let builder = stores::Postgres::builder(&database.url()).expect("a URL");
    let output = database.run(&builder.setup_sql([]));
    assert!(output[0].contains("newer than version 2"), "{output:?}");
    assert_eq!(database.contents(), before, "psql goes on after an error");

    database.run(
        "CREATE OR REPLACE FUNCTION leasehold.connect_2(OUT schema_version int, OUT server text, \
         OUT clock bigint) LANGUAGE sql AS $$ SELECT 3, 's/1', 0::bigint $$",
    );
    let error = open_error(&database.url()).await;
    assert!(error.is_unsupported(), "{error}");
    assert!(
        error.to_string().contains("schema leasehold has version 3"),
        "{error}"
    );
}
