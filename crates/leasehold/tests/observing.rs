//! Which stores push changes to observers, and what survives a broken connection.
#![cfg(all(feature = "file", feature = "redis", feature = "zookeeper"))]
#![allow(missing_docs)]

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt;
use lab_servers::{Cluster, Redis, ZooKeeper};
use leasehold::{Lock, Locks, Observer};
use tokio::time::timeout;

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("it opens")
}

/// Shows G-47.
#[tokio::test]
async fn memory_file_redis_and_zookeeper_push_changes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let redis = Redis::start();
    let zookeeper = ZooKeeper::start();
    let file = format!("file:{}", folder.path().display());

    for url in ["memory:", &file, &redis.url(), &zookeeper.url()] {
        let observer = open(url).await.observe("a").await.expect("observed");
        assert!(observer.is_pushed(), "{url}");
    }
    let resp2 = open(&format!("{}?protocol=2", redis.url())).await;
    let observer = resp2.observe("a").await.expect("observed");
    assert!(!observer.is_pushed(), "RESP2 pushes nothing to a request");
}

/// Shows G-47.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_observer_is_notified_after_a_reconnect() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let mut observer = locks.observe("a").await.expect("observed");
    observer.next().await.expect("inspected");

    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let guard = locks.mutex("a").acquire().await.expect("granted");
    let held = timeout(Duration::from_secs(9), observer.next())
        .await
        .expect("in time")
        .expect("inspected");
    assert_eq!(held.holders().count(), 1);
    guard.release().await.expect("released");

    changes_are_pushed(&locks, &mut observer).await;
    // The reconnect is one change, and not one for each look at it.
    let executed = || {
        let stats = redis.command(&["INFO", "stats"]).text().to_owned();
        let mut lines = stats.lines();
        let count = lines.find_map(|line| line.strip_prefix("total_commands_processed:"));
        count.expect("a count").parse::<u64>().expect("a number")
    };
    let before = executed();
    let next = timeout(Duration::from_millis(500), observer.next()).await;
    next.expect_err("nothing changes");
    let made = executed() - before;
    assert!(made < 50, "{made} commands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observer_on_a_cluster_is_notified_after_its_slot_has_moved() {
    let cluster = Cluster::start();
    let locks = open(&cluster.url()).await;
    let mut observer = locks.observe("a").await.expect("observed");
    assert!(observer.is_pushed());
    observer.next().await.expect("inspected");

    let slot = cluster.slot_of("leasehold:{a}");
    let from = cluster.master_of(slot);
    cluster.move_slot(slot, from, (from + 1) % 3);
    changes_are_pushed(&locks, &mut observer).await;
}

/// An observer that only inspected once a second would need 20 seconds.
async fn changes_are_pushed(locks: &Locks, observer: &mut Observer) {
    let cycles = async {
        for _ in 0..10 {
            let guard = locks.mutex("a").acquire().await.expect("granted");
            while observer.next().await.expect("inspected").entries.is_empty() {}
            guard.release().await.expect("released");
            while !observer.next().await.expect("inspected").entries.is_empty() {}
        }
    };

    let in_time = timeout(Duration::from_secs(9), cycles).await;
    in_time.expect("changes are pushed");
}

/// Each user has a limit on the folders that inotify watches, and so has each namespace of users.
///
/// Shows G-47.
#[tokio::test]
async fn file_observer_polls_at_the_limits_of_inotify() {
    const LIMIT: &str = "LEASEHOLD_TEST_LIMIT";
    let folder = tempfile::tempdir().expect("a temporary folder");
    if let Some(limit) = std::env::var_os(LIMIT) {
        std::fs::write(limit, "0").expect("root of its namespace sets it");
        let locks = open(&format!("file:{}", folder.path().display())).await;
        let mut observer = locks.observe("a").await.expect("observed");
        assert!(!observer.is_pushed());
        observer.next().await.expect("inspected");
        let guard = locks.mutex("a").acquire().await.expect("granted");
        let held = observer.next().await.expect("inspected");
        assert_eq!(held.holders().count(), 1);
        return guard.release().await.expect("released");
    }

    for limit in ["max_inotify_instances", "max_inotify_watches"] {
        let own = std::env::current_exe().expect("it has a path");
        let observed = Command::new("unshare")
            .args(["--user", "--map-root-user"])
            .arg(own)
            .args(["--exact", "file_observer_polls_at_the_limits_of_inotify"])
            .env(LIMIT, Path::new("/proc/sys/user").join(limit))
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&observed.stdout);
        assert!(
            observed.status.success() && text.contains("1 passed"),
            "{limit}: {text}"
        );
    }
}

/// Nothing notifies leasehold of the end of a flock.
///
/// Shows G-21, G-47.
#[tokio::test]
async fn file_observer_receives_the_end_of_an_external_flock() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let locks = open(&format!("file:{}", folder.path().display())).await;
    let external = std::fs::File::create(folder.path().join("a.lock")).expect("created");
    external.lock().expect("no other program locks it");

    let mut observer = locks.observe("a").await.expect("observed");
    let held = observer.next().await.expect("inspected");
    assert_eq!(held.external_holders.len(), 1);
    drop(external);
    let free = timeout(Duration::from_secs(9), observer.next()).await;
    let free = free.expect("in time").expect("inspected");
    assert!(free.external_holders.is_empty());
}

/// Shows G-47.
#[tokio::test]
async fn dropped_wait_of_an_observer_loses_no_change() {
    let locks = open("memory:").await;
    let mut observer = locks.observe("a").await.expect("observed");
    observer.next().await.expect("inspected");

    // An observer that only inspected once a second would need 15 seconds.
    let cycles = async {
        for _ in 0..15 {
            let dropped = timeout(Duration::from_millis(1), observer.next()).await;
            assert!(dropped.is_err(), "nothing has changed");

            let guard = locks.mutex("a").acquire().await.expect("granted");
            let held = observer.next().await.expect("inspected");
            assert_eq!(held.holders().count(), 1);
            guard.release().await.expect("released");
            let free = observer.next().await.expect("inspected");
            assert!(free.entries.is_empty());
        }
    };
    timeout(Duration::from_secs(9), cycles)
        .await
        .expect("changes are pushed");
}

/// Shows G-48.
#[tokio::test]
async fn leaders_are_a_stream() {
    let election = open("memory:").await.election("a");
    let observer = election.observe().await.expect("observed");
    let mut leaders = pin!(observer.into_stream());
    assert_eq!(leaders.next().await.expect("no end").expect("read"), None);

    let leadership = election.campaign("one:1").await.expect("elected");
    let leader = leaders.next().await.expect("no end").expect("read");
    assert_eq!(leader.expect("it leads").address(), "one:1");
    leadership.resign().await.expect("resigned");
    assert_eq!(leaders.next().await.expect("no end").expect("read"), None);
}

/// Shows G-48.
#[tokio::test]
async fn leader_has_the_token_of_its_leadership_with_every_lock_setting() {
    type Change = fn(Lock) -> Lock;
    let settings: [(&str, Change); 6] = [
        ("none", |lock| lock),
        ("lease", |lock| lock.lease(Duration::from_secs(5))),
        ("no_renewal", Lock::no_renewal),
        ("max_hold", |lock| lock.max_hold(Duration::from_secs(60))),
        ("label", |lock| lock.label("a label")),
        ("permits", |lock| lock.permits(1)),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let redis = Redis::start();
    let file = format!("file:{}", folder.path().display());

    for store in ["memory:", &file, &redis.url()] {
        for (setting, change) in settings {
            let election = open(store).await.election(setting).configure(change);
            let leadership = election.campaign("one:1").await.expect("elected");
            let leader = election.leader().await.expect("read").expect("it leads");

            assert_eq!(leader.token, leadership.token(), "{setting} on {store}");
            assert_eq!(leader.address(), "one:1", "{setting} on {store}");
            leadership.resign().await.expect("resigned");
        }
    }
}

/// Shows G-48.
#[tokio::test]
async fn election_with_a_cohort_is_refused() {
    let election = open("memory:")
        .await
        .election("a")
        .configure(|lock| lock.cohort(8));

    let error = election.campaign("one:1").await.expect_err("refused");
    assert!(error.is_invalid(), "{error:?}");
    let tried = election.try_campaign_for("one:1", Duration::ZERO).await;
    assert!(tried.expect_err("refused").is_invalid());
    assert_eq!(election.leader().await.expect("read"), None);
}
