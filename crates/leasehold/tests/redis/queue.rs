//! The queue: positions, notifications, and the cost of waiting.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lab_servers::Redis;
use leasehold::store::{OnContention, Store};
use leasehold::stores;
use leasehold_conformance::support::{TIMEOUT, claim, waiters, within_timeout};

use super::{
    DAY, Waiting, commands, cut_off, granted, monitor, open, remote, requests, use_once,
    wait_behind, wait_with_lease,
};

/// A claim without crash detection finds its turn even if no client may send it a notification.
#[tokio::test]
async fn waiter_is_granted_without_notifications() {
    let silent = "app on nopass ~leasehold:* &leasehold:* +@all -publish";
    let server = Redis::setup().acl(silent).start();
    let url = server.url().replace("redis://", "redis://app:x@");
    let ours = open(&url, "crash-grace=off").await;
    let theirs = open(&url, "crash-grace=off").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let lock = theirs.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&ours, "a", 1).await;
    held.release().await.expect("released");
    let _next = within_timeout("the next client holds", waiting)
        .await
        .expect("the task runs")
        .expect("granted");
}

/// The renewal would bind the claim to the connection of the client that sent it.
#[tokio::test]
async fn claim_of_another_client_is_not_renewed() {
    let server = Redis::start();
    let connect = async || {
        let builder = stores::Redis::builder(&server.url()).expect("a URL");
        builder.connect().await.expect("the client connects")
    };
    let ours = connect().await;
    let theirs = connect().await;
    let claim = claim("a");
    let entered = ours.enter(&claim, OnContention::Queue).await;
    assert!(entered.expect("entered").standing.token().is_some());
    let record = server.request(&["GET", "leasehold:{a}"]);

    let renewed = theirs.renew(std::slice::from_ref(&claim)).await;
    assert_eq!(renewed.expect("the store replies"), [None]);
    assert_eq!(server.request(&["GET", "leasehold:{a}"]), record);
}

/// A script renews claims with one grace. A fixed lease is bound to no connection, in whatever order
/// the waiters of a round are.
///
/// Shows G-01, G-14.
#[tokio::test]
async fn renewal_of_several_waiters_binds_each_as_it_has_entered() {
    let server = Redis::start();
    let holder = open(&server.url(), "").await;
    let _held = [
        holder.mutex("a").acquire().await.expect("granted"),
        holder.mutex("b").acquire().await.expect("granted"),
    ];
    let builder = stores::Redis::builder(&server.url()).expect("a URL");
    let store = builder.connect().await.expect("the client connects");
    let ordinary = claim("a");
    let mut fixed = claim("b");
    fixed.auto_renew = false;
    for claim in [&ordinary, &fixed] {
        let entered = store.enter(claim, OnContention::Queue).await;
        assert!(entered.expect("entered").standing.token().is_none());
    }

    let both = [ordinary, fixed];
    let reversed = [both[1].clone(), both[0].clone()];
    for claims in [both, reversed] {
        let renewed = store.renew(&claims).await.expect("renewed");
        assert!(renewed.iter().all(Option::is_some), "{renewed:?}");
        for (name, connected) in [("a", Some(true)), ("b", None)] {
            let state = holder.inspect(name).await.expect("inspected");
            let waiter = state.waiters().next().expect("it waits");
            assert_eq!(waiter.connected, connected, "{name}");
        }
    }
}

/// A waiter whose future is not polled is alive: it keeps its position, and is granted in its turn.
/// It does not check for absent claims before it.
///
/// Shows G-02.
#[tokio::test]
async fn unpolled_waiter_keeps_queue_position() {
    let server = Redis::start();
    let (wire, gone) = remote(&server, "crash-grace=500ms").await;
    let idle = open(&server.url(), "").await;
    let theirs = open(&server.url(), "crash-grace=500ms").await;
    let _held = gone
        .mutex("a")
        .lease(Duration::from_secs(4))
        .acquire()
        .await
        .expect("granted");
    let lock = idle.mutex("a").label("idle");
    let mut acquiring = Box::pin(lock.acquire());
    while theirs.inspect("a").await.expect("read").waiters().count() == 0 {
        let polled = tokio::time::timeout(Duration::from_millis(5), &mut acquiring).await;
        assert!(polled.is_err(), "two clients hold the lock");
    }
    let lock = theirs.mutex("a");
    let next = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, "a", 2).await;
    cut_off(&wire);
    let started = Instant::now();
    while theirs
        .inspect("a")
        .await
        .expect("read")
        .holders()
        .all(|holder| holder.info.label != "idle")
    {
        assert!(
            started.elapsed() < TIMEOUT,
            "the idle waiter is not granted when the lease ends"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!next.is_finished(), "two clients hold the lock");
    drop(acquiring);
    let next = within_timeout("the next client holds", next)
        .await
        .expect("the task runs")
        .expect("granted");
    next.release().await.expect("released");
}

/// 60 clients wait for one lock. Each client renews its claim every third of its lease. All clients
/// together poll the holder a few times a second. A poll does not write.
///
/// Shows G-05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_waiters_send_a_fifth_of_a_request_per_second_each() {
    const WAITERS: u32 = 60;
    const WINDOW: Duration = Duration::from_secs(12);
    let server = Redis::start();
    let holder = open(&server.url(), "").await;
    let held = holder
        .mutex("a")
        .lease(Duration::from_secs(600))
        .acquire()
        .await
        .expect("granted");
    let mut clients = Vec::new();
    let mut waiting = Vec::new();
    for ahead in 0..WAITERS {
        let client = open(&server.url(), "").await;
        waiting.push(wait_behind(&client, ahead as usize).await);
        clients.push(client);
    }
    let mut monitor = monitor(&server);
    tokio::time::sleep(WINDOW).await;
    let commands = commands(&server, &mut monitor);

    let sent = requests(&commands);
    let most =
        usize::try_from(WAITERS * u32::try_from(WINDOW.as_secs()).expect("few") / 5).expect("few");
    // The holder sends a few requests of its own.
    assert!(sent < most + 30, "{sent} requests in {WINDOW:?}");
    let renewed = commands
        .iter()
        .filter(|command| command.contains(" lua] ") && command.contains("\"HSET\""))
        .count();
    let looked = sent.saturating_sub(renewed);
    assert!(
        renewed <= 2 * WAITERS as usize,
        "{renewed} writes of claims, {looked} other requests"
    );
    let is_write = |command: &&String| {
        ["SET", "SETRANGE"]
            .iter()
            .any(|word| command.contains(&format!(" lua] \"{word}\"")))
    };
    let written: Vec<_> = commands.iter().filter(is_write).collect();
    assert!(written.len() <= 1, "a poll writes: {written:?}");

    held.release().await.expect("released");
    let next = granted(waiting.remove(0)).await;
    next.release().await.expect("released");
    waiting.iter().for_each(Waiting::abort);
}

/// A poll writes an absence once when it first sees it, and writes nothing when it sees the same
/// absence again.
#[tokio::test]
async fn repeated_look_at_an_absent_holder_writes_once() {
    let server = Redis::start();
    let (wire, holder) = remote(&server, "crash-grace=60s").await;
    let _held = holder
        .mutex("a")
        .lease(Duration::from_secs(300))
        .acquire()
        .await
        .expect("granted");
    let next = open(&server.url(), "").await;
    let _waiting = wait_with_lease(&next, 0, Duration::from_secs(300)).await;
    let mut monitor = monitor(&server);
    cut_off(&wire);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let commands = commands(&server, &mut monitor);
    let wrote = |word: &str| {
        commands
            .iter()
            .filter(|command| command.contains(&format!(" lua] \"{word}\"")))
            .count()
    };
    assert!(requests(&commands) >= 5, "the waiter polls");
    assert_eq!(
        (wrote("SETRANGE"), wrote("SET"), wrote("HSET")),
        (1, 0, 0),
        "{commands:#?}"
    );
}

/// A server's clock was two days ahead, and an operator corrected it.
///
/// Shows G-04.
#[tokio::test]
async fn contended_acquire_succeeds_after_the_clock_was_two_days_ahead() {
    let server = Redis::setup().own_clock().start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    server.set_clock(2 * DAY);
    for locks in [&ours, &theirs] {
        use_once(&locks.mutex("a")).await;
    }
    server.set_clock(0);
    let held = ours.mutex("a").acquire().await.expect("granted");
    let waiting = wait_behind(&theirs, 0).await;
    assert!(
        theirs
            .mutex("a")
            .try_acquire()
            .await
            .expect("replied")
            .is_err()
    );
    let token = held.token();
    held.release().await.expect("released");
    let next = granted(waiting).await;
    assert!(next.token() > token);
    next.release().await.expect("released");
}

/// A position is never given twice, and never forgotten, when waiters come and go. All waiters are
/// granted in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_come_and_go_are_all_granted_once() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let mut waiting = Vec::new();
    for ahead in 0..8 {
        waiting.push(wait_behind(&locks, ahead).await);
    }
    waiting.remove(3).abort();
    waiters(&locks, "a", 7).await;
    held.release().await.expect("released");
    let mut tokens = BTreeSet::new();
    for waiting in waiting {
        let guard = granted(waiting).await;
        assert!(tokens.insert(guard.token()));
        guard.release().await.expect("released");
    }
    assert_eq!(tokens.len(), 7);
}

/// A client has died with many waiters. Each script passes over 100 of them at most, and a waiter
/// behind them is granted long before their leases end.
///
/// Shows G-05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_behind_many_dead_ones_is_granted_by_short_scripts() {
    const DEAD: usize = 400;
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let (wire, dying) = remote(&server, "").await;
    let lock = dying.mutex("a").lease(Duration::from_secs(600));
    let dead: Vec<Waiting> = (0..DEAD)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    waiters(&ours, "a", DEAD).await;
    let theirs = open(&server.url(), "").await;
    let waiting = wait_behind(&theirs, DEAD).await;
    cut_off(&wire);
    until_clients(&server, 2).await;

    let mut monitor = monitor(&server);
    held.release().await.expect("released");
    let next = granted(waiting).await;
    // The one behind it is granted at once: no script walks over the dead ones again.
    let behind = wait_behind(&ours, DEAD).await;
    next.release().await.expect("released");
    let held = granted(behind).await;
    for script in scripts(&commands(&server, &mut monitor)) {
        let count = |word: &str| script.iter().filter(|line| line.contains(word)).count();
        assert!(count("\"NUMSUB\"") <= 102, "{}", count("\"NUMSUB\""));
        assert!(count("\"INFO\"") <= 1, "{}", count("\"INFO\""));
    }

    // A client that returns still has its positions.
    let last = wait_behind(&theirs, DEAD).await;
    wire.refuse(false);
    until_clients(&server, 3).await;
    held.release().await.expect("released");
    while dead.iter().all(|waiting| !waiting.is_finished()) {
        assert!(!last.is_finished(), "a waiter ahead of it has returned");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    dead.iter().for_each(Waiting::abort);
    last.abort();
}

/// A try that finds its job done sends no more requests than one that is refused, and a completion no
/// more than a release.
///
/// Shows G-58.
#[tokio::test]
async fn done_job_and_completion_need_no_further_request() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    let mut monitor = monitor(&server);
    // A ping of another link may come between, and names no lock.
    let mut sent = || {
        let mut sent = commands(&server, &mut monitor);
        sent.retain(|command| command.contains("leasehold:{"));
        requests(&sent)
    };
    let starts = async |name| {
        let acquired = ours.once(name).id("1").acquire().await;
        acquired.expect("granted").expect("it is not done")
    };
    // The first use of a script loads it.
    starts("warm").await.complete().await.expect("recorded");
    let lock = ours.mutex("warm");
    lock.acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");

    let job = starts("a").await;
    sent();
    job.complete().await.expect("recorded");
    let completing = sent();
    let held = ours.mutex("b").acquire().await.expect("granted");
    sent();
    let refused = theirs.mutex("b").try_acquire().await;
    refused.expect("it replies").expect_err("it is held");
    let refusing = sent();
    held.release().await.expect("released");
    let releasing = sent();
    let found = theirs.once("a").id("1").try_acquire().await;
    found.expect("it replies").expect_err("it is done");
    let finding = sent();
    assert_eq!((completing, releasing, finding), (1, 1, 1));
    assert!(finding <= refusing, "{finding} and {refusing}");
}

/// Waits until the server knows the connections of some clients.
async fn until_clients(server: &Redis, wanted: usize) {
    let channels = || {
        let command = ["PUBSUB", "CHANNELS", "leasehold:alive:*"];
        server.command(&command).list().len()
    };
    while channels() != wanted {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The commands of each script. MONITOR tags them.
fn scripts(commands: &[String]) -> Vec<&[String]> {
    let requests = commands.split(|command| !command.contains(" lua] "));
    requests.collect()
}
