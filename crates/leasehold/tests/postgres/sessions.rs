//! The sessions of clients: what their role sets, and how they end.

use std::cell::Cell;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use futures_util::poll;
use lab_servers::{PgBouncer, PostgresSession, Wire};
use leasehold::store::{Claim, OnContention, Standing, Store as _};
use leasehold::stores::Postgres;
use leasehold::{CrashRelease, Locks, Owner, Share};
use leasehold_conformance::support::{claim, eventually};

use crate::pooler::contend;
use crate::{Database, Program, SERVER, TIMEOUT, acquire, granted, open, queue_up, use_once};

/// Ends sessions of leasehold in this database; the condition selects them by their process id.
pub(crate) fn terminate(database: &Database<'_>, condition: &str) {
    database.run(&format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name = 'leasehold' AND {condition}"
    ));
}

const PROVES_A_CLIENT: &str = "pid IN (SELECT l.pid FROM pg_locks l \
    WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted)";

/// Shows G-01, G-02.
#[tokio::test]
async fn defaults_of_a_role_do_not_disturb_sessions() {
    let database = Database::new();
    database.role("difficult");
    database.run("GRANT CREATE ON DATABASE :\"DBNAME\" TO difficult");
    for default in [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "default_transaction_deferrable = on",
        "statement_timeout = 1",
        "lock_timeout = 1",
        "idle_session_timeout = '500ms'",
        "idle_in_transaction_session_timeout = 1",
        "synchronous_commit = off",
        "search_path = nowhere",
        "client_min_messages = debug1",
        "standard_conforming_strings = off",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = 'sql_standard'",
        "plan_cache_mode = force_generic_plan",
    ] {
        database.run(&format!("ALTER ROLE difficult SET {default}"));
    }
    let mut clients = Vec::new();
    while clients.len() < 2 {
        // The role's limit of a millisecond holds for the first statement of a session too.
        match leasehold::open(&database.url_of("difficult")).await {
            Ok(locks) => clients.push(locks),
            Err(error) => assert!(error.to_string().contains("canceling statement"), "{error}"),
        }
    }
    contend(clients.clone(), 20).await;

    let held = acquire(&clients[0], "a").await;
    let waiting = queue_up(&clients[1], "a").await;
    let lost = tokio::time::timeout(Duration::from_secs(1), held.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");

    // A session reads what it has set, in place of the names in use.
    database.run(
        "CREATE OR REPLACE FUNCTION leasehold.list_1(prefix text, count_max int) \
         RETURNS SETOF text LANGUAGE sql AS $$ SELECT name || '=' || setting FROM pg_settings \
         WHERE source = 'session' ORDER BY name $$",
    );
    let set = clients[0].list("", 99).await.expect("listed");
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    assert_eq!(
        set,
        [
            "client_connection_check_interval=500",
            "client_min_messages=warning",
            "default_transaction_deferrable=off",
            "default_transaction_isolation=read committed",
            "default_transaction_read_only=off",
            "idle_in_transaction_session_timeout=20000",
            "idle_session_timeout=0",
            "lock_timeout=2000",
            "search_path=pg_catalog, pg_temp",
            "statement_timeout=20000",
            "tcp_keepalives_count=3",
            "tcp_keepalives_idle=2",
            "tcp_keepalives_interval=1",
            "tcp_user_timeout=5000",
        ]
    );
}

/// A client that cannot commit notifications sends none.
///
/// Shows G-02.
#[tokio::test]
async fn waiters_behind_a_quiet_holder_are_granted() {
    let database = Database::new();
    database.role("quiet");
    database.set_up(&["quiet"]).await;
    database.run("ALTER ROLE quiet SET leasehold.quiet = on");
    let [quiet, locks] = [
        open(&database.url_of("quiet")).await,
        open(&database.url()).await,
    ];
    let held = acquire(&quiet, "a").await;
    let waiting = queue_up(&locks, "a").await;
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");
}

/// Enters claims for a part of the lock `a` each. Their clients live while a session has the
/// advisory lock `link`.
pub(crate) fn enter(
    numbers: RangeInclusive<u32>,
    capacity: u32,
    link: &str,
    lease: Duration,
) -> String {
    let (first, last) = numbers.into_inner();
    let lease = lease.as_millis();
    format!(
        "SELECT count(*) FROM generate_series({first}, {last}) g, LATERAL leasehold.enter_1( \
         'a', 'Q', lpad(g::text, 32, '0')::uuid, 1, {capacity}, {lease}, 0, gen_random_uuid(), 0, \
         {link}, leasehold_private.server(), 'x', 300, '0 0 h p l', 0, 9000000000000000, '{{}}') e"
    )
}

/// The client of claim 1, which holds the lock `a` for the lease, and of claim 2, which waits.
async fn holder_and_waiter(database: &Database<'_>, lease: Duration) -> PostgresSession {
    database.set_up(&[]).await;
    let mut client = database.session();
    client.run("SELECT pg_advisory_lock(1)");
    database.run(&enter(1..=1, 1, "1", lease));
    database.run(&enter(2..=2, 1, "1", Duration::from_secs(600)));
    client
}

/// Each client says what it has seen, because the server may have lost its last writes.
///
/// Shows G-04.
#[tokio::test]
async fn next_token_exceeds_what_each_waiter_has_seen() {
    let database = Database::new();
    database.set_up(&[]).await;
    let mut client = database.session();
    client.run("SELECT pg_advisory_lock(1)");
    for (number, seconds_ahead) in [(1, 0), (2, 60), (3, 120), (4, 90)] {
        let unknown = "l', 0,";
        let seen = format!("l', leasehold_private.micros() + {seconds_ahead}000000,");
        let entering = enter(number..=number, 1, "1", Duration::from_secs(600));
        assert!(entering.contains(unknown), "{entering}");
        assert_eq!(database.run(&entering.replace(unknown, &seen)), ["1"]);
    }

    database.run("SELECT leasehold.leave_1('a', lpad('1', 32, '0')::uuid, NULL)");
    let is_beyond = "SELECT last_token > leasehold_private.micros() + 100000000 AND waiting = 2 \
                     FROM leasehold_private.lock";
    assert_eq!(database.run(is_beyond), ["t"]);
}

/// Whoever enters behind the first waiter does what that one has not done yet.
///
/// Shows G-02.
#[tokio::test]
async fn entering_claim_ends_a_hold_whose_lease_is_over() {
    let database = Database::new();
    let _client = holder_and_waiter(&database, Duration::from_secs(1)).await;
    database.run("SELECT pg_sleep_until((holder).deadline) FROM leasehold_private.lock");

    database.run(&enter(3..=3, 1, "1", Duration::from_secs(600)));
    let holds = "SELECT (holder).claim = lpad('2', 32, '0')::uuid FROM leasehold_private.lock";
    assert_eq!(database.run(holds), ["t"]);
}

/// The next waiter is alone in the queue, and its session has ended.
#[tokio::test]
async fn another_kind_is_refused_beside_a_waiter_without_a_session() {
    let database = Database::new();
    let mut client = holder_and_waiter(&database, Duration::from_secs(600)).await;
    client.run("SELECT pg_advisory_unlock(1)");
    database.run("SELECT leasehold.leave_1('a', lpad('1', 32, '0')::uuid, NULL)");
    let queue = "SELECT taken, waiting FROM leasehold_private.lock";
    assert_eq!(database.run(queue), ["0|1"]);

    client.run("\\set VERBOSITY verbose\n");
    let refused = client.run(&enter(3..=3, 2, "NULL", Duration::from_secs(600)));
    assert!(refused[0].contains("LH003"), "{refused:?}");
    assert_eq!(refused[1], "DETAIL:  1 1");
}

/// Nobody has the locks of the sessions of another server, as after a promotion.
///
/// Shows G-01.
#[tokio::test]
async fn claim_that_is_bound_to_another_server_is_not_absent() {
    let database = Database::new();
    database.set_up(&[]).await;
    for number in 1..=3 {
        let entering = enter(number..=number, 1, "1", Duration::from_secs(600));
        let elsewhere = entering.replace("leasehold_private.server()", "'4711/00000001'");
        assert_ne!(elsewhere, entering);
        assert_eq!(database.run(&elsewhere), ["1"]);
    }
    let is_unmarked = "SELECT (holder).nonce IS NULL FROM leasehold_private.lock";
    assert_eq!(database.run(is_unmarked), ["t"]);
    database.run("SELECT leasehold.leave_1('a', lpad('1', 32, '0')::uuid, NULL)");
    let holds = "SELECT (holder).claim = lpad('2', 32, '0')::uuid FROM leasehold_private.lock";
    assert_eq!(database.run(holds), ["t"]);
}

/// The session that renews is granted the lock that proves the holder, because the lock is its own.
#[tokio::test]
async fn waiter_behind_its_own_client_is_not_told_to_look() {
    let database = Database::new();
    let mut client = holder_and_waiter(&database, Duration::from_secs(600)).await;
    let renewing = "SELECT standing FROM leasehold.renew_1(ARRAY['a'], \
        ARRAY[lpad('2', 32, '0')::uuid], gen_random_uuid(), 0, 1, leasehold_private.server(), \
        'x', 300)";
    assert_eq!(client.run(renewing), ["Q"]);
    let by_another = renewing.replace("0, 1,", "0, 2,");
    client.run("SELECT pg_advisory_unlock(1)");
    assert_eq!(client.run(&by_another), ["A"]);
}

/// Shows G-02.
#[tokio::test]
async fn crashed_holder_among_forty_with_shorter_leases_is_found() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let mut session = database.session();
    session.run("SELECT pg_advisory_lock(1)");
    let living = enter(1..=40, 41, "1", Duration::from_secs(600));
    assert_eq!(session.run(&living), ["40"]);
    let crashed = enter(41..=41, 41, "2", Duration::from_secs(3600));
    assert_eq!(session.run(&crashed), ["1"]);

    let acquiring = tokio::spawn(locks.semaphore("a", 41).acquire());
    granted(acquiring).await.release().await.expect("released");
}

/// An owner has holds in one schema, and not in the other.
///
/// Shows G-08.
#[tokio::test]
async fn owner_is_another_in_another_schema() {
    let database = Database::new();
    let [one, two, others] =
        ["one", "two", "two"].map(|it| format!("{}?schema={it}", database.url()));
    let [one, two, others] = [open(&one).await, open(&two).await, open(&others).await];
    let _held = acquire(&others, "a").await;
    let owner = Owner::new();
    let _own = one.reentrant("a").acquire(&owner).await.expect("granted");

    let refused = two.reentrant("a").try_acquire(&owner).await;
    assert!(refused.expect("the server replies").is_err());
    assert_ne!(one.url(), two.url());
}

/// Then a transaction with a notification cannot commit, whatever the name of the schema.
///
/// Shows G-02.
#[tokio::test]
async fn full_queue_of_notifications_keeps_no_lock() {
    for schema in ["leasehold", "orders"] {
        let database = Database::new();
        let url = format!("{}?schema={schema}", database.url());
        let [locks, others] = [open(&url).await, open(&url).await];
        let held = acquire(&locks, "a").await;
        let waiting = queue_up(&others, "a").await;
        refuse_notifications(&database, schema);
        held.release().await.expect("released");
        granted(waiting).await.release().await.expect("released");
    }
}

/// Lets the server refuse each notification, as if its queue were full.
pub(crate) fn refuse_notifications(database: &Database<'_>, schema: &str) {
    let changed = database.run(&format!(
        "DO $$ DECLARE \
             notify text := pg_get_functiondef('{schema}_private.notify'::regproc); \
             refuse text := regexp_replace(notify, '(PERFORM|done :=) [^;]*pg_notify[^;]*', \
                 $s$RAISE 'too many notifications' USING ERRCODE = '54000'$s$); \
         BEGIN ASSERT refuse <> notify; EXECUTE refuse; END $$"
    ));
    assert_eq!(changed, [""; 0]);
}

/// Shows G-01, G-02.
#[tokio::test]
async fn lock_of_a_killed_process_is_free_after_the_grace() {
    let database = Database::new();
    let url = format!("{}?crash-grace=1s", database.url());
    let mut holder = Program::start(&url, &[]);
    assert_eq!(holder.outcome, "holds");
    let locks = open(&url).await;
    let waiting = queue_up(&locks, "a").await;

    holder.kill();
    let killed_at = Instant::now();
    let _next = granted(waiting).await;
    assert!(
        killed_at.elapsed() >= Duration::from_secs(1),
        "before the grace"
    );
    println!(
        "kill -9 to the next grant, grace 1 s: {:?}",
        killed_at.elapsed()
    );
}

/// Shows G-13.
#[tokio::test]
async fn broken_connection_loses_nothing() {
    let database = Database::new();
    let url = format!("{}?crash-grace=3s", database.url());
    let [locks, others] = [open(&url).await, open(&url).await];
    let held = acquire(&locks, "a").await;
    let waiting = queue_up(&others, "a").await;
    let other_proof = format!("NOT {PROVES_A_CLIENT}");
    for broken in [PROVES_A_CLIENT, &other_proof, "true"] {
        terminate(&database, broken);
        eventually("the clients are back", || async {
            others.inspect("a").await.is_ok_and(|state| {
                state.entries.len() == 2
                    && state
                        .entries
                        .iter()
                        .all(|entry| entry.connected == Some(true))
            })
        })
        .await;
        held.check().expect("still held");
        assert!(!waiting.is_finished());
    }
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");
}

/// The pauses between two attempts to connect do not grow past the grace, though each session
/// breaks as soon as it is there. The grace is half of the longest pause of other connections.
///
/// Shows G-13.
#[tokio::test]
async fn repeated_short_outages_lose_nothing() {
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let url = |address| format!("{}?crash-grace=1s", database.url_at(address));
    let [cut, others] = [
        open(&url(&wire.address())).await,
        open(&url(&SERVER.address())).await,
    ];
    let held = acquire(&cut, "a").await;
    let waiting = queue_up(&others, "a").await;
    let is_connected = async |expected| {
        let state = others.inspect("a").await.expect("inspected");
        state
            .holders()
            .all(|holder| holder.connected == Some(expected))
    };

    for _ in 0..12 {
        wire.refuse(true);
        wire.partition();
        eventually("its session has ended", || is_connected(false)).await;
        wire.refuse(false);
        eventually("its session is back", || is_connected(true)).await;
    }
    held.check().expect("still held");
    assert!(!waiting.is_finished());
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");
}

/// A client looks at a lock during two outages of its holder, and not in between.
///
/// Shows G-01.
#[tokio::test]
async fn two_short_outages_are_not_one_long_one() {
    const GRACE: Duration = Duration::from_secs(3);
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let url = |address| format!("{}?crash-grace=3s", database.url_at(address));
    let [cut, others] = [
        open(&url(&wire.address())).await,
        open(&url(&SERVER.address())).await,
    ];
    let held = acquire(&cut, "a").await;
    let cut_off = async |is_cut_off| {
        wire.refuse(is_cut_off);
        if is_cut_off {
            wire.partition();
        }
        eventually("the session has ended, or is back", || async {
            let state = others.inspect("a").await.expect("inspected");
            let mut holders = state.holders();
            holders.all(|holder| holder.connected == Some(!is_cut_off))
        })
        .await;
    };

    cut_off(true).await;
    let tried = others.mutex("a").try_acquire().await;
    tried.expect("replied").expect_err("it is held");
    cut_off(false).await;
    let lost = tokio::time::timeout(GRACE, held.lost()).await;
    lost.expect_err("the outage was short");

    cut_off(true).await;
    let _next = granted(tokio::spawn(others.mutex("a").acquire())).await;
    held.check().expect_err("two hold");
}

/// Its waiter is renewed as all waiters are, which must not bind the hold to a session.
///
/// Shows G-01, G-14.
#[tokio::test]
async fn fixed_lease_of_a_waiter_outlasts_the_grace() {
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let url = format!("{}?crash-grace=500ms", database.url_at(&wire.address()));
    let (cut, locks) = (open(&url).await, open(&database.url()).await);
    let before = acquire(&locks, "a").await;
    let lock = cut.mutex("a").lease(Duration::from_secs(6)).no_renewal();
    let waiting = tokio::spawn(lock.acquire());

    let shortest = Cell::new(Duration::MAX);
    eventually("the waiter is renewed", || async {
        let state = locks.inspect("a").await.expect("inspected");
        let left = state.waiters().next().and_then(|waiter| waiter.lease_left);
        shortest.set(shortest.get().min(left.unwrap_or(Duration::MAX)));
        left.is_some_and(|left| left > shortest.get())
    })
    .await;
    before.release().await.expect("released");
    let held = granted(waiting).await;
    assert!(held.remaining() > Duration::from_secs(2), "{held:?}");
    wire.refuse(true);
    wire.partition();
    let tried = locks
        .mutex("a")
        .try_acquire_for(Duration::from_secs(2))
        .await;
    let is_refused = tried.expect("replied").is_err();
    assert!(is_refused || held.check().is_err(), "two holders");
}

/// Shows G-02.
#[tokio::test]
async fn waiter_whose_connection_has_ended_is_passed_over() {
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let cut = open(&database.url_at(&wire.address())).await;
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let cut_off = queue_up(&cut, "a").await;
    let waiting = queue_up(&locks, "a").await;

    wire.refuse(true);
    wire.partition();
    eventually("its session has ended", || async {
        let state = locks.inspect("a").await.expect("inspected");
        state.waiters().next().expect("it waits").connected == Some(false)
    })
    .await;
    held.release().await.expect("released");
    let next = granted(waiting).await;

    wire.refuse(false);
    eventually("its session is back", || async {
        let state = locks.inspect("a").await.expect("inspected");
        state
            .waiters()
            .next()
            .is_some_and(|waiter| waiter.connected == Some(true))
    })
    .await;
    next.release().await.expect("released");
    granted(cut_off).await.release().await.expect("released");
}

/// A step passes over at most a hundred, and the next one goes on behind them.
///
/// Shows G-05.
#[tokio::test]
async fn waiter_behind_hundreds_without_a_session_is_granted() {
    for count in [100, 101, 250] {
        let database = Database::new();
        let locks = open(&database.url()).await;
        let held = acquire(&locks, "a").await;
        let mut living = database.session();
        living.run("SELECT pg_advisory_lock(1)");
        let others = enter(1..=count, 1, "1", Duration::from_secs(600));
        assert_eq!(database.run(&others), [count.to_string()]);
        let waiting = queue_up(&locks, "a").await;
        drop(living);
        eventually("their session has ended", || async {
            database.run("SELECT pg_try_advisory_lock(1)") == ["t"]
        })
        .await;

        held.release().await.expect("released");
        granted(waiting).await.release().await.expect("released");
    }
}

/// The server ends the sessions of new clients at each step of their opening.
#[tokio::test]
async fn session_that_ends_while_it_opens_is_unavailable() {
    let database = Database::new();
    database.set_up(&[]).await;
    let mut ending = database.session();
    ending.send(
        "DO $$ BEGIN FOR i IN 1..4000 LOOP \
         PERFORM pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name = 'leasehold' \
         AND random() < 0.2; \
         PERFORM pg_stat_clear_snapshot(); PERFORM pg_sleep(0.0005); END LOOP; END $$",
    );
    for _ in 0..60 {
        if let Err(error) = leasehold::open(&database.url()).await {
            assert!(error.is_unavailable(), "{error:?}");
        }
    }
}

/// The notification of the grant is sent to a session that has ended.
///
/// Shows G-02.
#[tokio::test]
async fn waiter_without_its_session_still_receives_its_grant() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let others = open(&database.url()).await;
    for _ in 0..5 {
        let held = acquire(&locks, "a").await;
        let waiting = queue_up(&others, "a").await;
        terminate(&database, PROVES_A_CLIENT);
        while held.check().is_ok() && locks.inspect("a").await.is_err() {}
        held.release().await.expect("released");
        granted(waiting).await.release().await.expect("released");
    }
}

/// Lets the first calls of the steps that change a lock fail.
fn fail(database: &Database<'_>, code: &str, count: u32) {
    let replaced = database.run(&format!(
        "SET client_min_messages = warning; \
         DROP SEQUENCE IF EXISTS public.tries; CREATE SEQUENCE public.tries; \
         CREATE OR REPLACE FUNCTION leasehold_private.begin_step() RETURNS void \
         LANGUAGE plpgsql VOLATILE AS $$ BEGIN IF nextval('public.tries') <= {count} THEN \
         RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}', \
         DETAIL = leasehold_private.micros(); END IF; END $$"
    ));
    assert_eq!(replaced, [""; 0]);
}

/// The last of several tries says what the server says of the claim.
#[tokio::test]
async fn last_try_to_enter_is_understood() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let _held = acquire(&locks, "a").await;
    fail(&database, "55P03", 3);
    let error = locks.semaphore("a", 2).try_acquire().await;
    let error = error.expect_err("it is a mutex");
    assert!(error.is_mismatch(), "{error:?}");
    fail(&database, "LH002", u32::MAX);
    let error = locks.mutex("a").try_acquire().await;
    let error = error.expect_err("it is late");
    assert!(error.is_unavailable(), "{error:?}");
}

/// A conflict, a deadlock, or a lock that is not available.
///
/// Shows G-13.
#[tokio::test]
async fn step_with_another_one_in_its_way_is_repeated() {
    let database = Database::new();
    let builder = Postgres::builder(&database.url()).expect("a URL");
    let store = builder.connect().await.expect("connected");
    let mut held = claim("a");
    held.lease = Duration::from_secs(3);
    for code in ["40001", "40P01", "55P03"] {
        fail(&database, code, 3);
        let entered = store.enter(&held, OnContention::Fail).await;
        let standing = entered.expect("it is repeated").standing;
        assert!(standing.token().is_some(), "{code}");

        fail(&database, code, 1);
        eventually("it is renewed after a while", async || {
            let renewed = store.renew(std::slice::from_ref(&held)).await;
            renewed.expect("nothing is wrong");
            database.run("SELECT last_value > 1 FROM public.tries") == ["t"]
        })
        .await;
        let state = store.inspect(&held.name).await.expect("inspected");
        assert_eq!(state.holders().count(), 1, "{code}");

        fail(&database, code, 3);
        store.leave(&held).await.expect("it is repeated");
        let state = store.inspect(&held.name).await.expect("inspected");
        assert!(state.entries.is_empty(), "{code}");
    }
}

/// The claim would be granted beside others, and the clock of the token's server was wrong.
#[tokio::test]
async fn growing_claim_and_token_far_ahead_of_the_clock_are_refused() {
    let database = Database::new();
    let builder = Postgres::builder(&database.url()).expect("a URL");
    let store = builder.connect().await.expect("connected");
    let mut growing = claim("a");
    growing.share = Share::READER;
    let entered = store.enter(&growing, OnContention::Fail).await;
    entered.expect("granted");
    growing.share = Share::WRITER;
    let error = store.enter(&growing, OnContention::Fail).await;
    let error = error.expect_err("it is refused");
    assert!(error.is_invalid(), "{error:?}");

    let locks = open(&database.url()).await;
    use_once(&locks, "b").await;
    let set_token = |token: &str| {
        let change = "UPDATE leasehold_private.lock SET last_token =";
        database.run(&format!("{change} {token} WHERE name = 'b'"))
    };
    set_token("last_token + 2 * 86400000000");
    use_once(&locks, "b").await;
    set_token("1");
    let error = locks.mutex("b").try_acquire().await;
    let error = error.expect_err("it is refused");
    assert!(error.is_damaged(), "{error:?}");
    assert!(error.to_string().contains("compare the clocks"), "{error}");
}

/// The request waits in the server until its client has given it up. Behind a pooler the server
/// does not notice that.
///
/// Shows G-10.
#[tokio::test]
async fn request_that_waits_until_it_is_given_up_has_no_effect() {
    let database = Database::new();
    let pooler = PgBouncer::start(&SERVER, "transaction");
    for address in [SERVER.address(), pooler.address()] {
        let given_up = open(&database.url_at(&address)).await;
        assert_no_effect_after(given_up, &database).await;
    }
}

/// A request that waits for others in the server says nothing of the connection. Without its
/// session every waiter of the client would be passed over.
///
/// Shows G-13.
#[tokio::test]
async fn request_that_waits_keeps_the_session() {
    let database = Database::new();
    let [locks, others] = [open(&database.url()).await, open(&database.url()).await];
    let held = acquire(&others, "other").await;
    let waiting = queue_up(&locks, "other").await;
    let processes = "SELECT pid FROM pg_stat_activity \
        WHERE datname = current_database() AND application_name = 'leasehold' ORDER BY pid";
    let before = database.run(processes);

    let mut blocking = database.session();
    blocking.run(&format!("SELECT pg_advisory_lock({QUEUE_KEY})"));
    let lock = locks.mutex("a").lease(Duration::from_secs(1));
    let tried = lock.try_acquire_for(Duration::from_millis(1_500)).await;
    tried.expect_err("the store does not reply");
    assert_eq!(database.run(processes), before);
    blocking.run(&format!("SELECT pg_advisory_unlock({QUEUE_KEY})"));
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");
}

/// Only what arrives on the connection that proves the client counts for it. The second client has the
/// other one beside it, which works.
///
/// Shows G-13.
#[tokio::test]
async fn hold_survives_a_deaf_connection() {
    const GRACE: Duration = Duration::from_secs(3);
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let both = database.url_at(&wire.address());
    let one = format!("{}?direct={}", database.url(), wire.address());
    for (url, joint) in [(&both, '?'), (&one, '&')] {
        let locks = open(&format!("{url}{joint}crash-grace=3s")).await;
        let held = acquire(&locks, "a").await;
        wire.drop_replies_silently();

        let reading = async {
            loop {
                // The pace of the requests.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let _ = tokio::time::timeout(Duration::from_secs(1), locks.inspect("b")).await;
            }
        };
        tokio::select! {
            reason = held.lost() => panic!("{url}: {reason:?}"),
            () = reading => {}
            () = tokio::time::sleep(GRACE * 2) => {}
        }
        held.release().await.expect("released");
    }
}

/// A caller that waits for a shorter time than a reply may take does not hide that none arrives.
///
/// Shows G-26.
#[tokio::test]
async fn reads_recover_from_a_deaf_connection() {
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let locks = open(&database.url_at(&wire.address())).await;
    locks.inspect("a").await.expect("inspected");

    wire.drop_replies_silently();
    eventually("the server is read again", || async {
        let brief = Duration::from_millis(200);
        let read = tokio::time::timeout(brief, locks.inspect("a")).await;
        read.is_ok_and(|read| read.is_ok())
    })
    .await;
}

/// A waiter begins to listen on the connection that proves its client.
///
/// Shows G-02.
#[tokio::test]
async fn waiter_behind_a_deaf_connection_is_granted() {
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let url = format!("{}?direct={}", database.url(), wire.address());
    let [locks, others] = [open(&url).await, open(&database.url()).await];
    let held = acquire(&others, "a").await;
    wire.drop_replies_silently();

    let waiting = tokio::spawn(locks.mutex("a").acquire());
    leasehold_conformance::support::waiters(&others, "a", 1).await;
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");
}

/// Any role that may connect can lock the queue of a name. That hold ends with its lease, and no
/// other one.
///
/// Shows G-13.
#[tokio::test]
async fn hold_whose_queue_is_locked_ends_no_other_hold() {
    let database = Database::new();
    let locks = open(&format!("{}?crash-grace=2s", database.url())).await;
    let lease = Duration::from_secs(6);
    let hold = async |name: &str| {
        let held = locks.mutex(name).lease(lease).acquire().await;
        held.expect("granted")
    };
    let [before, blocked, after] = [hold("0").await, hold("a").await, hold("b").await];
    let mut blocking = database.session();
    blocking.run(&format!("SELECT pg_advisory_lock({QUEUE_KEY})"));

    blocked.lost().await;
    for held in [before, after] {
        let lost = tokio::time::timeout(lease / 2, held.lost()).await;
        assert!(lost.is_err(), "{}: {lost:?}", held.name());
    }
}

/// Each queue is free again before a renewal gives it up, and all of them together keep a renewal
/// waiting for longer than its reply may take.
///
/// Shows G-13.
#[tokio::test]
async fn holds_whose_queues_are_locked_for_moments_are_kept() {
    let database = Database::new();
    let locks = open(&format!("{}?crash-grace=2s", database.url())).await;
    let mut holds = Vec::new();
    for name in 0..20 {
        let lock = locks.mutex(name.to_string());
        let held = lock.lease(Duration::from_secs(6)).acquire().await;
        holds.push(held.expect("granted"));
    }
    let blocking = holds.iter().map(|held| {
        let mut session = database.session();
        let key = format!("hashtextextended('leasehold queue {}', 4711)", held.name());
        session.send(&format!(
            "DO $$ BEGIN WHILE clock_timestamp() < now() + interval '10 s' LOOP \
             PERFORM pg_advisory_lock({key}); PERFORM pg_sleep(0.09); \
             PERFORM pg_advisory_unlock({key}); END LOOP; END $$"
        ));
        session
    });
    let _blocking: Vec<_> = blocking.collect();

    let lost = select_all(holds.iter().map(|held| Box::pin(held.lost())));
    let lost = tokio::time::timeout(Duration::from_secs(6), lost).await;
    assert!(lost.is_err(), "{:?}", lost.map(|(reason, ..)| reason));
}

const QUEUE_KEY: &str = "hashtextextended('leasehold queue a', 4711)";
pub(crate) const WAITING: &str = "SELECT count(*) FROM pg_locks l \
    JOIN pg_database d ON d.oid = l.database \
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted";

/// Lets a client give a request up that waits in the server, and then lets the request go on.
async fn assert_no_effect_after(given_up: Locks, database: &Database<'_>) {
    let mut blocking = database.session();
    blocking.run(&format!("SELECT pg_advisory_lock({QUEUE_KEY})"));
    let lock = given_up
        .mutex("a")
        .lease(Duration::from_secs(1))
        .no_renewal();
    let tried = lock.try_acquire_for(Duration::from_millis(500)).await;
    tried.expect_err("the store does not reply");
    drop((lock, given_up));

    blocking.run(&format!("SELECT pg_advisory_unlock({QUEUE_KEY})"));
    eventually("the request ends", || async {
        database.run(WAITING) == ["0"]
    })
    .await;
    let locks = open(&database.url()).await;
    let lock_state = locks.inspect("a").await.expect("inspected");
    assert!(lock_state.entries.is_empty(), "{lock_state:?}");
    // A grant that was left since counts too.
    assert_eq!(lock_state.last_token, None);
}

/// A hand-over moves a waiter to another place while it is looked up without the queue's lock.
///
/// Shows G-02.
#[tokio::test]
async fn look_during_a_hand_over_finds_the_waiter() {
    let database = Database::new();
    database.set_up(&[]).await;
    database.run(include_str!("looks.sql"));
    std::thread::scope(|scope| {
        for call in ["turns(2)", "looks(2)", "looks(2)", "looks(2)", "looks(2)"] {
            let mut session = database.session();
            scope.spawn(move || session.run(&format!("CALL {call}")));
        }
    });
    let counts = database.run("SELECT sum(turns) > 20, sum(looks) > 1000, sum(gone) FROM seen");
    assert_eq!(counts, ["t|t|0"]);
}

/// A leave fails while a request of its claim is under way. The one that is repeated still removes
/// what that request enters.
///
/// Shows G-10.
#[tokio::test]
async fn repeated_leave_removes_what_a_late_request_has_entered() {
    let database = Database::new();
    database.role("late");
    database.set_up(&["late"]).await;
    let wire = Wire::to(SERVER.address());
    let url = format!("postgres://late@{}/{}", wire.address(), database.name);
    let builder = Postgres::builder(&url).expect("a URL");
    let store = builder.connect().await.expect("connected");
    database.run("ALTER ROLE late NOLOGIN");
    let late = enter_late(&store, &wire, &database).await;
    let error = store.leave(&late).await.expect_err("it has no session");
    assert!(error.is_denied(), "{error}");
    database.run("ALTER ROLE late LOGIN");
    eventually("it has left", async || store.leave(&late).await.is_ok()).await;

    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'late'";
    eventually("the request ends", async || database.run(sessions) == ["2"]).await;
    eventually("it has left again", async || {
        let state = store.inspect(&late.name).await.expect("inspected");
        state.entries.is_empty()
    })
    .await;
}

/// Sends a request whose session ends before the request arrives, after three seconds. The server
/// executes it for 5 s after it was sent.
async fn enter_late(store: &Postgres, wire: &Wire, database: &Database<'_>) -> Claim {
    let mut late = claim("a");
    late.lease = Duration::from_secs(60);
    wire.delay(Duration::from_secs(3));
    let sent = async {
        eventually("it is sent", async || wire.traffic().waiting_to_server > 0).await;
        wire.delay(Duration::ZERO);
        terminate(
            database,
            &format!("{PROVES_A_CLIENT} AND usename <> 'postgres'"),
        );
    };
    let (entered, ()) = tokio::join!(store.enter(&late, OnContention::Fail), sent);
    entered.expect_err("its session has ended");
    late
}

/// The request is repeated and refused. The first one arrives when the lock is free.
///
/// Shows G-10.
#[tokio::test]
async fn refused_claim_removes_what_a_late_request_has_entered() {
    let database = Database::new();
    database.role("refused");
    database.set_up(&["refused"]).await;
    let wire = Wire::to(SERVER.address());
    let url = format!("postgres://refused@{}/{}", wire.address(), database.name);
    let builder = Postgres::builder(&url).expect("a URL");
    let store = builder.connect().await.expect("connected");
    let others = open(&database.url()).await;
    let held = acquire(&others, "a").await;
    let token = held.token();

    let late = enter_late(&store, &wire, &database).await;
    let refused = store.enter(&late, OnContention::Fail).await;
    assert_eq!(refused.expect("replied").standing, Standing::Gone);
    held.release().await.expect("released");
    let state = async || others.inspect("a").await.expect("inspected");
    eventually("it is entered", async || {
        state().await.last_token > Some(token)
    })
    .await;
    eventually("it has left", async || state().await.entries.is_empty()).await;
}

/// The session of a request ends before its caller reads the reply, and the next one is behind a
/// pooler, where holds last for their lease.
///
/// Shows G-01.
#[tokio::test]
async fn hold_counts_from_the_session_of_its_request() {
    let database = Database::new();
    let wire = Wire::to(SERVER.address());
    let pooler = PgBouncer::start(&SERVER, "transaction");
    let hosts = format!("{},{}", wire.address(), pooler.address());
    let url = format!("{}?crash-grace=2s", database.url_at(&hosts));
    let builder = Postgres::builder(&url).expect("a URL");
    let store = builder.connect().await.expect("connected");

    // On a busy machine, the reply may be there before the end of the first poll.
    let mut tries = 0..100;
    let (name, entering) = loop {
        let name = format!("a{}", tries.next().expect("one waits for its reply"));
        let holder = claim(&name);
        let store = &store;
        let entering = async move { store.enter(&holder, OnContention::Fail).await };
        let mut entering = Box::pin(entering);
        if poll!(&mut entering).is_pending() {
            break (name, entering);
        }
    };
    let held = format!("SELECT count(*) FROM leasehold_private.lock WHERE name = '{name}'");
    eventually("it is granted", async || database.run(&held) == ["1"]).await;
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND application_name = 'leasehold' AND state = 'idle' AND wait_event = 'ClientRead'";
    eventually("the reply is sent", async || database.run(idle) == ["2"]).await;
    wire.refuse(true);
    terminate(&database, PROVES_A_CLIENT);
    eventually("the next session is there", async || {
        store.guarantees().crash_release == CrashRelease::LeaseExpiry
    })
    .await;

    let entered = entering.await.expect("granted");
    assert!(entered.standing.token().is_some(), "{entered:?}");
    assert!(entered.lease <= Duration::from_secs(2), "{entered:?}");
}

/// Each listening session of a database wakes up with each notification. So a client stops when it has
/// had no waiter near the front for ten seconds, and begins again with the next one.
///
/// Shows G-05.
#[tokio::test]
async fn client_listens_only_while_it_has_a_waiter_near_the_front() {
    let database = Database::new();
    let [ours, theirs] = [open(&database.url()).await, open(&database.url()).await];
    let until_last = async |word: &str| {
        let sent = format!(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND query LIKE '{word} \"leasehold%'"
        );
        while database.run(&sent) != ["1"] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let wait_near = async || {
        let held = acquire(&theirs, "a").await;
        let waiting = queue_up(&ours, "a").await;
        let listening = tokio::time::timeout(TIMEOUT, until_last("LISTEN"));
        listening.await.expect("it listens");
        held.release().await.expect("released");
        granted(waiting).await.release().await.expect("released");
    };

    wait_near().await;
    let idle = tokio::time::timeout(TIMEOUT, until_last("UNLISTEN"));
    idle.await.expect("it stops");
    wait_near().await;
}

/// Nobody renews the hold, so whoever waits for its loss looks at it from time to time.
///
/// Shows G-12, G-14.
#[tokio::test]
async fn fixed_lease_does_not_begin_again_on_a_new_connection() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    let lock = locks.mutex("a").lease(Duration::from_secs(60)).no_renewal();
    let held = lock.acquire().await.expect("granted");
    let watch = held.watch();
    let lost = tokio::spawn(async move { watch.lost().await });
    let deadline =
        || database.run("SELECT (holder).deadline FROM leasehold_private.lock WHERE name = 'a'");
    let granted = deadline();

    terminate(&database, "true");
    // What the wait would send on the new connection is before most of these requests.
    for _ in 0..10 {
        use_once(&locks, "b").await;
    }
    assert_eq!(deadline(), granted);
    database.run(&format!(
        "SELECT leasehold.leave_1('a', '{}', NULL)",
        held.claim_id()
    ));
    let ended = tokio::time::timeout(TIMEOUT, lost).await;
    ended.expect("it is noticed").expect("no panic");
}

/// What a client sends while it connects again may be lost, and then nothing arrives on that connection
/// any more. It tries again while the hold is there.
///
/// Shows G-13.
#[tokio::test]
async fn silent_attempt_to_connect_again_loses_no_hold() {
    let database = Database::new();
    let wire = Wire::to(database.server.address());
    let url = format!("{}?crash-grace=4s", database.url_at(&wire.address()));
    keep_through_a_silent_attempt(&database, &wire, open(&url).await).await;
}

/// The server before it in the URL is down at first, and then so silent that an attempt to connect
/// to it takes all the time that it is given.
///
/// Shows G-13.
#[tokio::test]
async fn silent_server_of_several_takes_a_part_of_the_time_to_connect_again() {
    let database = Database::new();
    let wire = Wire::to(database.server.address());
    let down = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = down.local_addr().expect("it has one");
    drop(down);
    let hosts = format!("{address},{}", wire.address());
    let url = format!("{}?crash-grace=4s", database.url_at(&hosts));
    let locks = open(&url).await;
    let _silent = TcpListener::bind(address).expect("the port is still free");
    keep_through_a_silent_attempt(&database, &wire, locks).await;
}

/// A server that opens a session slowly has more time with each attempt, also if another one of the
/// URL refuses at once.
///
/// Shows G-25.
#[tokio::test]
async fn slow_server_beside_one_that_refuses_is_given_more_time() {
    let database = Database::new();
    let wire = Wire::to(database.server.address());
    let down = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = down.local_addr().expect("it has one");
    drop(down);
    let hosts = format!("{},{address}", wire.address());
    let url = format!("{}?crash-grace=2s", database.url_at(&hosts));
    let locks = open(&url).await;

    let before = wire.traffic();
    wire.delay(Duration::from_millis(40));
    wire.partition();
    eventually("there is a session", || async {
        locks.inspect("a").await.is_ok()
    })
    .await;
    let attempts = wire.traffic().connections - before.connections;
    assert!(attempts > 2, "the server was not slow: {attempts}");
}

/// Checks that the client keeps a hold although the first attempt to connect again hears nothing.
async fn keep_through_a_silent_attempt(database: &Database<'_>, wire: &Wire, cut: Locks) {
    let others = open(&database.url()).await;
    let held = acquire(&cut, "a").await;
    let waiting = queue_up(&others, "a").await;

    let before = wire.traffic();
    wire.lose_replies(true);
    wire.partition();
    eventually("a reply to a new connection is lost", || async {
        let now = wire.traffic();
        now.connections > before.connections && now.lost > before.lost
    })
    .await;
    wire.lose_replies(false);
    eventually("there is a session", || async {
        cut.inspect("a").await.is_ok()
    })
    .await;
    held.check().expect("still held");
    held.release().await.expect("released");
    granted(waiting).await.release().await.expect("released");
}
