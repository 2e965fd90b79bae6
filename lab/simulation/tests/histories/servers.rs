//! Real clients while servers restart, replicas lag behind, and slots move.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lab_redis_model::{Cluster, Host, Reply, Restart, Sentinels};
use lab_simulation::testbed::{self, Redis, Wire};
use leasehold::{Guard, Locks};
use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(10);
/// How far a replica is behind its master.
const LAG: Duration = Duration::from_millis(500);
/// A client that is connected acquires a free lock within this time.
const SOON: Duration = Duration::from_millis(300);

#[test]
fn hold_survives_a_restart_with_its_data_and_is_lost_without() {
    run(servers, named, async |servers| {
        let server = Arc::clone(&servers.lock()[0]);
        let held = acquire(&open("redis://a").await).await;
        let other = open("redis://a").await;

        for _ in 0..2 {
            server.restart(Restart::WithData);
            sleep(LEASE * 2).await;
            held.check().expect("the server has the hold");
            assert!(is_held(&other).await);
        }
        server.restart(Restart::Empty);
        within(SOON, held.lost()).await;
        let _held = acquire(&other).await;
    });
}

#[test]
fn stopped_server_costs_a_hold_after_the_crash_grace() {
    run(servers, named, async |servers| {
        let server = Arc::clone(&servers.lock()[0]);
        let locks = open("redis://a?crash-grace=4s").await;
        let held = acquire(&locks).await;

        server.stop();
        // It waits for the reply timeout, 2 s.
        let refused = locks.mutex("other").try_acquire_for(SOON).await;
        assert!(refused.is_err_and(|error| error.is_unavailable()));
        server.restart(Restart::WithData);
        sleep(LEASE).await;
        held.check().expect("the outage was short");

        server.stop();
        within(Duration::from_secs(4), held.lost()).await;
    });
}

/// Two of three masters forget their votes. They do not vote until the longest lease has passed, and
/// then they do.
///
/// Shows G-34.
#[test]
fn restarted_masters_grant_no_second_hold() {
    let forgets: [fn(&Host); 3] = [
        |master| master.restart(Restart::Empty),
        |master| drop(master.request(&["FLUSHALL"])),
        // With an older snapshot.
        |master| {
            master.request(&["DEL", "leasehold:redlock:{job}"]);
            master.restart(Restart::WithData);
        },
    ];
    for forget in forgets {
        run(servers, named, async |servers| {
            let url = "redlock://a,b,c?longest-lease=10s";
            let [locks, other] = [open(url).await, open(url).await];
            let held = acquire_later(&locks).await;

            servers.lock()[..2].iter().for_each(|server| forget(server));
            let second = acquire_later(&other).await;
            held.check()
                .expect_err("the second holder has waited for the first");
            second.check().expect("it is held");
        });
    }
}

#[test]
fn replica_is_behind_by_the_lag_until_its_master_stops() {
    run(servers, named, async |servers| {
        let [master, replica, _] = servers.lock().clone();
        let read = || replica.request(&["GET", KEY]);
        replica.follow(&master, LAG);

        write_to(&master);
        sleep(LAG / 2).await;
        assert_eq!(read(), Reply::Nil);
        sleep(LAG / 2).await;
        assert_eq!(read(), Reply::Bytes(Vec::new()));

        master.request(&["DEL", KEY]);
        master.stop();
        sleep(LAG * 2).await;
        replica.promote();
        assert_eq!(read(), Reply::Bytes(Vec::new()));
    });
}

/// The demoted primary keeps its connections. Its address leads to the new one two seconds later.
///
/// Shows G-25.
#[test]
fn clients_follow_the_address_of_a_demoted_primary() {
    for format in ["crash-grace=4s", "dialect=plain", "dialect=redisson"] {
        run(servers, named, async |servers| {
            let address = Wire::to("a");
            let url = format!("{}?{format}", address.url_of("redis"));
            let [locks, other] = [open(&url).await, open(&url).await];
            let held = acquire(&locks).await;
            let waiting = tokio::spawn(other.mutex(NAME).lease(LEASE).acquire());
            demote(&servers).await;
            sleep(LAG * 4).await;
            let tried = other.mutex("other").try_acquire().await;
            let error = tried.expect_err(format).to_string();
            assert!(
                error.contains("the server is a read-only replica"),
                "{error}"
            );

            address.lead_to("b");
            let trying = async {
                while locks.mutex("other").try_acquire().await.is_err() {
                    sleep(SOON).await;
                }
            };
            within(FOLLOWED_WITHIN, trying).await;
            sleep(LEASE * 2).await;
            held.check().expect(format);
            assert!(!waiting.is_finished(), "{format}: two hold");
            held.release().await.expect("it is held");
            let granted = within(FOLLOWED_WITHIN, waiting).await;
            let _next = granted.expect("no panic").expect(format);
        });
    }
}

/// No request finds that the server was demoted, until the renewal of the hold does.
#[test]
fn hold_on_a_demoted_primary_is_lost_after_the_crash_grace_with_the_reason() {
    run(servers, named, async |servers| {
        let locks = open("redis://a?crash-grace=4s").await;
        let held = acquire(&locks).await;
        demote(&servers).await;

        within(LEASE, held.until_remaining(SOON)).await;
        let reason = held
            .outage_error()
            .expect("no renewal succeeds")
            .to_string();
        assert!(
            reason.contains("the server is a read-only replica"),
            "{reason}"
        );
        within(SOON, held.lost()).await;
    });
}

/// Promotes the replica `b` of the primary `a`, which then follows it.
async fn demote(servers: &Mutex<[Arc<Host>; 3]>) {
    let [old, new, _] = servers.lock().clone();
    new.follow(&old, LAG);
    sleep(LAG * 2).await;
    new.promote();
    old.follow(&new, LAG);
}

/// Within this time of the move of an address, its clients work on.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);

const SENTINEL: &str = "redis+sentinel://s1,s2,s3/main";

#[test]
fn hold_that_the_replica_has_survives_the_failover() {
    run(sentinels, Sentinels::host, async |group| {
        let held = acquire(&open(SENTINEL).await).await;
        let other = open(SENTINEL).await;
        let old = Arc::clone(group.lock().master());
        let server = Arc::clone(&old);
        let (_client, stream) = duplex(1);
        let connection = tokio::spawn(async move { server.serve(stream, SlowWire).await });
        sleep(LAG * 2).await;

        group.lock().fail_over();
        assert_eq!(write_to(&old), Reply::Status("OK".to_owned()));
        sleep(LEASE * 2).await;
        held.check().expect("the replica had the hold");
        assert!(is_held(&other).await);

        group.lock().rejoin();
        let ended = within(SOON, connection).await.expect("no panic");
        ended.expect_err("a replica keeps no connection");
        let refused = "READONLY You can't write against a read only replica.";
        assert_eq!(write_to(&old), Reply::Error(refused.to_owned()));
        held.release().await.expect("it is held");
    });
}

/// The old master works on, and its clients are still connected to it. A sentinel that was down
/// during the failover leads no client back to it.
#[test]
fn switch_that_a_sentinel_publishes_is_followed_at_once() {
    run(sentinels, Sentinels::host, async |group| {
        let locks = open(SENTINEL).await;
        acquire(&locks).await.release().await.expect("it is held");
        let old = Arc::clone(group.lock().master());
        let late = group.lock().host("s3").expect("a sentinel");
        // The client asks once a second.
        sleep(Duration::from_millis(700)).await;
        late.stop();

        group.lock().fail_over();
        sleep(Duration::from_millis(20)).await;
        let held = acquire(&locks).await;
        old.stop();
        late.restart(Restart::WithData);
        sleep(LEASE * 2).await;
        held.check().expect("the new master has it");
    });
}

/// Without a wait after the failover, the holds may overlap. The tokens rise then.
#[test]
fn hold_that_the_replica_lacks_is_lost_and_granted_with_a_larger_token() {
    run(sentinels, Sentinels::host, async |group| {
        let [locks, other] = [open(SENTINEL).await, open(SENTINEL).await];
        let held = acquire(&locks).await;

        kill_master(&group).await;
        let second = acquire_later(&other).await;
        assert!(second.token() > held.token());
        within(LEASE, held.lost()).await;
        second.check().expect("the new master has it");
    });
}

/// On the new master, the claim of the holder still waits for the holder before it.
///
/// Shows G-12.
#[test]
fn hold_whose_claim_is_queued_again_is_lost() {
    run(sentinels, Sentinels::host, async |group| {
        let [locks, other] = [open(SENTINEL).await, open(SENTINEL).await];
        let first = acquire(&locks).await;
        let waiting = tokio::spawn(other.mutex(NAME).lease(LEASE * 6).acquire());
        sleep(LAG * 2).await;
        first.release().await.expect("it is held");
        let second = within(SOON, waiting).await.expect("no panic");
        let second = second.expect("granted");

        kill_master(&group).await;
        let losing = async {
            while second.check().is_ok() {
                sleep(SOON).await;
            }
        };
        within(LEASE / 2, losing).await;
    });
}

#[test]
fn wait_after_a_failover_keeps_holds_apart() {
    run(sentinels, Sentinels::host, async |group| {
        let url = format!("{SENTINEL}?after-failover=wait&longest-lease=10s");
        let [locks, other] = [open(&url).await, open(&url).await];
        // The master waits after its first request too.
        let held = acquire_later(&locks).await;

        kill_master(&group).await;
        next_waits_for_the_lease(&other, &held).await;
    });
}

async fn next_waits_for_the_lease(locks: &Locks, held: &Guard) {
    let begun = Instant::now();
    let second = acquire_later(locks).await;
    assert!(begun.elapsed() >= LEASE, "{:?}", begun.elapsed());
    held.check().expect_err("its lease has passed");
    second.check().expect("it is held");
}

/// The replica has a release that the next grant has followed on its master. To it, the lock was free
/// a moment ago, which a fast path of the script may grant again within the same ten seconds.
///
/// Shows G-01.
#[test]
fn wait_after_a_failover_is_that_of_a_free_lock_too() {
    for passed in [0, 3, 6] {
        run(sentinels, Sentinels::host, async |group| {
            let url = format!("{SENTINEL}?after-failover=wait&longest-lease=10s");
            let [locks, other] = [open(&url).await, open(&url).await];
            acquire_later(&locks).await.release().await.expect("held");
            sleep(Duration::from_secs(passed)).await;
            acquire(&locks).await.release().await.expect("held");
            sleep(LAG * 2).await;
            let held = acquire(&locks).await;

            kill_master(&group).await;
            next_waits_for_the_lease(&other, &held).await;
        });
    }
}

const CLUSTER: &str = "redis+cluster://a,b,c";

#[test]
fn hold_moves_with_its_slot() {
    run(cluster, Cluster::host, async |group| {
        let [locks, other] = [open(CLUSTER).await, open(CLUSTER).await];
        let held = acquire(&locks).await;
        let [from, to] = next_pair(&group);

        group.lock().begin_move(KEY, to);
        group.lock().end_move(KEY);
        // The next request meets the old master, which names the new one.
        assert!(is_held(&other).await);
        sleep(LEASE * 2).await;
        held.check().expect("its new master has it");
        held.release().await.expect("it is held");
        assert_eq!(keys(&group, from), 0);
    });
}

/// All keys of the lock are on the next master, so it executes the requests about them.
#[test]
fn release_in_a_moving_slot_asks_the_next_master() {
    run(cluster, Cluster::host, async |group| {
        let [locks, other] = [open(CLUSTER).await, open(CLUSTER).await];
        let pool = locks.semaphore(NAME, 2).lease(LEASE);
        let held = [acquired(&pool).await, acquired(&pool).await];
        let waiting = tokio::spawn(other.semaphore(NAME, 2).lease(LEASE).acquire());
        sleep(SOON).await;
        let [from, to] = next_pair(&group);
        // An earlier hold of the lock has ended without a release.
        let note = format!("{KEY}:ended");
        group.lock().master(from).request(&["SET", &note, ""]);
        assert_eq!([keys(&group, from), keys(&group, to)], [5, 0]);

        group.lock().begin_move(KEY, to);
        for part in ["", ":claims", ":queue", ":holders", ":ended"] {
            group.lock().move_key(&format!("{KEY}{part}"));
        }
        let [first, _second] = held;
        within(SOON, first.release()).await.expect("it is held");
        group.lock().end_move(KEY);
        let waiter = within(LEASE, waiting).await.expect("no panic");
        let _third = waiter.expect("the release has handed the share over");
    });
}

#[test]
fn half_moved_lock_is_unavailable_until_its_slot_has_moved() {
    run(cluster, Cluster::host, async |group| {
        let [locks, other] = [open(CLUSTER).await, open(CLUSTER).await];
        let pool = locks.semaphore(NAME, 2).lease(LEASE);
        let held = [acquired(&pool).await, acquired(&pool).await];
        let [_, to] = next_pair(&group);

        group.lock().begin_move(KEY, to);
        group.lock().move_key(KEY);
        let third = other.semaphore(NAME, 2).lease(LEASE);
        let refused = third.try_acquire_for(SOON).await;
        assert!(refused.is_err_and(|error| error.is_unavailable()));

        group.lock().end_move(KEY);
        for held in held {
            held.release().await.expect("it is held");
        }
        let _third = acquired(&third).await;
    });
}

/// The reply that names the new master arrives when the time limit of the request is over.
#[test]
fn lock_that_moves_until_the_time_limit_is_unavailable() {
    run(cluster, Cluster::host, async |group| {
        let locks = open(CLUSTER).await;
        acquire(&locks).await.release().await.expect("it is held");
        let [_, to] = next_pair(&group);
        group.lock().begin_move(KEY, to);
        group.lock().end_move(KEY);

        testbed::delay_all(Duration::from_millis(300));
        let lock = locks.mutex(NAME).lease(Duration::from_millis(500));
        let error = lock.try_acquire().await.expect_err("no reply in time");
        assert!(error.is_unavailable(), "{error}");
        testbed::delay_all(Duration::ZERO);
        let _held = acquire(&locks).await;
    });
}

#[test]
fn client_follows_the_failover_of_a_node() {
    run(cluster, Cluster::host, async |group| {
        let [locks, other] = [open(CLUSTER).await, open(CLUSTER).await];
        let held = acquire(&locks).await;
        let [pair, _] = next_pair(&group);
        let old = Arc::clone(group.lock().master(pair));
        sleep(LAG * 2).await;

        group.lock().fail_over(pair);
        group.lock().rejoin(pair);
        sleep(LEASE * 2).await;
        held.check().expect("the replica had the hold");
        assert!(is_held(&other).await);
        let Reply::Error(moved) = write_to(&old) else {
            panic!("a replica refuses writes");
        };
        assert!(moved.ends_with("-replica:6379"), "{moved}");
        held.release().await.expect("it is held");
    });
}

/// The servers announce an address that no client reaches.
///
/// Shows G-28.
#[test]
fn announced_address_that_cannot_be_reached_is_named() {
    run(
        || Sentinels::start("main", &["s1", "s2", "s3"], ["elsewhere", "r2"], LAG),
        Sentinels::host,
        async |_| assert_names_elsewhere(SENTINEL).await,
    );
    run(
        || Cluster::start(&[["elsewhere", "a"]], LAG),
        Cluster::host,
        async |_| assert_names_elsewhere("redis+cluster://a").await,
    );
}

async fn assert_names_elsewhere(url: &str) {
    let error = leasehold::open(url).await.expect_err("no server there");
    assert!(error.is_unavailable(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the server elsewhere:6379 cannot be reached"),
        "{text}"
    );
    assert!(text.contains("address-map="), "{text}");
}

const NAME: &str = "job";
/// The first key of the lock.
const KEY: &str = "leasehold:{job}";

fn servers() -> [Arc<Host>; 3] {
    ["0a23456789", "0b23456789", "0c23456789"].map(Host::start)
}

fn named(servers: &[Arc<Host>; 3], name: &str) -> Option<Arc<Host>> {
    let index = ["a", "b", "c"].iter().position(|known| *known == name)?;
    Some(Arc::clone(&servers[index]))
}

fn sentinels() -> Sentinels {
    Sentinels::start("main", &["s1", "s2", "s3"], ["r1", "r2"], LAG)
}

fn cluster() -> Cluster {
    let pairs = [["a", "a-replica"], ["b", "b-replica"], ["c", "c-replica"]];
    Cluster::start(&pairs, LAG)
}

/// Returns the pair that has the slot of the lock, and another one.
fn next_pair(group: &Mutex<Cluster>) -> [usize; 2] {
    let owner = group.lock().owner_of(KEY);
    [owner, (owner + 1) % 3]
}

/// Counts the keys of a master.
fn keys(group: &Mutex<Cluster>, pair: usize) -> usize {
    match group.lock().master(pair).request(&["SCAN", "0"]) {
        Reply::List(parts) => match &parts[1] {
            Reply::List(names) => names.len(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// The replica never receives what the master has not sent before it stops.
async fn kill_master(group: &Mutex<Sentinels>) {
    group.lock().master().stop();
    sleep(LAG * 2).await;
    group.lock().fail_over();
}

fn write_to(server: &Host) -> Reply {
    server.request(&["SET", KEY, ""])
}

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("a server replies")
}

async fn acquire(locks: &Locks) -> Guard {
    acquired(&locks.mutex(NAME).lease(LEASE)).await
}

/// Acquires a lock that the servers do not grant for a lease.
async fn acquire_later(locks: &Locks) -> Guard {
    let lock = locks.mutex(NAME).lease(LEASE);
    let acquiring = async {
        loop {
            match lock.acquire().await {
                Ok(guard) => return guard,
                // Redlock fails at once while a majority does not vote.
                Err(error) => assert!(error.is_unavailable(), "{error}"),
            }
            sleep(SOON).await;
        }
    };
    within(LEASE * 2, acquiring).await
}

async fn acquired(lock: &leasehold::Lock) -> Guard {
    within(SOON, lock.acquire()).await.expect("granted")
}

async fn is_held(locks: &Locks) -> bool {
    let tried = locks.mutex(NAME).try_acquire_for(SOON).await;
    tried.expect("the server replies").is_err()
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    timeout(limit, work).await.expect("it ends in time")
}

/// Runs a scenario in virtual time, on a testbed that has the servers of one group.
fn run<G>(
    start: fn() -> G,
    find: fn(&G, &str) -> Option<Arc<Host>>,
    scenario: impl AsyncFnOnce(Arc<Mutex<G>>),
) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().build();
    let runtime = runtime.expect("a runtime without I/O needs no resources");

    runtime.block_on(async {
        let group = start();
        for name in NAMES {
            let host = find(&group, name);
            host.map(|host| Redis::of(host, name));
        }
        scenario(Arc::new(Mutex::new(group))).await;
    });
}

/// The host names of all groups.
const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "a-replica",
    "b-replica",
    "c-replica",
    "s1",
    "s2",
    "s3",
    "r1",
    "r2",
];

/// A message takes a millisecond.
struct SlowWire;

impl lab_redis_model::Wire for SlowWire {
    async fn before(&mut self) -> io::Result<()> {
        sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    async fn pass(&mut self, _sent: &mut Vec<u8>) -> io::Result<()> {
        sleep(Duration::from_millis(1)).await;
        Ok(())
    }
}
