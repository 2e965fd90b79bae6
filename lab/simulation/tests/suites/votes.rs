//! Locks by votes: masters that are slow or cut off, and what is left on them. A single server in
//! the format of other libraries is one master.

use std::time::Duration;

use futures_util::future::join_all;
use lab_redis_model::Reply;
use lab_simulation::testbed::{Redis, Wire, delay_all};
use leasehold::store::{OnContention, Store as _};
use leasehold::stores::{Redlock, RedlockGuardExt};
use leasehold::{Locks, Name};
use leasehold_conformance::support::claim;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::clients::{cut_off, open, remote};
use super::received;

/// All messages have arrived after this time.
const SOON: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(3_600);
/// How long a master keeps its last token after a lease.
const DAY: Duration = Duration::from_secs(86_400);
const RECORD: &str = "leasehold:redlock:{a}";

/// Starts three masters, and a client with a wire to each.
async fn start() -> ([Redis; 3], [Wire; 3], Locks) {
    let masters = [(); 3].map(|()| Redis::start());
    let wires = masters.each_ref().map(|master| Wire::to(master.address()));
    let urls = wires.each_ref().map(|wire| wire.url_of("redlock"));
    let hosts = urls.join(",").replace(",redlock://", ",");
    let locks = open(&hosts, "quarantine=off&longest-lease=3600s").await;
    (masters, wires, locks)
}

/// Opens another client, without wires.
async fn beside(masters: &[Redis; 3]) -> Locks {
    let hosts = masters.each_ref().map(Redis::address).join(",");
    let url = format!("redlock://{hosts}?quarantine=off&longest-lease=3600s");
    leasehold::open(&url).await.expect("it opens")
}

/// Lets a master vote for a claim of another client.
fn vote_for_another(master: &Redis, token: usize, lease: Duration) {
    vote_for(master, RECORD, token, lease);
}

fn vote_for(master: &Redis, key: &str, token: usize, lease: Duration) {
    let record = format!("{token:019}H{token:019}{token:022}{:011} M 9 0 1 h p l", 0);
    let life = (DAY + lease).as_millis().to_string();
    master.command(&["SET", key, &record, "PX", &life]);
}

fn has_vote(master: &Redis) -> bool {
    let state = master.command(&["GETRANGE", RECORD, "19", "19"]);
    state == Reply::Bytes(b"H".to_vec())
}

/// Returns for how long a key remains.
fn remaining(server: &Redis, key: &str) -> Duration {
    let left = server.command(&["PTTL", key]).int();
    Duration::from_millis(left.try_into().expect("it has an end"))
}

/// The masters have voted for three claims, and none of these has a quorum.
///
/// Shows G-32.
#[tokio::test]
async fn divided_votes_refuse_no_claim() {
    let (masters, wires, locks) = start().await;
    for at in [1, 2] {
        vote_for_another(&masters[at], at, SOON);
        wires[at].delay(Duration::from_millis(1));
    }
    let tried = locks.mutex("a").try_acquire().await.expect("they reply");
    drop(tried.expect("no claim holds the lock"));
}

/// The votes stay divided, so they are not asked for again without end.
///
/// Shows G-32.
#[tokio::test]
async fn votes_that_stay_divided_refuse_the_claim() {
    let (masters, wires, locks) = start().await;
    for at in [1, 2] {
        vote_for_another(&masters[at], at, LEASE);
        wires[at].delay(Duration::from_millis(1));
    }
    let tried = timeout(SOON * 50, locks.mutex("a").try_acquire());
    let tried = tried.await.expect("it ends").expect("they reply");
    tried.expect_err("no quorum is free");
}

/// The pauses of a waiter grow to 0.3 s, half more or less. The first waiter of a client asks for all.
///
/// Shows G-29.
#[tokio::test]
async fn waiter_seldom_asks_while_another_claim_holds() {
    let (masters, _wires, locks) = start().await;
    for master in &masters {
        vote_for_another(master, 1, LEASE);
    }
    let before = received(&masters[0]);
    let waiting = (0..3).map(|_| locks.mutex("a").try_acquire_for(Duration::from_secs(30)));
    for waited in join_all(waiting).await {
        waited.expect("they reply").expect_err("it is held");
    }
    let requests = received(&masters[0]) - before;
    assert!((80..=150).contains(&requests), "{requests}");
}

/// The masters free their votes one after the other. The waiter asks when a quorum has done so.
///
/// Shows G-32.
#[tokio::test]
async fn waiter_asks_when_a_quorum_has_notified_it() {
    let (masters, wires, locks) = start().await;
    let theirs = beside(&masters).await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let waiting = tokio::spawn(theirs.mutex("a").acquire());
    sleep(SOON * 50).await;

    for (wire, delay) in wires.iter().zip([0, 2, 100]) {
        wire.delay(Duration::from_millis(delay));
    }
    let before = received(&masters[1]);
    held.release().await.expect("released");
    let next = waiting.await.expect("it runs").expect("granted");
    // A release, the vote, and the confirmation of a grant that followed a wait.
    assert_eq!(received(&masters[1]) - before, 3);
    drop(next);
}

/// The client that has released the lock is nearer to the masters, and wants it again at once.
///
/// Shows G-05.
#[tokio::test]
async fn waiter_that_a_release_has_notified_has_a_head_start() {
    let (masters, wires, locks) = start().await;
    let near = beside(&masters).await;
    let held = near.mutex("a").acquire().await.expect("granted");
    let waiting = tokio::spawn(locks.mutex("a").acquire());
    sleep(SOON * 50).await;

    for wire in &wires {
        wire.delay(Duration::from_millis(1));
    }
    held.release().await.expect("released");
    let again = tokio::spawn(near.mutex("a").acquire());
    let next = timeout(SOON, waiting).await.expect("it is the next holder");
    drop(next.expect("it runs").expect("granted"));
    drop(again.await.expect("it runs").expect("granted"));
}

/// A master that has replied is not asked again.
///
/// Shows G-10.
#[tokio::test]
async fn release_is_one_request_to_each_master() {
    let (masters, _wires, locks) = start().await;
    // The masters know the scripts afterwards.
    let first = locks.mutex("a").acquire().await.expect("granted");
    first.release().await.expect("released");
    let held = locks.mutex("a").acquire().await.expect("granted");
    sleep(SOON).await;
    let before = masters.each_ref().map(received);
    held.release().await.expect("released");
    sleep(SOON * 100).await;
    let after = masters.each_ref().map(received);
    assert_eq!(after, before.map(|count| count + 1));
}

/// Two of three masters are connected again after 0.2 s.
///
/// Shows L2.
#[tokio::test]
async fn acquire_waits_for_the_connections_of_a_quorum() {
    let (_masters, wires, locks) = start().await;
    for wire in &wires[1..] {
        wire.refuse(true);
        wire.partition();
    }
    let acquiring = tokio::spawn(locks.mutex("a").try_acquire());
    sleep(SOON * 10).await;
    for wire in &wires[1..] {
        wire.refuse(false);
    }
    let tried = acquiring.await.expect("it runs").expect("they reply");
    drop(tried.expect("it is free"));
}

/// The first reply ends the wait for the others only if it completes a quorum.
///
/// Shows G-18.
#[tokio::test]
async fn slow_majority_of_masters_is_inspected() {
    let (_masters, wires, locks) = start().await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    for wire in &wires[1..] {
        wire.delay(Duration::from_millis(200));
    }
    let lock_state = locks.inspect("a").await.expect("a quorum replies");
    assert_eq!(lock_state.holders().count(), 1);
    drop(held);
}

/// A format without tokens writes the key of the lock alone.
///
/// Shows G-56.
#[tokio::test]
async fn lock_without_tokens_is_one_key() {
    let server = Redis::start();
    let locks = open(&server.url(), "dialect=plain").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let Reply::List(page) = server.command(&["SCAN", "0"]) else {
        panic!("SCAN replies with a page");
    };
    assert_eq!(page[1], Reply::List(vec![Reply::Bytes(b"a".to_vec())]));
    assert_eq!(held.votes(), [], "one server is no quorum");
}

/// One master is down, and one was slow once. The third has voted for another claim.
///
/// Shows G-10, G-32.
#[tokio::test]
async fn claim_that_a_minority_refuses_leaves_no_vote() {
    let (masters, wires, locks) = start().await;
    cut_off(&wires[1]);
    wires[2].delay(Duration::from_secs(2));
    let tried = locks.mutex("a").try_acquire().await;
    assert!(tried.is_err_and(|error| error.is_unavailable()));

    wires[2].delay(Duration::ZERO);
    sleep(SOON * 1_000).await;
    vote_for_another(&masters[0], 1, LEASE);
    let tried = locks.mutex("a").try_acquire().await.expect("two reply");
    tried.expect_err("the other claim may hold the lock");
    sleep(SOON).await;
    assert!(!has_vote(&masters[2]));
}

/// A vote counts from before the request. Its master, whose clock may be faster, keeps it for
/// longer than the lease, or until it receives the leave request.
///
/// Shows G-01, G-10, S4.
#[tokio::test]
async fn vote_is_kept_beyond_the_lease_or_until_a_leave_arrives() {
    let (masters, wires, locks) = start().await;
    delay_all(SOON * 10);
    let sent_at = Instant::now();
    let lock = locks.mutex("a").lease(LEASE);
    let held = lock.acquire().await.expect("granted");
    sleep(SOON).await;
    let left = LEASE.saturating_sub(sent_at.elapsed()) + Duration::from_millis(1);
    for (vote, master) in held.votes().iter().zip(&masters) {
        assert!(vote.remaining <= left, "{vote:?}");
        assert!(remaining(master, RECORD) > DAY + LEASE);
    }

    cut_off(&wires[0]);
    held.release().await.expect("two masters reply");
    sleep(SOON * 1_000).await;
    assert!(has_vote(&masters[0]));
    wires[0].refuse(false);
    sleep(LEASE / 30).await;
    assert!(!has_vote(&masters[0]));
}

/// Each master has votes for names that no other one knows.
///
/// Shows G-18.
#[tokio::test]
async fn names_of_a_quorum_are_listed_behind_those_of_minorities() {
    let (masters, _wires, locks) = start().await;
    for (at, master) in masters.iter().enumerate() {
        for number in 0..3 {
            let name = format!("leasehold:redlock:{{{at}-{number}}}");
            vote_for(master, &name, 1, LEASE);
        }
    }
    let _held = locks.mutex("held").acquire().await.expect("granted");
    let names = locks.list("", 2).await.expect("they reply");
    let names: Vec<&str> = names.iter().map(Name::as_str).collect();
    assert_eq!(names, ["held"]);
}

/// Two of three masters have lost their votes. The renewal restores them, and they do not count.
///
/// Shows G-10.
#[tokio::test]
async fn lost_renewal_leaves_no_restored_vote() {
    let masters = [(); 3].map(|()| Redis::start());
    let hosts = masters.each_ref().map(Redis::address).join(",");
    let url = format!("redlock://{hosts}?dialect=classic");
    let store = Redlock::builder(&url).expect("a good URL");
    let store = store.connect().await.expect("the store opens");
    let claim = claim("a");
    let entered = store.enter(&claim, OnContention::Queue).await;
    entered.expect("granted").standing.token().expect("granted");

    for master in &masters[..2] {
        master.command(&["DEL", "a"]);
    }
    let renewed = store.renew(std::slice::from_ref(&claim)).await;
    assert_eq!(renewed.expect("they reply"), [None]);
    sleep(SOON).await;
    for master in &masters {
        assert_eq!(master.command(&["EXISTS", "a"]), Reply::Int(0));
    }
}

/// Shows L2.
#[tokio::test]
async fn release_wakes_a_waiter_of_the_same_client() {
    let (_masters, _wires, locks) = start().await;
    let mut held = locks.mutex("a").acquire().await.expect("granted");
    for _ in 0..5 {
        let waiting = tokio::spawn(locks.mutex("a").acquire());
        sleep(SOON * 1_000).await;
        let released_at = Instant::now();
        held.release().await.expect("released");
        held = waiting.await.expect("it runs").expect("granted");
        assert!(released_at.elapsed() <= SOON, "it was not notified");
    }
}

/// A master is emptied when its incarnation ends, which is days after the last handshake. A client
/// that stays connected repeats the handshake.
///
/// Shows G-34.
#[tokio::test]
async fn incarnation_of_a_connected_master_does_not_end() {
    let masters = [(); 3].map(|()| Redis::start());
    let hosts = masters.each_ref().map(Redis::address).join(",");
    let url = format!("redlock://{hosts}");
    let _locks = open(&url, "longest-lease=2s").await;
    for master in &masters {
        master.command(&["PEXPIRE", "leasehold:redlock:mark", "70000"]);
    }
    sleep(Duration::from_secs(65)).await;
    for master in &masters {
        assert!(remaining(master, "leasehold:redlock:mark") > DAY);
    }
}

/// The first waiter of a client polls for all. The others look whether the masters reply.
///
/// Shows L2.
#[tokio::test]
async fn refused_name_ends_no_wait_for_another_name() {
    let server = Redis::start();
    let locks = open(&server.url(), "dialect=plain").await;
    server.command(&["SET", "a", "theirs"]);
    server.command(&["HSET", "x", "field", "value"]);
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        waiting.spawn(locks.mutex("a").acquire());
    }
    for _ in 0..200 {
        let tried = locks.mutex("x").try_acquire().await;
        assert!(tried.is_err_and(|error| !error.is_unavailable()));
        sleep(SOON / 2).await;
    }
    let ended = waiting.try_join_next();
    assert!(ended.is_none(), "{ended:?}");
}

/// The client of the hold may crash at any time, and the clock may be set back then.
///
/// Shows G-04.
#[tokio::test]
async fn counter_of_tokens_outlives_a_renewed_hold_by_a_day() {
    let server = Redis::start();
    let locks = open(&server.url(), "dialect=plain&tokens=on").await;
    let lock = locks.mutex("a").lease(LEASE);
    let held = lock.acquire().await.expect("granted");
    for _ in 0..2 {
        let counter = remaining(&server, "leasehold:plain:{a}:token");
        assert!(counter >= remaining(&server, "a") + DAY, "{counter:?}");
        sleep(LEASE * 2).await;
        held.check().expect("it is renewed");
    }
}

/// A user has replaced the keys of one hold. It ends with the votes that it has, and a hold of another
/// name is renewed beside it.
///
/// Shows G-12.
#[tokio::test]
async fn hold_that_cannot_be_renewed_is_held_as_long_as_its_votes() {
    let (masters, _wires, locks) = start().await;
    let lock = |name| locks.mutex(name).lease(Duration::from_secs(3));
    let held = lock("a").acquire().await.expect("granted");
    let other = lock("b").acquire().await.expect("granted");
    // It is renewed each second.
    sleep(Duration::from_millis(1_200)).await;
    for master in &masters {
        master.command(&["DEL", RECORD]);
        master.command(&["HSET", RECORD, "field", "value"]);
    }

    sleep(Duration::from_millis(1_300)).await;
    held.check().expect("the votes of the first renewal count");
    sleep(Duration::from_secs(2)).await;
    held.check().expect_err("they are over");
    other.check().expect("it is renewed");
}

/// The key was the lock: another client may have held it since. Not even for a moment does a renewal
/// bring it back.
///
/// Shows G-01.
#[tokio::test]
async fn renewal_never_restores_a_deleted_key() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "dialect=plain").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    wire.delay(SOON);
    server.command(&["DEL", "a"]);
    while held.check().is_ok() {
        assert_eq!(server.command(&["EXISTS", "a"]), Reply::Int(0));
        sleep(SOON / 4).await;
    }
}

/// Another holder follows between the inspection and the break.
///
/// Shows G-03, S13.
#[tokio::test]
async fn break_spares_a_later_hold_of_another_library() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "dialect=plain").await;
    server.command(&["SET", "a", "theirs"]);
    let shown = locks.inspect("a").await.expect("it replies");
    let token = shown.holders().next().and_then(leasehold::Entry::token);

    wire.hold_replies(true);
    let changing = async {
        sleep(SOON).await;
        server.command(&["SET", "a", "another"]);
        wire.hold_replies(false);
    };
    let breaking = locks.break_hold("a", token.expect("a digest"));
    let (broken, ()) = tokio::join!(breaking, changing);
    broken.expect("it replies");
    let left = server.command(&["GET", "a"]);
    assert_eq!(left, Reply::Bytes(b"another".to_vec()));
}
