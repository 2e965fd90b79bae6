//! Holders, waiters and new requests while the master moves to another server.

use std::time::{Duration, Instant};

use lab_servers::{Redis, Release, Sentinels};
use leasehold::{Guard, Locks};
use leasehold_conformance::support::waiters;

use super::{FAILOVER_MAX, open};

/// How the master is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Killed,
    Paused,
    Partitioned,
}

impl Loss {
    fn inflict(self, group: &mut Sentinels, master: usize) {
        match self {
            Self::Killed => group.server_mut(master).kill(),
            Self::Paused => group.server(master).pause(),
            Self::Partitioned => group.partition(master),
        }
    }
}

/// Shows G-01.
#[tokio::test]
async fn hold_survives_a_killed_master() {
    hold_survives(Loss::Killed, Release::Installed).await;
}

#[tokio::test]
async fn hold_survives_a_paused_master() {
    hold_survives(Loss::Paused, Release::Installed).await;
}

#[tokio::test]
async fn hold_survives_a_partitioned_master() {
    hold_survives(Loss::Partitioned, Release::Installed).await;
}

#[tokio::test]
async fn hold_survives_a_killed_master_of_redis_6_2() {
    hold_survives(Loss::Killed, Release::Redis62).await;
}

#[tokio::test]
async fn hold_survives_a_killed_master_of_valkey() {
    hold_survives(Loss::Killed, Release::Valkey9).await;
}

/// The replicas have the hold. So the client finds it on the new master, and renews it there.
async fn hold_survives(loss: Loss, release: Release) {
    let servers = Redis::setup().release(release);
    let mut group = Sentinels::of(&servers, &Redis::setup());
    let locks = open(&group, "crash-grace=40s").await;
    let other = open(&group, "").await;
    let lock = locks.mutex("a").lease(Duration::from_secs(60));
    let held = lock.acquire().await.expect("granted");
    let waiting = wait_for(&other, "a").await;
    let old = group.master();
    group.wait_until_whole();

    loss.inflict(&mut group, old);
    let new = group.master_other_than(old);
    wait_until_renewed_on(&group, new, &held).await;
    held.check().expect("the hold is valid");
    waiters(&other, "a", 1).await;

    let token = held.token();
    let released = Instant::now();
    held.release().await.expect("released on the new master");
    let next = waiting.await.expect("the task ends").expect("granted");
    assert!(
        released.elapsed() < Duration::from_secs(5),
        "{loss:?}: a hand-over took {:?}",
        released.elapsed()
    );
    assert!(next.token() > token, "{loss:?}: the tokens rise");
}

/// A stopped master that continues is a master by its own view until a sentinel demotes it.
#[tokio::test]
async fn client_does_not_return_to_a_master_that_continues() {
    let group = Sentinels::start();
    let locks = open(&group, "crash-grace=20s").await;
    let old = group.master();
    group.server(old).pause();
    let new = group.master_other_than(old);
    let held = acquire_soon(&locks, "a").await;
    assert!(
        has_key(&group, new, "leasehold:{a}"),
        "granted on the new master"
    );

    group.server(old).resume();
    let checked = Instant::now();
    while checked.elapsed() < Duration::from_secs(3) {
        held.check().expect("the hold is valid");
        locks.inspect("a").await.expect("the new master replies");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.release().await.expect("released");
}

/// Until all replicas follow the new master, the sentinel that leads the failover gives the epoch
/// of the new master and the address of the old one in one reply.
#[tokio::test]
async fn leader_of_an_unfinished_failover_names_the_new_master() {
    let group = Sentinels::start();
    let old = group.master();
    // The master has no password. So no replica can connect to the next one.
    for replica in (0..group.count()).filter(|server| *server != old) {
        let request = ["CONFIG", "SET", "masterauth", "wrong"];
        group.server(replica).command(&request);
    }
    group.server(old).pause();
    let leader = group.leader_of_a_failover();
    group.server(old).resume();

    let leader = group.sentinel(leader).address();
    let url = format!("redis+sentinel://{leader}/main?{}", group.settings());
    let locks = leasehold::open(&url).await.expect("the store opens");
    let held = acquire_soon(&locks, "a").await;
    let new = group.master_other_than(old);
    assert!(
        has_key(&group, new, "leasehold:{a}"),
        "granted on the new master"
    );
    held.release().await.expect("released");
}

/// The failover is published only by sentinels that know of it.
#[tokio::test]
async fn killed_sentinel_does_not_hide_a_failover() {
    let mut group = Sentinels::start();
    let locks = open(&group, "").await;
    let old = group.master();
    group.sentinel_mut(0).kill();
    group.server_mut(old).kill();
    let _new = group.master_other_than(old);

    let held = acquire_soon(&locks, "a").await;
    held.release().await.expect("released");
}

async fn wait_for(locks: &Locks, name: &str) -> tokio::task::JoinHandle<leasehold::Result<Guard>> {
    let lock = locks.mutex(name).lease(Duration::from_secs(60));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(locks, name, 1).await;
    waiting
}

async fn acquire_soon(locks: &Locks, name: &str) -> Guard {
    let lock = locks.mutex(name);
    let acquired = tokio::time::timeout(FAILOVER_MAX, lock.acquire()).await;
    acquired
        .expect("granted in time after the failover")
        .expect("granted")
}

/// Waits until a renewal has bound the hold to the new master.
async fn wait_until_renewed_on(group: &Sentinels, server: usize, held: &Guard) {
    let begun = Instant::now();
    loop {
        let info = group.server(server).info("replication");
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("master_replid:"))
            .expect("a server has an id")[..10]
            .to_owned();
        let state = group.server(server).command(&["GET", "leasehold:{a}"]);
        if state.text().contains(&id) {
            return;
        }
        assert!(
            begun.elapsed() < FAILOVER_MAX,
            "the hold is not renewed on the new master: {:?}, {state:?}",
            held.renewal()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn has_key(group: &Sentinels, server: usize, key: &str) -> bool {
    group.server(server).command(&["EXISTS", key]).int() == 1
}
