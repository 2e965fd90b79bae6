//! Opening the store beside masters that refuse, or do not reply.

use std::time::{Duration, Instant};

use lab_servers::{Raw, Redis, Reply};
use leasehold::Error;

use super::{SHORT, open, start, wait_until_all_vote};

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

impl Refusal {
    /// Makes the first master refuse. The connection `master` survives the new password.
    fn begin(self, masters: &[Redis], master: &mut Raw) {
        let highest = command(master, &["GET", MARK]).text().to_owned();
        let other = masters[1].port().to_string();
        match self {
            Self::Password => drop(command(master, &["CONFIG", "SET", "requirepass", "secret"])),
            Self::Eviction => {
                command(master, &["CONFIG", "SET", "maxmemory", "1gb"]);
                command(
                    master,
                    &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
                );
            }
            Self::Replica => drop(command(master, &["REPLICAOF", "127.0.0.1", &other])),
            Self::OtherLongestLease => drop(command(
                master,
                &["SET", MARK, &highest.replace(" 500", " 99000")],
            )),
            Self::WrongType => {
                command(master, &["DEL", MARK]);
                command(master, &["LPUSH", MARK, "theirs"]);
            }
        }
    }

    fn mend(self, master: &mut Raw) {
        match self {
            Self::Password => drop(command(master, &["CONFIG", "SET", "requirepass", ""])),
            Self::Eviction => drop(command(
                master,
                &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
            )),
            Self::Replica => drop(command(master, &["REPLICAOF", "NO", "ONE"])),
            Self::OtherLongestLease | Self::WrongType => drop(command(master, &["DEL", MARK])),
        }
    }
}

fn command(master: &mut Raw, words: &[&str]) -> Reply {
    let reply = master.request(words).expect("the master lives");
    assert!(!reply.is_error(), "{words:?}: {reply:?}");
    reply
}

/// Starts five masters whose votes count.
async fn five_trusted() -> (Vec<Redis>, Vec<String>) {
    let (masters, hosts) = start(5);
    let locks = open(&hosts, SHORT).await.expect("five");
    wait_until_all_vote(&locks).await;
    (masters, hosts)
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

/// Shows G-32.
#[tokio::test]
async fn opening_beside_master_with_password_is_granted() {
    opens_beside(Refusal::Password).await;
}

/// Shows G-32.
#[tokio::test]
async fn opening_beside_master_that_evicts_keys_is_granted() {
    opens_beside(Refusal::Eviction).await;
}

/// Shows G-32.
#[tokio::test]
async fn opening_beside_replica_is_granted() {
    opens_beside(Refusal::Replica).await;
}

/// Shows G-32.
#[tokio::test]
async fn opening_beside_master_with_other_longest_lease_is_granted() {
    opens_beside(Refusal::OtherLongestLease).await;
}

/// Shows G-32.
#[tokio::test]
async fn opening_beside_master_with_mark_of_wrong_type_is_granted() {
    opens_beside(Refusal::WrongType).await;
}

/// Shows G-32.
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

/// Shows G-33.
#[tokio::test]
async fn opening_with_majority_of_refusing_masters_is_refused() {
    let (masters, hosts) = start(5);
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
