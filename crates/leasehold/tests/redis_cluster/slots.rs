//! Slots that move from one master to another while clients use their locks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab_servers::{Cluster, Redis};
use leasehold::{Guard, Locks};
use leasehold_conformance::support::{waiters, within_timeout};

use super::{acquire, name_per_master, open, slot_of};

#[tokio::test]
async fn hold_and_waiter_move_with_their_slot() {
    let cluster = Cluster::start();
    let locks = open(&cluster, "").await;
    let other = open(&cluster, "").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let lock = other.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&locks, "a", 1).await;

    let slot = slot_of(&cluster, "a");
    let from = cluster.master_of(slot);
    cluster.move_slot(slot, from, (from + 1) % 3);
    waiters(&locks, "a", 1).await;
    held.check().expect("the hold is valid");
    held.release().await.expect("released");
    let next = tokio::time::timeout(Duration::from_secs(9), waiting)
        .await
        .expect("granted in time")
        .expect("the task ends")
        .expect("granted");
    next.release().await.expect("released");
}

/// While a slot is half moved, no key of a lock changes: a request finds all of them, or waits.
///
/// Shows G-01.
#[tokio::test]
async fn shared_holds_survive_a_move_under_load() {
    let cluster = Arc::new(Cluster::start());
    let slot = slot_of(&cluster, "s");
    let home = cluster.master_of(slot);
    let state = Arc::new(Load::default());
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let locks = open(&cluster, "").await;
        tasks.push(tokio::spawn(work(locks, Arc::clone(&state))));
    }

    let begun = Instant::now();
    let mut moves = 0;
    let mut at = home;
    while begun.elapsed() < Duration::from_secs(10) {
        let next = (at + 1) % 3;
        let cluster = Arc::clone(&cluster);
        let moving = tokio::task::spawn_blocking(move || cluster.move_slot(slot, at, next));
        moving.await.expect("the slot moves");
        at = next;
        moves += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    state.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no worker sees an overlap or a loss");
    }
    let grants = state.grants.load(Ordering::Relaxed);
    println!("{grants} grants during {moves} moves of the slot");
    assert!(moves > 5 && grants > 50, "{grants} grants, {moves} moves");
}

/// The lock's first key alone does not know all holders, so a request about it is refused until the
/// other keys have followed.
///
/// Shows G-01.
#[tokio::test]
async fn lock_of_a_half_moved_slot_is_not_granted() {
    let cluster = Cluster::start();
    let locks = open(&cluster, "").await;
    let pool = locks.semaphore("s", 2);
    let held = [
        pool.acquire().await.expect("granted"),
        pool.acquire().await.expect("granted"),
    ];
    let slot = slot_of(&cluster, "s");
    let from = cluster.master_of(slot);
    let to = (from + 1) % 3;

    cluster.begin_move(slot, from, to);
    cluster.move_key("leasehold:{s}", from, to);
    let third = open(&cluster, "").await.semaphore("s", 2);
    let refused = third.try_acquire_for(Duration::from_secs(2)).await;
    assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");

    cluster.move_slot(slot, from, to);
    for held in held {
        held.release().await.expect("it was held until now");
    }
    let held = third.acquire().await.expect("granted");
    held.release().await.expect("released");
}

/// A user without a right to write looks at a lock whose slot moves. The error is that of the move,
/// and not that of the missing right.
///
/// Shows G-28.
#[tokio::test]
async fn user_who_only_looks_follows_a_slot() {
    let page = include_str!("../../../../docs/stores/redis.md");
    let line = page.lines().find(|line| line.starts_with("user look on "));
    let line = line.expect("the page has the line");
    let rights = line.strip_prefix("user ").expect("it begins so");
    let more = ["+cluster|info", "+cluster|slots", "+role", "+asking"];
    let cluster = Cluster::start();
    for node in 0..cluster.count() {
        let words = rights.split(' ').chain(more);
        let command: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(words).collect();
        cluster.node(node).command(&command);
    }
    let url = cluster.url().replace("://", "://look:secret@");
    let looking = leasehold::open(&url).await.expect("it opens");
    let held = acquire(&open(&cluster, "").await, "a").await;
    let slot = slot_of(&cluster, "a");
    let from = cluster.master_of(slot);
    let to = (from + 1) % 3;

    cluster.begin_move(slot, from, to);
    let refused = looking.inspect("a").await.expect_err("keys are missing");
    assert!(refused.is_unavailable(), "{refused}");
    cluster.move_key("leasehold:{a}", from, to);
    let asked = looking.inspect("a").await.expect_err("keys are missing");
    assert!(asked.is_unavailable(), "{asked}");
    cluster.move_slot(slot, from, to);
    let state = looking.inspect("a").await.expect("inspected");
    assert_eq!(state.holders().count(), 1);
    drop(held);
}

/// A slot without a master ends the holds of that slot alone. A waiter for it does no harm either.
///
/// Shows G-24.
#[tokio::test]
async fn slot_without_master_ends_no_hold_of_other_slots() {
    let cluster = Cluster::of(&Redis::setup().config("cluster-require-full-coverage", "no"));
    let locks = open(&cluster, CRASH_GRACE).await;
    let [lost, other, _] = name_per_master(&cluster);
    let held = acquire(&locks, &other).await;
    let waiting = locks.mutex(&lost);
    let in_lost_slot = acquire(&locks, &lost).await;
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    waiters(&locks, &lost, 1).await;

    cluster.take_slot(slot_of(&cluster, &lost));
    only_hold_lost(&in_lost_slot, &held).await;
    waiting.abort();
}

/// While a slot is half moved, both masters refuse requests about its locks. The holds in other
/// slots of the same master are renewed.
///
/// Shows G-24.
#[tokio::test]
async fn half_moved_slot_ends_no_hold_of_its_master() {
    let cluster = Cluster::start();
    let locks = open(&cluster, CRASH_GRACE).await;
    let master = cluster.master_of(slot_of(&cluster, "a"));
    let is_other = |name: &String| cluster.master_of(slot_of(&cluster, name)) == master;
    let other = (0..1_000).map(|number| format!("n{number}")).find(is_other);
    let other = other.expect("a master has many slots");
    let held = acquire(&locks, &other).await;
    // A script renews it every second. In between, pings prove that its holder is alive.
    let lock = locks.mutex("a").lease(Duration::from_secs(3));
    let in_moving_slot = lock.acquire().await.expect("granted");

    cluster.begin_move(slot_of(&cluster, "a"), master, (master + 1) % 3);
    only_hold_lost(&in_moving_slot, &held).await;
}

const CRASH_GRACE: &str = "crash-grace=2s";
/// A hold that is not renewed ends within this time.
const UNRENEWED_MAX: Duration = Duration::from_secs(4);

/// Waits until `lost` is lost, and then for as long as a hold can be held without a renewal.
async fn only_hold_lost(lost: &Guard, held: &Guard) {
    within_timeout("the hold of the slot is lost", lost.lost()).await;
    let begun = Instant::now();
    while begun.elapsed() < UNRENEWED_MAX {
        held.check().expect("its slot has a master");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the workers share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    grants: AtomicU64,
    holders: AtomicU64,
}

/// Takes one of two slots of a semaphore again and again.
async fn work(locks: Locks, state: Arc<Load>) {
    let lock = locks.semaphore("s", 2);
    while !state.stop.load(Ordering::Relaxed) {
        let held = match lock.acquire().await {
            Ok(held) => held,
            Err(error) if error.is_unavailable() => continue,
            Err(error) => panic!("{error}"),
        };
        let holders = state.holders.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(holders <= 2, "{holders} clients hold two slots");
        tokio::time::sleep(Duration::from_millis(2)).await;
        held.check().expect("the hold is valid");
        state.holders.fetch_sub(1, Ordering::SeqCst);
        state.grants.fetch_add(1, Ordering::Relaxed);
        // A release whose reply is missing is repeated in the background.
        drop(held);
    }
}

#[tokio::test]
async fn new_lock_is_granted_when_its_slot_has_moved() {
    let cluster = Cluster::start();
    let locks = open(&cluster, "").await;
    let slot = slot_of(&cluster, "a");
    let from = cluster.master_of(slot);
    for target in [(from + 1) % 3, (from + 2) % 3] {
        cluster.move_slot(slot, cluster.master_of(slot), target);
        let held = acquire(&locks, "a").await;
        held.release().await.expect("released");
    }
}

/// The nodes announce only their ports: the client uses the name by which it has reached them.
#[tokio::test]
async fn moved_slot_is_followed_to_a_node_without_a_name() {
    let cluster = Cluster::start();
    let locks = open(&cluster, "").await;
    for node in 0..cluster.count() {
        let setting = ["cluster-preferred-endpoint-type", "unknown-endpoint"];
        let request = ["CONFIG", "SET", setting[0], setting[1]];
        assert_eq!(cluster.node(node).command(&request).text(), "OK");
    }

    // The next request meets the old master, whose reply has no name.
    let slot = slot_of(&cluster, "a");
    let from = cluster.master_of(slot);
    cluster.move_slot(slot, from, (from + 1) % 3);
    let held = acquire(&locks, "a").await;
    held.release().await.expect("released");
    let held = acquire(&open(&cluster, "").await, "a").await;
    held.release().await.expect("released");
}

/// All keys of a tenant are in one slot, so one master runs all scripts for its locks.
///
/// Shows G-17.
#[tokio::test]
async fn names_with_one_tag_share_a_slot() {
    let cluster = Cluster::start();
    let locks = open(&cluster, "").await;
    let names = ["{tenant}/a", "{tenant}/b", "{tenant}:claims"];
    for node in 0..cluster.count() {
        cluster.node(node).command(&["CONFIG", "RESETSTAT"]);
    }

    let held = locks.multi_lock(names).acquire().await.expect("granted");
    let waiter = locks.mutex(names[0]);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    waiters(&locks, names[0], 1).await;

    let keys: Vec<String> = (0..3)
        .flat_map(|master| keys_of(&cluster, master))
        .collect();
    assert!(
        keys.len() > names.len(),
        "a queue has keys of its own: {keys:?}"
    );
    let slots: BTreeSet<u16> = keys.iter().map(|key| cluster.slot_of(key)).collect();
    assert_eq!(
        slots,
        BTreeSet::from([cluster.slot_of("tenant")]),
        "{keys:?}"
    );
    let masters = (0..3).filter(|master| has_run_scripts(&cluster, *master));
    assert_eq!(masters.count(), 1);

    let listed = locks.list("{tenant}", 10).await.expect("listed");
    assert!(
        listed.iter().map(leasehold::Name::as_str).eq(names),
        "{listed:?}"
    );
    held.release().await.expect("released");
    let granted = waiting.await.expect("no panic").expect("granted");
    granted.release().await.expect("released");
}

fn keys_of(cluster: &Cluster, node: usize) -> Vec<String> {
    let keys = cluster.node(node).command(&["KEYS", "*"]);
    keys.texts().iter().map(|key| (*key).to_owned()).collect()
}

/// Whether a node has run a script for a lock since its statistics were reset. The handshake of a
/// connection runs scripts without keys.
fn has_run_scripts(cluster: &Cluster, node: usize) -> bool {
    cluster
        .node(node)
        .info("commandstats")
        .contains("cmdstat_set:")
}
