//! Votes, and claims that masters refuse.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lab_servers::{Redis, Wire};
use leasehold::store::{OnContention, Store as _};
use leasehold::stores::{Redlock, RedlockGuardExt};
use leasehold::{Guard, Locks, LossReason, ServerVote, Token, blocking};
use leasehold_conformance::support::claim;

use super::{DEADLINE, open, start, wait_until_all_vote};

/// If each master notified another waiter, no waiter would have a quorum of notifications.
#[tokio::test]
async fn masters_notify_the_same_waiter() {
    const WAITERS: usize = 8;
    let (servers, hosts) = start(5);
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
    let (mut servers, hosts) = start(5);
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

/// Two masters are silent, and one denies the request. The waiter must not fail before a majority
/// denies it.
#[tokio::test]
async fn one_denying_master_does_not_end_the_wait() {
    let (servers, hosts) = start(5);
    let locks = open(&hosts, "quarantine=off").await.expect("five");
    servers[0].command(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    servers[1..3].iter().for_each(Redis::pause);
    let error = locks
        .mutex("a")
        .try_acquire()
        .await
        .expect_err("two of five");
    assert!(
        error.is_unavailable() && error.to_string().contains("NOPERM"),
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

/// Two masters have a foreign key for one lock and a third is silent: that lock cannot be renewed.
///
/// Shows G-32.
#[tokio::test]
async fn unrenewable_claim_does_not_end_other_claims() {
    // A busy machine must renew in time, with one master less.
    const LEASE: Duration = Duration::from_secs(3);
    let (masters, hosts) = start(5);
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
    let lost = tokio::time::timeout(LEASE, other.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    other.release().await.expect("released");
}

/// Each of two claims leaves while two other masters are cut off. Their votes must not stay, as
/// only one master would remain.
///
/// Shows G-10.
#[tokio::test]
async fn claim_that_left_a_quorum_leaves_the_other_masters_later() {
    let (masters, _) = start(5);
    let (wires, locks) = open_by_wires(&masters).await;
    let mutex = locks.mutex("a").lease(Duration::from_secs(60));

    for cut in [[0, 1], [2, 3]] {
        let held = mutex.acquire().await.expect("granted");
        wait_until_they_vote(&locks, cut, held.token()).await;
        cut_off(&wires, cut);
        held.release().await.expect("three masters reply");
        for at in cut {
            wires[at].refuse(false);
        }
    }
    let acquired = mutex.try_acquire_for(DEADLINE).await.expect("they reply");
    assert!(acquired.is_ok(), "votes of released claims remain");
}

/// A client that has ended does not repeat its requests to leave.
///
/// Shows G-10.
#[tokio::test]
async fn votes_of_a_minority_are_broken_by_their_tokens() {
    let (masters, hosts) = start(5);
    let mut cut_wires = Vec::new();
    for cut in [[0, 1], [2, 3]] {
        let (wires, ended) = open_by_wires(&masters).await;
        let mutex = ended.mutex("a").lease(Duration::from_secs(60));
        let held = mutex.acquire().await.expect("granted");
        wait_until_they_vote(&ended, cut, held.token()).await;
        cut_off(&wires, cut);
        held.release().await.expect("three masters reply");
        cut_wires.extend(wires);
    }

    let locks = open(&hosts, "quarantine=off").await.expect("five");
    let refused = locks.mutex("a").try_acquire().await.expect("they reply");
    assert!(refused.is_err(), "no votes remain");

    let lock_state = locks.inspect("a").await.expect("they reply");
    let votes = lock_state.servers[..4]
        .iter()
        .filter_map(|server| server.holder);
    let tokens: BTreeSet<Token> = votes.map(|(_, token)| token).collect();
    assert_eq!(tokens.len(), 2);
    for token in tokens {
        let broken = locks.break_hold("a", token).await.expect("they reply");
        assert_eq!(broken.and_then(|claim| claim.token()), Some(token));
    }
    // A request to the last masters may still be under way.
    let mutex = locks.mutex("a");
    let acquired = mutex.try_acquire_for(DEADLINE).await.expect("they reply");
    assert!(acquired.is_ok(), "votes of released claims remain");
}

/// Waits until these masters have voted too. A majority decides without them.
/// Anybody who may publish on one master can forge the message that a hold was broken.
///
/// Shows G-32.
#[tokio::test]
async fn message_of_one_master_ends_no_hold() {
    let (servers, hosts) = start(3);
    let locks = open(&hosts, "quarantine=off").await.expect("three");
    let held = locks.mutex("a").acquire().await.expect("granted");
    let mut lost = Box::pin(held.lost());
    assert!(futures_util::poll!(&mut lost).is_pending());

    let votes = || {
        let info = servers[1].command(&["INFO", "commandstats"]);
        let count = info.text().split("cmdstat_evalsha:calls=").nth(1);
        let count = count.and_then(|count| count.split(',').next()?.parse::<u32>().ok());
        count.expect("it has voted")
    };
    let before = votes();
    tell_end(&servers[0], &held);

    // The other masters confirm the hold.
    while votes() == before {
        assert!(futures_util::poll!(&mut lost).is_pending(), "it has ended");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(lost);
    held.release().await.expect("it was not lost");
}

fn tell_end(server: &Redis, held: &Guard) {
    let inboxes = server.command(&["PUBSUB", "CHANNELS", "leasehold:inbox:*"]);
    let id = URL_SAFE_NO_PAD.encode(held.claim_id().to_bytes());
    for inbox in inboxes.texts() {
        server.command(&["PUBLISH", inbox, &format!("G{id}")]);
    }
}

/// An operator has broken the hold on one master. The renewals restore only a vote that a master
/// has lost without a message.
///
/// Shows G-03.
#[tokio::test]
async fn vote_that_was_broken_is_not_restored() {
    const LEASE: Duration = Duration::from_secs(2);
    let (servers, hosts) = start(3);
    let locks = open(&hosts, "dialect=classic").await.expect("three");
    let lock = locks.mutex("a").lease(LEASE);
    let held = lock.acquire().await.expect("granted");
    servers[0].command(&["DEL", "a"]);
    tell_end(&servers[0], &held);
    tokio::time::sleep(LEASE * 2).await;
    held.check().expect("two masters keep it");
    let kept = [0, 1, 2].map(|at| servers[at].command(&["EXISTS", "a"]).int());
    assert_eq!(kept, [0, 1, 1]);
}

async fn wait_until_they_vote(locks: &Locks, masters: [usize; 2], token: Token) {
    let begun = Instant::now();
    loop {
        let lock_state = locks.inspect("a").await.expect("they reply");
        let holders = masters.map(|at| lock_state.servers[at].holder);
        if holders
            .iter()
            .all(|holder| holder.is_some_and(|(_, held)| held == token))
        {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{holders:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Opens the store through a wire to each master.
async fn open_by_wires(masters: &[Redis]) -> (Vec<Wire>, Locks) {
    let wires: Vec<Wire> = masters
        .iter()
        .map(|master| Wire::to(master.address()))
        .collect();
    let hosts: Vec<String> = wires.iter().map(Wire::address).collect();
    let locks = open(&hosts, "quarantine=off").await.expect("five");
    wait_until_all_vote(&locks).await;
    (wires, locks)
}

fn cut_off(wires: &[Wire], cut: [usize; 2]) {
    for at in cut {
        wires[at].refuse(true);
        wires[at].partition();
    }
}

/// A master that was slow at the grant and at the first leave still has its vote at the second one.
///
/// Shows S6.
#[tokio::test]
async fn second_leave_reports_nothing_that_a_slow_master_kept() {
    for settings in ["quarantine=off", "dialect=classic"] {
        let (masters, hosts) = start(3);
        let url = format!("redlock://{}?{settings}", hosts.join(","));
        let builder = Redlock::builder(&url).expect("a good URL");
        let store = builder.connect().await.expect("three");
        let holder = claim("a");

        masters[2].pause();
        let granted = store.enter(&holder, OnContention::Fail).await;
        granted.expect("two of three");
        assert!(store.leave(&holder).await.expect("two of three"));

        masters[1].pause();
        let again = store.leave(&holder);
        let resumed = async {
            masters[2].resume();
            // A quorum needs its reply, which follows that to the leave.
            store.inspect(&holder.name).await.expect("two of three");
            masters[1].resume();
        };
        let (was_there, ()) = tokio::join!(again, resumed);
        assert!(!was_there.expect("three reply"), "{settings}");
    }
}
