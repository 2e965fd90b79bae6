//! Servers that stop, fail over, are full, or lose their data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab_servers::{Postgres, Wire, until};
use leasehold::{Locks, Watch};
use leasehold_conformance::support::eventually;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use crate::sessions::terminate;
use crate::{Database, TIMEOUT, acquire, is_free, open, open_error, queue_up, use_once};

/// Contenders for one lock, whose errors are expected. Each grant must follow the end of the hold
/// before it, by release or loss.
pub(crate) struct Contention {
    ends: Arc<AtomicBool>,
    contenders: JoinSet<u32>,
}

impl Contention {
    pub(crate) async fn start(urls: &[String]) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let holder: Arc<Mutex<Option<Watch>>> = Arc::default();
        let mut contenders = JoinSet::new();
        for url in urls {
            let locks = open(url).await;
            contenders.spawn(contend(locks, Arc::clone(&ends), Arc::clone(&holder)));
        }
        Self { ends, contenders }
    }

    /// Ends the contention; every contender was granted the lock since it is asked to end.
    pub(crate) async fn end(self) -> u32 {
        self.ends.store(true, Ordering::Relaxed);
        let ended = tokio::time::timeout(TIMEOUT * 2, self.contenders.join_all());
        ended.await.expect("all contenders end").iter().sum()
    }
}

async fn contend(locks: Locks, ends: Arc<AtomicBool>, holder: Arc<Mutex<Option<Watch>>>) -> u32 {
    let mut grants = 0;
    loop {
        let ends = ends.load(Ordering::Relaxed);
        let held = match locks.mutex("contended").acquire().await {
            Ok(held) => held,
            Err(error) if error.is_unavailable() => continue,
            Err(error) => panic!("{error:?}"),
        };
        let before = holder.lock().replace(held.watch());
        let is_over = before.is_none_or(|before| before.check().is_err());
        assert!(is_over || held.check().is_err(), "two holders");
        grants += 1;

        tokio::time::sleep(Duration::from_millis(2)).await;
        if held.check().is_ok() {
            *holder.lock() = None;
        }
        // The lock is released later at the latest, and a lost hold has no release.
        let _ = held.release().await;
        if ends {
            return grants;
        }
    }
}

/// Stops a process of the server.
fn stop_process(server: &Postgres, kind: &str) -> Pid {
    let select = format!("SELECT pid FROM pg_stat_activity WHERE backend_type = '{kind}'");
    let process = server.run(&select)[0].parse().expect("a process id");
    let process = Pid::from_raw(process).expect("it is positive");
    kill_process(process, Signal::STOP).expect("it is the server's");
    process
}

/// Makes a change that must be on disk although the server writes others later.
async fn flushed<T>(server: &Postgres, change: impl Future<Output = T>) -> T {
    // It writes what commits did not wait for.
    let walwriter = stop_process(server, "walwriter");
    let before = server.run("SELECT pg_current_wal_insert_lsn()").remove(0);
    let changed = change.await;
    let is_flushed = server.run(&format!("SELECT pg_current_wal_flush_lsn() > '{before}'"));
    kill_process(walwriter, Signal::CONT).expect("it is the server's");
    assert_eq!(is_flushed, ["t"]);
    changed
}

/// The server would report commits that a crash takes back.
///
/// Shows G-01, G-02, G-13.
#[tokio::test]
async fn restarted_server_keeps_holds_and_waiters() {
    let mut server = Postgres::configured(&["synchronous_commit=off"]);
    let url = Database::on(&server).url();
    let [locks, others] = [open(&url).await, open(&url).await];
    let held = flushed(&server, acquire(&locks, "a")).await;
    let waiting = queue_up(&others, "a").await;
    let contention = Contention::start(&vec![url; 3]).await;
    for _ in 0..2 {
        server.restart();
        eventually("a client is back", || async {
            others.inspect("a").await.is_ok()
        })
        .await;
    }
    assert_ne!(contention.end().await, 0);
    held.check().expect("the outage was shorter than the grace");
    assert!(!waiting.is_finished());
    let released = flushed(&server, held.release()).await;
    released.expect("released");
    let next = crate::granted(waiting).await;
    next.release().await.expect("released");

    let job = locks.once("job").id("1").acquire().await.expect("granted");
    let job = job.expect("it is not done");
    let completed = flushed(&server, job.complete()).await;
    completed.expect("recorded");
}

/// A server that crashes forgets what grants nothing: here a release, and a waiter behind another.
///
/// Shows G-02, G-05.
#[tokio::test]
async fn forgotten_release_ends_with_the_grace_and_forgotten_waiter_enters_again() {
    let server = Postgres::start();
    let url = Database::on(&server).url();
    let [ours, theirs, others] = [open(&url).await, open(&url).await, open(&url).await];
    let brief = open(&format!("{url}?crash-grace=1s")).await;
    let held = acquire(&ours, "a").await;
    let released = acquire(&brief, "b").await;
    let first = queue_up(&theirs, "a").await;

    let walwriter = stop_process(&server, "walwriter");
    let second = queue_up(&others, "a").await;
    released.release().await.expect("released");
    kill_process(walwriter, Signal::KILL).expect("it is the server's");
    // A session may still be served for a moment.
    eventually("the server has restarted", || async {
        server.log().matches("ready to accept connections").count() == 2
    })
    .await;
    eventually("a client is back", || async {
        ours.inspect("b").await.is_ok()
    })
    .await;
    let forgotten = ours.inspect("b").await.expect("inspected");
    assert_eq!(forgotten.holders().count(), 1, "{forgotten:?}");

    let next = acquire(&theirs, "b").await;
    next.release().await.expect("released");
    held.release().await.expect("still held");
    for waiting in [first, second] {
        let next = crate::granted(waiting).await;
        next.release().await.expect("released");
    }
}

/// Shows G-01, G-02.
#[tokio::test]
async fn sessions_that_end_at_random_lose_no_grant() {
    let database = Database::new();
    let contention = Contention::start(&vec![database.url(); 8]).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        terminate(&database, "random() < 0.2");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_ne!(contention.end().await, 0);
}

/// The hold is lost with the tables, and a client makes again what is missing.
#[tokio::test]
async fn dropped_schema_is_made_again() {
    let database = Database::new();
    let locks = open(&format!("{}?crash-grace=1s", database.url())).await;
    let before = use_once(&locks, "b").await;
    let contention = Contention::start(&vec![database.url(); 4]).await;
    for schemas in [
        "leasehold, leasehold_private",
        "leasehold",
        "leasehold_private",
    ] {
        let held = acquire(&locks, "a").await;
        database.run(&format!("DROP SCHEMA {schemas} CASCADE"));
        // The other one has the tables.
        if schemas != "leasehold" {
            held.lost().await;
        }
        eventually("the schema is back", || async {
            locks.inspect("a").await.is_ok()
        })
        .await;
    }
    assert_ne!(contention.end().await, 0);
    assert!(use_once(&locks, "b").await > before);
    assert!(is_free(&locks, "a").await);
}

/// A statement finds the function, and the server cannot find it any more when it executes it.
#[tokio::test]
async fn function_dropped_while_it_is_called_is_an_outage() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    database.run(
        "DO $$ DECLARE function regproc := 'leasehold.enter_1'; BEGIN
         EXECUTE format(
            'CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN '
            'RAISE ''cache lookup failed for function 19463'' USING ERRCODE = ''XX000''; END $f$',
            function, pg_get_function_arguments(function), pg_get_function_result(function)
         );
         END $$",
    );
    let error = locks
        .mutex("a")
        .try_acquire()
        .await
        .expect_err("no function");
    assert!(error.is_unavailable(), "{error}");

    database.run("DROP SCHEMA leasehold, leasehold_private CASCADE");
    eventually("the schema is back", || async {
        locks.inspect("a").await.is_ok()
    })
    .await;
    use_once(&locks, "a").await;
}

#[tokio::test]
async fn full_server_is_unavailable_until_it_is_not() {
    let server = Postgres::configured(&["max_connections=10", "max_wal_senders=0"]);
    let database = Database::on(&server);
    database.role("ordinary");
    database.set_up(&["ordinary"]).await;
    let url = database.url_of("ordinary");
    let mut clients = Vec::new();
    let error = loop {
        match leasehold::open(&url).await {
            Ok(locks) => clients.push(locks),
            Err(error) => break error,
        }
        assert!(clients.len() < 10);
    };
    assert!(error.is_unavailable(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("connection slots") || text.contains("too many"),
        "{text}"
    );

    use_once(&clients[0], "a").await;
    clients.pop();
    let recovered = || async { leasehold::open(&url).await.is_ok() };
    eventually("a connection is free", recovered).await;
}

/// A dropped client closes its connections, and leaves each claim once: a reply says that nothing
/// is under way that could come later.
#[tokio::test]
async fn released_claim_is_left_once() {
    let server = Postgres::configured(&["track_functions=all"]);
    let database = Database::on(&server);
    let locks = open(&database.url()).await;
    for name in ["a", "b", "c"] {
        use_once(&locks, name).await;
    }
    drop(locks);

    let one = |query: &str| database.run(query).concat();
    let are_closed = || async {
        one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'") == "0"
    };
    eventually("the connections are closed", are_closed).await;
    let calls = "SELECT calls FROM pg_stat_user_functions WHERE funcname = 'leave_1'";
    assert_eq!(one(calls), "3");
}

/// Shows G-01, G-02.
#[tokio::test]
async fn client_follows_the_promotion_of_a_replica() {
    let mut primary = Postgres::start();
    let name = Database::on(&primary).name;
    let replica = primary.replica();
    let url = |addresses: [&str; 2]| {
        format!(
            "postgres://postgres@{}/{name}?crash-grace=2s",
            addresses.join(",")
        )
    };
    let addresses = [primary.address(), replica.address()];
    let [first, second] = [0, 1].map(|at| addresses[at].as_str());

    // The replica cannot be written, whatever its place.
    let locks = open(&url([second, first])).await;
    let error = open_error(&format!("postgres://postgres@{second}/{name}")).await;
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("written"), "{error}");
    let before = use_once(&locks, "b").await;
    let held = acquire(&locks, "a").await;
    let others = open(&url([first, second])).await;
    let waiting = queue_up(&others, "a").await;

    let sql = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()";
    until("the replica has all", || {
        Ok((primary.run(sql) == ["1"]).then_some(()))
    })
    .expect("it follows");
    let mut reader = replica.session_as("postgres", &name);
    reader.run("\\set VERBOSITY sqlstate\n");
    let pinned = reader.run(&format!(
        "SELECT leasehold.\"check\"('a', {})",
        held.token()
    ));
    assert_eq!(pinned, ["ERROR:  LH008"]);

    primary.stop();
    replica.promote();
    eventually("both clients are back", || async {
        let state = others.inspect("a").await;
        state.is_ok_and(|state| {
            state
                .entries
                .iter()
                .all(|entry| entry.connected == Some(true))
        })
    })
    .await;
    held.check().expect("the new primary has the hold");
    assert!(!waiting.is_finished());
    assert!(use_once(&locks, "b").await > before);

    // The old primary returns, and nobody has told it.
    primary.restart();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    replica.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'",
    );
    eventually("both clients are back", || async {
        others.inspect("a").await.is_ok() && replica.run(sessions) == ["4"]
    })
    .await;
    assert_eq!(primary.run(sessions), ["0"]);
    held.release().await.expect("released");
    crate::granted(waiting)
        .await
        .release()
        .await
        .expect("released");
}

/// The backup has an old token. That of the next grant is the clock's.
///
/// Shows G-04.
#[tokio::test]
async fn tokens_after_a_restored_backup_exceed_those_after_the_dump() {
    let database = Database::new();
    let locks = open(&database.url()).await;
    use_once(&locks, "a").await;
    let held = acquire(&locks, "held").await;
    let waiting = queue_up(&locks, "held").await;
    let dump = database.server.dump(&database.name);
    let last = use_once(&locks, "a").await;
    held.release().await.expect("released");
    let last_held = crate::granted(waiting).await.token();

    let restored = Database::new();
    let mut session = restored.session();
    let errors: Vec<String> = session
        .run(&dump)
        .into_iter()
        .filter(|line| line.contains("ERROR"))
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    let locks = open(&restored.url()).await;
    assert!(use_once(&locks, "a").await > last);

    // The claims of the backup have no session in this database.
    let entries = locks.inspect("held").await.expect("inspected").entries;
    assert_eq!(entries.len(), 2, "{entries:?}");
    let token = entries[0].token().expect("it holds");
    locks.break_hold("held", token).await.expect("broken");
    assert!(use_once(&locks, "held").await > last_held);
}

/// A reply of the server does not arrive, and the claim is found by its id.
///
/// Shows G-10.
#[tokio::test]
async fn claim_with_lost_reply_is_found_once() {
    let database = Database::new();
    let wire = Wire::to(database.server.address());
    let ours = open(&database.url_at(&wire.address())).await;
    let theirs = open(&database.url()).await;
    // A reply that is missing is waited for a third of it.
    let lock = ours.mutex("a").lease(Duration::from_secs(6));
    for _ in 0..2 {
        wire.drop_replies(1);
        let held = lock.acquire().await.expect("granted");
        let lock_state = theirs.inspect("a").await.expect("inspected");
        assert_eq!(lock_state.entries.len(), 1);
        assert_eq!(lock_state.last_token, Some(held.token()));
        held.release().await.expect("released");
        assert!(is_free(&theirs, "a").await);
    }
}

/// Only the first few waiters of a queue look often. It prints how many requests each client sends.
///
/// Shows G-02.
#[tokio::test]
async fn waiting_clients_send_few_requests() {
    const CLIENTS: usize = 50;
    const SECONDS: usize = 10;
    let server = Postgres::configured(&["log_min_duration_statement=0"]);
    let database = Database::on(&server);
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    let mut waiting = Vec::new();
    for _ in 0..CLIENTS {
        let client = open(&database.url()).await;
        waiting.push(queue_up(&client, "a").await);
    }
    let requests = || {
        let log = server.log();
        log.lines()
            .filter(|line| line.contains(" execute "))
            .count()
    };
    // Until then, each waiter takes the queue for a fast one.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = requests();
    tokio::time::sleep(Duration::from_secs(SECONDS as u64)).await;
    let sent = requests() - before;
    println!("{CLIENTS} waiting clients have sent {sent} requests in {SECONDS} s");
    assert!(sent < CLIENTS * SECONDS / 2, "{sent}");
    for waiting in waiting {
        waiting.abort();
    }
    held.release().await.expect("released");
}

/// A grant is on the replica before its client has it, so its promotion loses none.
///
/// Shows G-01, G-04.
#[tokio::test]
async fn promoted_synchronous_replica_has_every_grant() {
    let mut primary = Postgres::start();
    let name = Database::on(&primary).name;
    let replica = primary.replica();
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.run("SELECT pg_reload_conf()");
    let sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    until("the replica is synchronous", || {
        Ok((primary.run(sync) == ["1"]).then_some(()))
    })
    .expect("it follows");

    // A default that other programs do well with.
    primary.run("ALTER ROLE postgres SET synchronous_commit = local");

    let addresses = [primary.address(), replica.address()].join(",");
    let url = format!("postgres://postgres@{addresses}/{name}?crash-grace=20s");
    let locks = open(&url).await;
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(acquire(&locks, &format!("a{number}")).await);
    }
    let receiver = stop_process(&replica, "walreceiver");
    let acquiring = tokio::spawn(locks.mutex("a20").acquire());
    until("the grant waits for the replica", || {
        let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        Ok((primary.run(waits) == ["t"]).then_some(()))
    })
    .expect("it is synchronous");
    assert!(!acquiring.is_finished());
    kill_process(receiver, Signal::CONT).expect("it is the replica's");
    held.push(crate::granted(acquiring).await);
    primary.stop();
    replica.promote();
    eventually("the client is back", || async {
        locks.inspect("a0").await.is_ok()
    })
    .await;
    for held in held {
        held.check().expect("still held");
        let lock_state = locks.inspect(held.name()).await.expect("inspected");
        assert_eq!(lock_state.last_token, Some(held.token()));
        held.release().await.expect("released");
    }
}

/// No grant can be committed, and each request ends with an error that may pass.
///
/// Shows G-22.
#[tokio::test]
async fn full_disk_is_unavailable_until_it_has_space() {
    let server = Postgres::start();
    let database = Database::on(&server);
    let locks = open(&database.url()).await;
    let held = acquire(&locks, "a").await;
    // A trigger raises the error of a full disk. The lab fills a real one.
    database.run(
        "CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'could not extend file: No space left on device' \
         USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER is_full BEFORE INSERT OR UPDATE ON leasehold_private.lock \
         FOR EACH ROW EXECUTE FUNCTION public.full()",
    );
    let error = locks
        .mutex("b")
        .try_acquire()
        .await
        .expect_err("it is full");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(error.to_string().contains("No space left"), "{error}");
    held.check().expect("it is held until its grace is over");
    database.run("DROP TRIGGER is_full ON leasehold_private.lock");
    held.release().await.expect("released");
    assert!(is_free(&locks, "b").await);
}
