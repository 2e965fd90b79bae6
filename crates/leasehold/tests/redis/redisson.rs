//! Requests of `dialect=redisson` that the server executes after their client has left, and those
//! that are repeated during an outage.

use std::time::Duration;

use lab_servers::{Redis, Reply};
use leasehold::Entry;
use leasehold_conformance::support::{eventually, within_timeout};

use super::late_requests::{again, words};
use super::{commands, cut_off, monitor, open, remote, use_once};

const SETTINGS: &str = "dialect=redisson";
/// The id of a program with Redisson.
const CLIENT: &str = "285475da-9152-4c83-822a-67ee2f116a79";

/// The first request to lock `a`.
fn locking(commands: &[String]) -> Vec<String> {
    let mut found = commands
        .iter()
        .map(|command| words(command))
        .find(|words| {
            words[0].eq_ignore_ascii_case("evalsha") && words.get(3).is_some_and(|key| key == "a")
        })
        .expect("the request was sent");
    "EVALSHA".clone_into(&mut found[0]);
    found
}

fn outcome(reply: &Reply) -> &str {
    reply.list()[0].text()
}

/// A client receives no reply to its request to lock, locks again, and releases. Then the server
/// executes the first request again: the lock stays free.
///
/// Shows G-52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_request_of_redisson_dialect_takes_no_lock() {
    let server = Redis::start();
    let (wire, ours) = remote(&server, SETTINGS).await;
    use_once(&ours.mutex("b")).await;
    let mut monitor = monitor(&server);
    wire.drop_replies(1);

    let lock = ours.mutex("a");
    let guard = within_timeout("the lock is granted", lock.acquire()).await;
    guard.expect("granted").release().await.expect("released");
    let request = locking(&commands(&server, &mut monitor));

    let late = again(&server, &request);
    assert_eq!(outcome(&late), "C", "{late:?}");
    assert_eq!(server.command(&["EXISTS", "a"]).int(), 0);
    use_once(&ours.mutex("a")).await;
}

/// A request that arrives later than its client waits is refused. A clock that jumps causes the
/// refusal of one request at most.
///
/// Shows G-52.
#[tokio::test]
async fn request_of_redisson_dialect_has_a_deadline() {
    let server = Redis::setup().own_clock().start();
    let locks = open(&server.url(), SETTINGS).await;
    use_once(&locks.mutex("b")).await;
    let mut monitor = monitor(&server);
    use_once(&locks.mutex("a")).await;
    let request = locking(&commands(&server, &mut monitor));

    server.set_clock(20);
    let late = again(&server, &request);
    assert_eq!(outcome(&late), "L", "{late:?}");
    assert_eq!(server.command(&["EXISTS", "a"]).int(), 0);
    for ahead in [20, 2 * super::DAY, 0, 30] {
        server.set_clock(ahead);
        use_once(&locks.mutex("c")).await;
    }
}

/// With a watchdog above the lease of the lock, the server keeps the hold for the watchdog's
/// timeout. The release is repeated for that long, and not only for the lease.
///
/// Shows G-52.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_release_is_repeated_for_the_timeout_of_the_watchdog() {
    const LEASE: Duration = Duration::from_secs(1);
    let server = Redis::start();
    let (wire, ours) = remote(&server, "dialect=redisson&watchdog=10m").await;
    let lock = ours.mutex("a").lease(LEASE);
    let guard = within_timeout("the lock is granted", lock.acquire())
        .await
        .expect("granted");

    cut_off(&wire);
    let released = tokio::spawn(guard.release());
    tokio::time::sleep(3 * LEASE).await;
    assert_eq!(server.command(&["EXISTS", "a"]).int(), 1);
    wire.refuse(false);

    let released = within_timeout("the release ends", released).await;
    let released = released.expect("the task ends");
    released.expect("the release did not give up at the lease");
    assert_eq!(server.command(&["EXISTS", "a"]).int(), 0);
}

/// A break of an `RFairLock` notifies its first waiter.
///
/// Shows G-52.
#[tokio::test]
async fn break_notifies_the_first_waiter_of_a_fair_lock() {
    let server = Redis::start();
    let locks = open(&server.url(), SETTINGS).await;
    let [holder, first, second] = [1, 2, 3].map(|thread| format!("{CLIENT}:{thread}"));
    server.command(&["HSET", "a", &holder, "1"]);
    server.command(&["RPUSH", "redisson_lock_queue:{a}", &first, &second]);

    let lock_state = locks.inspect("a").await.expect("inspected");
    let token = lock_state.holders().next().and_then(Entry::token);
    let mut monitor = monitor(&server);
    let broken = locks.break_hold("a", token.expect("it holds")).await;
    broken.expect("replied").expect("it was held");

    let message = |waiter: &str| format!("\"PUBLISH\" \"redisson_lock__channel:{{a}}:{waiter}\"");
    let commands = commands(&server, &mut monitor).join("\n");
    assert!(commands.contains(&message(&first)), "{commands}");
    assert!(!commands.contains(&message(&second)), "{commands}");
}

/// A waiter that gives up leaves the channel of the lock to another one of its client.
///
/// Shows G-52, L1.
#[tokio::test]
async fn waiter_that_gives_up_leaves_the_channel_to_the_next_one() {
    let server = Redis::start();
    let locks = open(&server.url(), SETTINGS).await;
    server.command(&["HSET", "a", &format!("{CLIENT}:1"), "1"]);
    let [first, second] = [(); 2].map(|()| tokio::spawn(locks.mutex("a").acquire()));
    let sent = async |count: usize| {
        let monitored = "a subscription, and the tries after it";
        eventually(monitored, || async {
            let calls = server.command(&["INFO", "commandstats"]).text().to_owned();
            let evals = calls.split("cmdstat_evalsha:calls=").nth(1);
            let evals = evals.and_then(|rest| rest.split(',').next()?.parse::<usize>().ok());
            evals.is_some_and(|evals| evals >= count)
        })
        .await;
    };
    // Each tries before and after it has subscribed.
    sent(3).await;
    first.abort();
    first.await.expect_err("it was aborted");
    // The client leaves the channel, if it does, before most of these requests.
    for _ in 0..10 {
        use_once(&locks.mutex("b")).await;
    }

    server.command(&["DEL", "a"]);
    let told = server.command(&["PUBLISH", "redisson_lock__channel:{a}", "0"]);
    assert_eq!(told.int(), 1);
    let granted = within_timeout("the second is granted", second).await;
    drop(granted.expect("no panic").expect("granted"));
}
