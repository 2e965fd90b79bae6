//! The guarantees that only Redlock has, on real servers.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use lab_servers::{Raw, Redis, Reply};
use leasehold::{Error, Guard, Locks, LossReason, ServerStatus, ServerVote, blocking};

const DEADLINE: Duration = Duration::from_secs(30);

async fn open(hosts: &[String], settings: &str) -> Result<Locks, Error> {
    leasehold::open(&format!("redlock://{}?{settings}", hosts.join(","))).await
}

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
    let servers: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let mut hosts: Vec<String> = servers.iter().map(Redis::address).collect();
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

/// If each master notified another waiter, no waiter would have a quorum of notifications.
#[tokio::test]
async fn masters_notify_the_same_waiter() {
    const WAITERS: usize = 8;
    let servers: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    let held = open(&hosts, "quarantine=off")
        .await
        .expect("five")
        .mutex("a")
        .acquire()
        .await
        .expect("granted");
    let mut clients = Vec::new();
    for _ in 0..WAITERS {
        clients.push(open(&hosts, "quarantine=off").await.expect("five"));
    }
    let lock = |locks: Locks| async move { locks.mutex("a").acquire().await?.release().await };
    let waiting: Vec<_> = clients
        .into_iter()
        .map(|locks| tokio::spawn(lock(locks)))
        .collect();
    let order = |server: &Redis| {
        let order = server.command(&["ZRANGE", "leasehold:redlock:{a}:waits", "0", "-1"]);
        order
            .texts()
            .iter()
            .map(|client| (*client).to_owned())
            .collect::<Vec<_>>()
    };
    while servers.iter().any(|server| order(server).len() < WAITERS) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let orders: Vec<_> = servers.iter().map(order).collect();
    assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
    held.release().await.expect("released");
    for one in waiting {
        one.await.expect("it runs").expect("granted and released");
    }
}

/// The holder knows which masters have voted, and how long each vote counts.
#[tokio::test]
async fn holder_can_list_the_votes() {
    const LEASE: Duration = Duration::from_secs(20);
    let mut servers: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    servers[1].kill();
    for settings in ["quarantine=off", "dialect=classic"] {
        let locks = open(&hosts, settings).await.expect("four of five");
        let held = locks
            .mutex("a")
            .lease(LEASE)
            .acquire()
            .await
            .expect("granted");
        let given = |votes: &[ServerVote]| {
            votes
                .iter()
                .filter(|vote| !vote.remaining.is_zero())
                .count()
        };
        // One reply may arrive after those that decide.
        while given(&held.votes()) < 4 {
            assert!(
                given(&held.votes()) >= 3 && held.check().is_ok(),
                "{:?}",
                held.votes()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let votes = held.votes();
        let urls: Vec<_> = votes.iter().map(|vote| vote.server.clone()).collect();
        assert_eq!(
            urls,
            hosts
                .iter()
                .map(|host| format!("redis://{host}"))
                .collect::<Vec<_>>()
        );
        assert!(
            votes[1].remaining.is_zero() && votes.iter().all(|vote| vote.remaining <= LEASE),
            "{votes:?}"
        );
        let held = blocking::Guard::from(held);
        assert!(given(&held.votes()) == 4 && held.remaining() <= LEASE);
        Guard::from(held).release().await.expect("released");
    }
    let alone = leasehold::open("memory:")
        .await
        .expect("it opens")
        .mutex("a")
        .acquire()
        .await
        .expect("granted");
    assert_eq!(alone.votes(), []);
}

/// The rights in docs/stores/redlock.md are enough for every operation.
#[tokio::test]
async fn documented_rights_are_sufficient() {
    let page = include_str!("../../../docs/stores/redlock.md");
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

/// Two masters are silent, and one denies the request. The waiter must not fail before a majority
/// denies it.
#[tokio::test]
async fn one_denying_master_does_not_end_the_wait() {
    let servers: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    let locks = open(&hosts, "quarantine=off").await.expect("five");
    servers[0].command(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    servers[1..3].iter().for_each(Redis::pause);
    let error = locks
        .mutex("a")
        .try_acquire()
        .await
        .expect_err("two of five");
    assert!(
        error.is_unavailable() && error.to_string().contains("NoPerm"),
        "{error}"
    );
    servers[1..3].iter().for_each(Redis::resume);
    let held = loop {
        match locks.mutex("a").acquire().await {
            Ok(held) => break held,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    };
    held.release().await.expect("released");

    servers[1..3].iter().for_each(|server| {
        drop(server.command(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]));
    });
    let error = locks
        .mutex("a")
        .acquire()
        .await
        .expect_err("three of five deny it");
    assert!(error.is_denied(), "{error}");
}

#[tokio::test]
async fn different_longest_lease_is_refused() {
    let servers: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
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

/// Why one master refuses every new client.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Password,
    Eviction,
    Replica,
    OtherLongestLease,
    WrongType,
}

const MARK: &str = "leasehold:redlock:mark";
/// The votes of new masters do not count for this time.
const SHORT: &str = "longest-lease=500ms";

impl Refusal {
    /// Makes the first master refuse. The connection `master` survives the new password.
    fn begin(self, masters: &[Redis], master: &mut Raw) {
        let highest = ask(master, &["GET", MARK]).text().to_owned();
        let other = masters[1].port().to_string();
        match self {
            Self::Password => drop(ask(master, &["CONFIG", "SET", "requirepass", "secret"])),
            Self::Eviction => {
                ask(master, &["CONFIG", "SET", "maxmemory", "1gb"]);
                ask(
                    master,
                    &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
                );
            }
            Self::Replica => drop(ask(master, &["REPLICAOF", "127.0.0.1", &other])),
            Self::OtherLongestLease => drop(ask(
                master,
                &["SET", MARK, &highest.replace(" 500", " 99000")],
            )),
            Self::WrongType => {
                ask(master, &["DEL", MARK]);
                ask(master, &["LPUSH", MARK, "theirs"]);
            }
        }
    }

    fn mend(self, master: &mut Raw) {
        match self {
            Self::Password => drop(ask(master, &["CONFIG", "SET", "requirepass", ""])),
            Self::Eviction => drop(ask(
                master,
                &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
            )),
            Self::Replica => drop(ask(master, &["REPLICAOF", "NO", "ONE"])),
            Self::OtherLongestLease | Self::WrongType => drop(ask(master, &["DEL", MARK])),
        }
    }
}

fn ask(master: &mut Raw, words: &[&str]) -> Reply {
    let reply = master.request(words).expect("the master lives");
    assert!(!reply.is_error(), "{words:?}: {reply:?}");
    reply
}

/// Starts five masters whose votes count.
async fn five_trusted() -> (Vec<Redis>, Vec<String>) {
    let masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let locks = open(&hosts, SHORT).await.expect("five");
    wait_until_all_vote(&locks).await;
    (masters, hosts)
}

async fn wait_until_all_vote(locks: &Locks) {
    let begun = Instant::now();
    loop {
        let acquired = locks
            .mutex("all")
            .lease(Duration::from_millis(500))
            .try_acquire()
            .await;
        if let Ok(Some(held)) = acquired {
            let servers = locks
                .inspect("all")
                .await
                .expect("a quorum is there")
                .servers;
            let votes = |server: &&ServerStatus| {
                server
                    .holder
                    .is_some_and(|(_, token)| token == held.token())
            };
            let all_vote = servers.iter().filter(votes).count() == servers.len();
            held.release().await.expect("released");
            if all_vote {
                return;
            }
        }
        assert!(begun.elapsed() < DEADLINE, "a master does not vote");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Opens, acquires and releases with a new client, and returns how long that took.
async fn opened_granted_released(hosts: &[String], name: &str) -> Result<Duration, Error> {
    let begun = Instant::now();
    let locks = open(hosts, SHORT).await?;
    locks
        .mutex(name)
        .lease(Duration::from_millis(500))
        .acquire()
        .await?
        .release()
        .await?;
    Ok(begun.elapsed())
}

/// Measures with five good masters, then with a bad one, so that a busy machine delays both.
async fn opens_beside(refusal: Refusal) {
    const ROUNDS: usize = 5;
    let (masters, hosts) = five_trusted().await;
    let mut first = masters[0].connection();
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for round in 0..ROUNDS {
        good.push(
            opened_granted_released(&hosts, &format!("good-{round}"))
                .await
                .expect("five good masters"),
        );
    }
    refusal.begin(&masters, &mut first);
    for round in 0..ROUNDS {
        let granted = opened_granted_released(&hosts, &format!("bad-{round}")).await;
        bad.push(granted.unwrap_or_else(|error| panic!("one of five: {refusal:?}: {error}")));
    }
    assert_not_slower(good, bad);

    let locks = open(&hosts, SHORT).await.expect("four of five");
    refusal.mend(&mut first);
    wait_until_all_vote(&locks).await;
}

fn assert_not_slower(mut good: Vec<Duration>, mut bad: Vec<Duration>) {
    good.sort_unstable();
    bad.sort_unstable();
    let usual = good[good.len() / 2];
    let beside = bad[bad.len() / 2];
    assert!(
        beside <= usual + Duration::from_millis(300),
        "{beside:?} beside a bad master, {usual:?} with good ones"
    );
}

#[tokio::test]
async fn opening_beside_master_with_password_is_granted() {
    opens_beside(Refusal::Password).await;
}

#[tokio::test]
async fn opening_beside_master_that_evicts_keys_is_granted() {
    opens_beside(Refusal::Eviction).await;
}

#[tokio::test]
async fn opening_beside_replica_is_granted() {
    opens_beside(Refusal::Replica).await;
}

#[tokio::test]
async fn opening_beside_master_with_other_longest_lease_is_granted() {
    opens_beside(Refusal::OtherLongestLease).await;
}

#[tokio::test]
async fn opening_beside_master_with_mark_of_wrong_type_is_granted() {
    opens_beside(Refusal::WrongType).await;
}

#[tokio::test]
async fn opening_beside_silent_master_takes_little_longer() {
    const ROUNDS: usize = 5;
    let (masters, hosts) = five_trusted().await;
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for round in 0..ROUNDS {
        good.push(
            opened_granted_released(&hosts, &format!("good-{round}"))
                .await
                .expect("five good masters"),
        );
        masters[2].pause();
        bad.push(
            opened_granted_released(&hosts, &format!("bad-{round}"))
                .await
                .expect("four of five"),
        );
        masters[2].resume();
    }
    assert_not_slower(good, bad);
}

#[tokio::test]
async fn opening_with_majority_of_refusing_masters_is_refused() {
    let masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    for master in &masters[1..4] {
        master.command(&["CONFIG", "SET", "requirepass", "secret"]);
    }
    let error = open(&hosts, "quarantine=off")
        .await
        .map(drop)
        .expect_err("three of five refuse");
    assert!(
        error.is_denied() && error.to_string().contains("password"),
        "{error}"
    );
}

const TWO_DAYS: i64 = 2 * 24 * 60 * 60;

/// Starts five masters whose clocks are `ahead` seconds ahead of the machine's.
fn five_with_clocks(ahead: i64) -> (Vec<Redis>, Vec<String>) {
    let masters: Vec<Redis> = (0..5).map(|_| Redis::setup().own_clock().start()).collect();
    let hosts = masters.iter().map(Redis::address).collect();
    for master in &masters {
        master.set_clock(ahead);
    }
    (masters, hosts)
}

/// Acquires the lock, and waits until the quarantine of new masters is over.
async fn granted(locks: &Locks) -> Guard {
    let begun = Instant::now();
    loop {
        match locks
            .mutex("a")
            .lease(Duration::from_millis(500))
            .acquire()
            .await
        {
            Ok(held) => return held,
            Err(error) => assert!(
                error.is_unavailable() && begun.elapsed() < DEADLINE,
                "{error}"
            ),
        }
    }
}

/// Acquires the lock with and without contention. One client has seen the earlier tokens, the other
/// has not.
async fn clocks_set_right(ahead: i64, settings: &str) {
    let (masters, hosts) = five_with_clocks(ahead);
    let old = open(&hosts, settings).await.expect("five");
    let first = granted(&old).await;
    let mut last = first.token();
    first.release().await.expect("released");
    for master in &masters {
        master.set_clock(0);
    }

    let new = open(&hosts, settings).await.expect("five");
    for (holder, waiter) in [(&new, &old), (&old, &new)] {
        let held = granted(holder).await;
        assert!(held.token() > last, "{} after {last}", held.token());
        let lock = waiter.mutex("a").lease(Duration::from_millis(500));
        let waiting = tokio::spawn(async move { lock.acquire().await });
        while waiter.inspect("a").await.expect("looked").waiters().count() == 0 {
            assert!(
                !waiting.is_finished(),
                "{:?}",
                waiting.await.expect("it runs")
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        last = held.token();
        held.release().await.expect("released");
        let next = waiting.await.expect("it runs").expect("granted");
        assert!(next.token() > last, "{} after {last}", next.token());
        last = next.token();
        next.release().await.expect("released");
    }
}

#[tokio::test]
async fn clocks_set_back_by_two_days_refuse_no_client() {
    for settings in [SHORT, "dialect=classic&tokens=on"] {
        clocks_set_right(TWO_DAYS, settings).await;
    }
}

#[tokio::test]
async fn clocks_set_forward_by_two_days_refuse_no_client() {
    for settings in [SHORT, "dialect=classic&tokens=on"] {
        clocks_set_right(-TWO_DAYS, settings).await;
    }
}

/// A master that kept its incarnation has forgotten nothing, even if its clock was set back.
#[tokio::test]
async fn known_masters_stay_trusted_after_their_clocks_are_set_back() {
    let (masters, hosts) = five_with_clocks(TWO_DAYS);
    let locks = open(&hosts, SHORT).await.expect("five");
    wait_until_all_vote(&locks).await;
    for master in &masters {
        master.set_clock(0);
    }
    // Both connections of the client have a subscription.
    let connections = |master: &Redis| {
        let list = master.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let id = |line: &str| {
            line.strip_prefix("id=")?
                .split(' ')
                .next()?
                .parse::<u64>()
                .ok()
        };
        list.text().lines().filter_map(id).collect::<Vec<_>>()
    };
    let before: Vec<Vec<u64>> = masters.iter().map(connections).collect();
    assert!(before.iter().all(|ids| ids.len() == 2), "{before:?}");
    for master in &masters {
        master.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }

    let begun = Instant::now();
    loop {
        let servers = locks
            .inspect("a")
            .await
            .map(|lock_state| lock_state.servers)
            .unwrap_or_default();
        let disturbed: Vec<&str> = servers
            .iter()
            .filter_map(|server| server.error.as_deref())
            .collect();
        assert!(
            !disturbed.iter().any(|error| error.contains("counts in")),
            "{disturbed:?}"
        );
        let is_back = |(master, before): (&Redis, &Vec<u64>)| {
            let now = connections(master);
            now.len() == 2 && !now.iter().any(|id| before.contains(id))
        };
        if servers.len() == 5 && disturbed.is_empty() && masters.iter().zip(&before).all(is_back) {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{disturbed:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Two masters have a foreign key for one lock and a third is silent: that lock cannot be renewed.
#[tokio::test]
async fn unrenewable_claim_does_not_end_other_claims() {
    const LEASE: Duration = Duration::from_secs(1);
    let masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let locks = open(&hosts, "quarantine=off").await.expect("five");
    let troubled = locks
        .mutex("troubled")
        .lease(LEASE)
        .acquire()
        .await
        .expect("granted");
    let other = locks
        .mutex("other")
        .lease(LEASE)
        .acquire()
        .await
        .expect("granted");
    masters[..2].iter().for_each(|master| {
        drop(master.command(&["SET", "leasehold:redlock:{troubled}", "theirs"]));
    });
    masters[2].pause();
    let lost = tokio::time::timeout(DEADLINE, troubled.lost()).await;
    assert_eq!(lost, Ok(LossReason::RenewalTimedOut));
    let lost = tokio::time::timeout(2 * LEASE, other.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    other.release().await.expect("released");
}
