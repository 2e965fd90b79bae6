//! Which servers are accepted as masters, and their rights.

use std::time::{Duration, Instant};

use lab_servers::Redis;
use leasehold::Locks;

use super::{DEADLINE, open, start};

/// Shows G-35.
#[tokio::test]
async fn two_names_of_one_server_are_refused() {
    let servers = [Redis::start(), Redis::start()];
    let mut hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    hosts.push(format!("localhost:{}", servers[0].port()));
    let begun = Instant::now();
    // On a busy machine the third connection may take longer than the opening waits for it.
    let error = loop {
        match open(&hosts, "quarantine=off").await {
            Err(error) => break error,
            Ok(_) => assert!(begun.elapsed() < DEADLINE, "two votes of one server"),
        }
    };
    assert!(
        error.is_invalid() && error.to_string().contains("one and the same"),
        "{error}"
    );
}

/// Shows G-35.
#[tokio::test]
async fn replicas_are_refused_as_masters() {
    let master = Redis::start();
    let replicas = [(); 2].map(|()| Redis::setup().replica_of(&master).start());
    for replica in &replicas {
        replica.in_step_with(&master);
    }
    let hosts: Vec<String> = replicas
        .iter()
        .chain([&master])
        .map(Redis::address)
        .collect();
    let error = open(&hosts, "quarantine=off")
        .await
        .map(drop)
        .expect_err("votes that are no votes");
    let said = error.to_string();
    let is_named = replicas
        .iter()
        .any(|replica| said.contains(&replica.address()));
    assert!(
        error.is_invalid() && is_named && said.contains("replica"),
        "{said}"
    );
}

#[tokio::test]
async fn minority_may_be_down_at_open() {
    let (_masters, mut hosts) = start(3);
    let mut down = [Redis::start(), Redis::start()];
    hosts.extend(down.iter().map(Redis::address));
    down.iter_mut().for_each(Redis::kill);
    let locks = open(&hosts, "quarantine=off").await.expect("three of five");
    let held = locks.mutex("a").acquire().await.expect("granted");
    let servers = locks.inspect("a").await.expect("looked").servers;
    assert_eq!(
        servers
            .iter()
            .filter(|server| server
                .holder
                .is_some_and(|(_, token)| token == held.token()))
            .count(),
        3
    );
    assert_eq!(
        servers
            .iter()
            .filter(|server| server.error.is_some())
            .count(),
        2
    );
    held.release().await.expect("released");
}

/// The rights in docs/stores/redlock.md are enough for every operation.
#[tokio::test]
async fn documented_rights_are_sufficient() {
    let page = include_str!("../../../../docs/stores/redlock.md");
    let rights = page
        .lines()
        .find(|line| line.starts_with("~leasehold:redlock:*"))
        .expect("docs/stores/redlock.md has the rights");
    let user = format!("app on >secret resetchannels {rights}");
    let servers: Vec<Redis> = (0..3).map(|_| Redis::setup().acl(&user).start()).collect();
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    let url = format!("redlock://app:secret@{}?longest-lease=1s", hosts.join(","));
    let ours = leasehold::open(&url).await.expect("open");
    let theirs = leasehold::open(&url).await.expect("open");
    let lock = |locks: &Locks| locks.mutex("a").lease(Duration::from_secs(1));
    let held = loop {
        match lock(&ours).acquire().await {
            Ok(held) => break held,
            // The masters are new.
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    };
    assert_eq!(ours.list("", 9).await.expect("listed").len(), 1);
    let waiting = tokio::spawn({
        let lock = lock(&theirs);
        async move { lock.acquire().await }
    });
    while theirs.inspect("a").await.expect("looked").waiters().count() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    held.release().await.expect("released");
    waiting
        .await
        .expect("it runs")
        .expect("granted")
        .release()
        .await
        .expect("released");
    for server in &servers {
        assert_eq!(
            server.command(&["ACL", "LOG"]).list().len(),
            0,
            "something was refused"
        );
    }
}

#[tokio::test]
async fn different_longest_lease_is_refused() {
    let (_masters, hosts) = start(3);
    let locks = open(&hosts, "longest-lease=10s").await.expect("the first");
    let error = open(&hosts, "longest-lease=20s")
        .await
        .expect_err("another");
    assert!(
        error.is_mismatch() && error.to_string().contains("10000ms"),
        "{error}"
    );
    let error = locks
        .mutex("a")
        .lease(Duration::from_secs(11))
        .try_acquire()
        .await
        .expect_err("too long");
    assert!(
        error.is_invalid() && error.to_string().contains("10s"),
        "{error}"
    );
}

/// A master that is silent or down delays no reading by more than the others need.
#[tokio::test]
async fn minority_that_is_down_or_silent_hides_no_lock() {
    let (mut masters, hosts) = start(3);
    let locks = open(&hosts, "quarantine=off&reply-timeout=1s").await;
    let locks = locks.expect("all of three");
    let held = locks.mutex("a").acquire().await.expect("granted");

    masters[0].pause();
    assert_eq!(locks.list("", 9).await.expect("two of three").len(), 1);
    let lock_state = locks.inspect("a").await.expect("two of three");
    assert_eq!(lock_state.holders().count(), 1);

    masters[0].resume();
    masters[0].kill();
    assert_eq!(locks.list("", 9).await.expect("two of three").len(), 1);
    held.release().await.expect("released");
}
