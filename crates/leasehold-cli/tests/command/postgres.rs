//! The command with its locks on PostgreSQL.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lab_servers::Postgres;
use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, until};
use crate::servers::{
    end_of_a_killed_run_is_explained, killed_run_frees_the_lock, on_any_server,
    unresponsive_server_ends_the_command,
};

/// One server for all tests. Each test has a schema of its own.
static SERVER: LazyLock<Postgres> =
    LazyLock::new(|| Postgres::configured(&["max_prepared_transactions=4"]));

/// A sandbox with a schema of its own.
pub(crate) fn sandbox() -> Sandbox {
    static SCHEMAS: AtomicU32 = AtomicU32::new(0);
    let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
    let mut sandbox = Sandbox::at(format!("postgres://postgres@{}/postgres", SERVER.address()));
    sandbox.set(&format!("schema=test_{number}"));
    sandbox
}

/// Makes the record of a name one that this version cannot read.
pub(crate) fn damage_record(sandbox: &Sandbox, name: &str) {
    let url = sandbox.url();
    let (_, schema) = url.rsplit_once('=').expect("it has a schema of its own");
    SERVER.run(&format!(
        "INSERT INTO {schema}_private.record VALUES ('{name}', '{{x}}', NULL, now() + '1 day')"
    ));
}

on_any_server!(sandbox());

#[test]
fn unresponsive_server_ends_the_command_before_the_next_grant() {
    let server = Postgres::start();
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let mut sandbox = Sandbox::at(url);
    sandbox.set("crash-grace=2s");
    unresponsive_server_ends_the_command(&sandbox, |silent| {
        if silent {
            server.pause();
        } else {
            server.resume();
        }
    });
}

/// The job has not begun when its lock is lost, so another wait costs nothing but time.
///
/// Shows G-58.
#[test]
fn job_whose_lock_is_lost_before_it_begins_acquires_it_again() {
    let server = Postgres::start();
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let mut sandbox = Sandbox::at(url);
    sandbox.set("crash-grace=2s");
    let holder = sandbox.holder("a", &[]);
    let job = sandbox.started(&["run", "--once", "1", "a", "--", "echo", "ran"]);
    until("the job waits", || sandbox.waiters("a").len() == 1);

    let mut session = server.session();
    session.run("BEGIN; LOCK TABLE leasehold_private.record");
    holder.signal(Signal::SIGTERM);
    holder.wait();
    let blocked = "SELECT 1 FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND query ~ 'record_1'";
    until("the job reads its record", || {
        !server.run(blocked).is_empty()
    });
    let releasing = "SELECT clock_timestamp() FROM leasehold_private.lock \
                     WHERE leasehold.leave_1('a', (holder).claim, NULL)";
    let at = server.run(releasing).remove(0);
    // The look that finds the hold gone may have begun before the release, and waited for it.
    let looked = format!(
        "SELECT 1 FROM pg_stat_activity \
         WHERE state = 'idle' AND query ~ 'held_1|renew_1' AND state_change > '{at}'"
    );
    until("the hold is looked at", || !server.run(&looked).is_empty());
    let replied = Instant::now();
    let is_read = || replied.elapsed() > Duration::from_millis(300);
    until("the client has read the reply", is_read);
    session.run("COMMIT");
    job.wait().assert(0, "ran\n", "");
}

#[test]
fn killed_run_frees_the_lock_within_the_crash_grace() {
    let mut sandbox = sandbox();
    sandbox.set("schema=killed&crash-grace=1s");
    killed_run_frees_the_lock(&sandbox);
}

#[test]
fn end_of_a_killed_run_on_postgresql_is_explained() {
    for (schema, options, reason) in [
        ("watched", &[][..], "released by its watchdog"),
        ("alone", &["--on-lost", "ignore"], "connection missing"),
    ] {
        let mut sandbox = sandbox();
        sandbox.set(&format!("schema={schema}&crash-grace=2s"));
        end_of_a_killed_run_is_explained(&sandbox, options, reason);
    }
}

#[test]
fn schema_is_made_for_a_role_or_printed() {
    let sandbox = sandbox();
    SERVER.run("CREATE ROLE service LOGIN");
    let own = sandbox.url().replace("postgres@", "service@");
    let run = || sandbox.done(&["run", "--store", &own, "a", "--", "true"]);
    run().assert(77, "", "leasehold setup-postgres");

    let store = sandbox.url();
    let made = sandbox.done(&["setup-postgres", "--store", &store, "--grant", "service"]);
    assert_eq!(made.code(), 0, "{made:?}");
    run().assert(0, "", "");
    sandbox
        .done(&["setup-postgres", "--store", &store, "--grant", "nobody's"])
        .assert(
            64,
            "",
            "there is no role \"nobody's\"; create the role first",
        );

    let printed = sandbox.done(&[
        "setup-postgres",
        "--store",
        &store,
        "--grant",
        "x\"y",
        "--print",
    ]);
    assert_eq!(printed.code(), 0, "{printed:?}");
    assert!(printed.out.contains("TO \"x\"\"y\";"), "{}", printed.out);
    assert!(
        !printed.out.contains("leasehold."),
        "the schema has another name"
    );
}

#[test]
fn doctor_finds_that_a_crash_may_lose_grants() {
    let sandbox = sandbox();
    let found = sandbox.done(&["doctor", "--store", &sandbox.url()]);
    assert!(found.out.contains("fsync is off"), "{found:?}");
}

/// Grants are durable, whatever the default of the role. One that sees no transactions of others is
/// told how to.
#[test]
fn doctor_finds_publications_and_old_transactions() {
    SERVER.run("CREATE DATABASE examined");
    let mut session = SERVER.session_as("postgres", "examined");
    session.run(
        "CREATE PUBLICATION everything FOR ALL TABLES; CREATE TABLE orders (id int); \
         CREATE ROLE careless LOGIN; ALTER ROLE careless SET synchronous_commit = off",
    );
    let at = |role: &str| Sandbox::at(format!("postgres://{role}@{}/examined", SERVER.address()));
    let made = at("postgres").done(&["setup-postgres", "--grant", "careless"]);
    assert_eq!(made.code(), 0, "{made:?}");
    let examined = |role: &str| at(role).done(&["doctor"]).out;
    let assert_found = |out: &str, expected: [bool; 3]| {
        let transactions = [
            "everything contains",
            "order 1 is an hour",
            "is open for 720",
        ];
        assert_eq!(
            transactions.map(|what| out.contains(what)),
            expected,
            "{out}"
        );
        assert!(!out.contains("synchronous"), "{out}");
    };

    session.run("BEGIN; INSERT INTO orders VALUES (1); PREPARE TRANSACTION 'order 1'");
    session.run("BEGIN; INSERT INTO orders VALUES (2)");
    assert_found(&examined("postgres"), [true, false, false]);
    make_transactions_older("examined");
    let seen = examined("postgres");
    assert_found(&seen, [true, true, true]);
    assert!(!seen.contains("pg_read_all_stats"), "{seen}");
    let seen = examined("careless");
    assert_found(&seen, [true, true, false]);
    assert!(seen.contains("GRANT pg_read_all_stats"), "{seen}");
}

/// Shows idle and prepared transactions of a database as two hours older than they are.
fn make_transactions_older(database: &str) {
    let mut session = SERVER.session_as("postgres", database);
    session.run("SET allow_system_table_mods = on");
    let idle = "CASE WHEN s.state <> 'active' THEN interval '2 h' ELSE '0' END";
    for (view, began, age) in [
        ("pg_prepared_xacts", "p.prepared", "interval '2 h'"),
        ("pg_stat_activity", "s.xact_start", idle),
    ] {
        let column = &began[2..];
        let replaced = session.run(&format!(
            "DO $do$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW pg_catalog.{view} AS ' || replace( \
             pg_get_viewdef('{view}'::regclass), '{began},', $a${began} - {age} AS {column},$a$); \
             END $do$"
        ));
        assert_eq!(replaced, [""; 0]);
    }
}

#[test]
fn errors_have_exit_code_and_help_without_password() {
    let sandbox = sandbox();
    for (store, code, what) in [
        ("postgres://me:hunter2@127.0.0.1:1/x", 69, "127.0.0.1:1"),
        (
            "postgres://me:hunter2@127.0.0.1:1",
            64,
            "names one database",
        ),
        (
            "postgres://me:hunter2@host/x?sslmode=prefer",
            64,
            "sslmode=verify-full",
        ),
    ] {
        let done = sandbox.done(&["run", "--store", store, "a", "--wait", "0", "--", "true"]);
        done.assert(code, "", what);
        assert!(!done.err.contains("hunter2"), "{done:?}");
    }
}

/// The holder is a program without leasehold, whose transaction goes on after its release.
#[test]
fn show_names_the_transaction_that_pins_a_grant() {
    let sandbox = sandbox();
    let store = sandbox.url();
    let schema = store
        .split("schema=")
        .nth(1)
        .expect("it has a schema of its own");
    SERVER.run("CREATE ROLE weak LOGIN");
    let made = sandbox.done(&["setup-postgres", "--store", &store, "--grant", "weak"]);
    assert_eq!(made.code(), 0, "{made:?}");
    let mut locks = SERVER.session();
    let acquired = locks.run(&format!("CALL {schema}.acquire('a')"));
    let columns: Vec<&str> = acquired[0].split('|').collect();
    let mut orders = SERVER.session();
    let pid = orders.run("SELECT pg_backend_pid()").remove(0);
    orders.run("BEGIN");
    orders.run(&format!("SELECT {schema}.check('a', {})", columns[1]));

    let shown = || sandbox.done(&["show", "--store", &store, "a"]).out;
    let by = format!("pinned by the transaction of process {pid} on the server");
    let trap = format!("{by} (until it ends, or rolls back to a savepoint before its check)\n");
    assert!(shown().contains(&trap), "{}", shown());
    let weak = store.replace("postgres@", "weak@");
    let shown_to_weak = sandbox.done(&["show", "--store", &weak, "a"]).out;
    let right = format!("{by}; ending it needs the rights of a superuser (until");
    assert!(shown_to_weak.contains(&right), "{shown_to_weak}");
    locks.run(&format!("CALL {schema}.release('a', '{}')", columns[0]));
    assert!(shown().contains(&format!("{by}, ")), "{}", shown());
    assert!(shown().contains("after the end of the hold"), "{}", shown());
    let json = sandbox
        .done(&["show", "--store", &store, "--json", "a"])
        .out;
    assert!(json.contains(&format!("\"pid\": {pid}")), "{json}");
    assert!(json.contains("\"missing_right\": null"), "{json}");

    orders.run("PREPARE TRANSACTION 'order 42'");
    let by = "pinned by the prepared transaction order 42, ";
    assert!(shown().contains(by), "{}", shown());
    assert!(
        shown().contains("after the end of the hold\n"),
        "{}",
        shown()
    );
    let json = sandbox.done(&["show", "--store", &store, "--json", "a"]);
    assert!(json.out.contains("\"gid\": \"order 42\""), "{json:?}");
    orders.run("COMMIT PREPARED 'order 42'");
    assert!(!shown().contains("pinned"), "{}", shown());
}
