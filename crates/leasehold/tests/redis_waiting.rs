//! The cost of waiting on a Redis server, and the handling of waiters and requests that come late.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use lab_servers::{Raw, Redis, Wire};
use leasehold::{Guard, Locks};

/// How long a test waits at most for an event that must come.
const TIMEOUT: Duration = Duration::from_secs(20);
const DAY: i64 = 24 * 60 * 60;

async fn open(url: &str, settings: &str) -> Locks {
    leasehold::open(&format!("{url}?{settings}"))
        .await
        .expect("the store opens")
}

/// A client that the wire can cut off from the server.
async fn remote(server: &Redis, settings: &str) -> (Wire, Locks) {
    let wire = Wire::to(server.address());
    let locks = open(&wire.url_of("redis"), settings).await;
    (wire, locks)
}

fn cut_off(wire: &Wire) {
    wire.refuse(true);
    wire.partition();
}

async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

async fn waiters(locks: &Locks, name: &str, count: usize) {
    while locks.inspect(name).await.expect("read").waiters().count() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

type Waiting = tokio::task::JoinHandle<leasehold::Result<Guard>>;

/// One more waiter for the mutex `a`, in the queue behind `ahead` others.
async fn wait_behind(locks: &Locks, ahead: usize) -> Waiting {
    wait_with_lease(locks, ahead, Duration::from_secs(30)).await
}

async fn wait_with_lease(locks: &Locks, ahead: usize, lease: Duration) -> Waiting {
    let lock = locks.mutex("a").lease(lease);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(locks, "a", ahead + 1).await;
    waiting
}

async fn granted(waiting: Waiting) -> Guard {
    within_timeout("the lock is granted", waiting)
        .await
        .expect("the task runs")
        .expect("granted")
}

/// Receives every command that the server runs.
struct Monitor;

impl Monitor {
    fn of(server: &Redis) -> Raw {
        let mut raw = server.connection();
        raw.request(&["MONITOR"]).expect("MONITOR starts");
        raw
    }
}

/// The commands that the server ran until now, as MONITOR shows them.
fn commands(server: &Redis, monitor: &mut Raw) -> Vec<String> {
    static END: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let end = format!(
        "end-{}",
        END.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    );
    server.command(&["ECHO", &end]);
    let mut commands = Vec::new();
    loop {
        let command = monitor.receive_reply().expect("heard").text().to_owned();
        if command.contains(&end) {
            return commands;
        }
        commands.push(command);
    }
}

/// The commands that clients sent. MONITOR tags the commands that scripts run.
fn requests(commands: &[String]) -> usize {
    commands
        .iter()
        .filter(|command| !command.contains(" lua] "))
        .count()
}

/// The words of a command, as MONITOR shows them. The library's commands contain no quotes.
fn words(command: &str) -> Vec<String> {
    command
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The request that entered `name` first.
fn entering(commands: &[String], name: &str) -> Vec<String> {
    let key = format!("leasehold:{{{name}}}");
    let found = commands.iter().map(|command| words(command)).find(|words| {
        words[0].to_lowercase().starts_with("eval")
            && words.get(3) == Some(&key)
            && words.get(4).is_some_and(|word| word.len() > 80)
    });
    let mut found = found.expect("the request was sent");
    assert!(
        found[0].eq_ignore_ascii_case("evalsha"),
        "the server did not know the script"
    );
    "EVALSHA".clone_into(&mut found[0]);
    found
}

fn again(server: &Redis, request: &[String]) -> lab_servers::Reply {
    server.request(&request.iter().map(String::as_str).collect::<Vec<_>>())
}

/// 60 clients wait for one lock. Each client renews its claim every third of its lease. All clients
/// together poll the holder a few times a second. A poll does not write.
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
    let mut monitor = Monitor::of(&server);
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
    let mut monitor = Monitor::of(&server);
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

/// The first `dead` of the waiters die together with the holder. The next waiter takes over within
/// the grace and 2 s for each position, or within a third of its lease where that is less. Returns
/// the time, and the number of requests sent.
async fn takeover_behind(dead: usize) -> (Duration, usize) {
    let server = Redis::start();
    let (wire, gone) = remote(&server, "crash-grace=1s").await;
    let _held = gone.mutex("a").acquire().await.expect("granted");
    let mut dying = Vec::new();
    for ahead in 0..dead {
        let (wire, client) = remote(&server, "crash-grace=1s").await;
        dying.push((wait_behind(&client, ahead).await, wire, client));
    }
    let next = open(&server.url(), "crash-grace=1s").await;
    let waiting = wait_behind(&next, dead).await;
    // The server receives no new state from the waiters after this pause.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut monitor = Monitor::of(&server);
    let died = Instant::now();
    cut_off(&wire);
    for (_, wire, _) in &dying {
        cut_off(wire);
    }
    let guard = granted(waiting).await;
    let took = died.elapsed();
    let sent = requests(&commands(&server, &mut monitor));
    guard.release().await.expect("released");
    for (waiting, ..) in &dying {
        waiting.abort();
    }
    (took, sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_takes_over_when_the_first_die_with_the_holder() {
    // The test measures by its own clock, on a machine that other processes use too.
    const BUSY: Duration = Duration::from_secs(2);
    for dead in [0usize, 1, 2] {
        let (took, sent) = takeover_behind(dead).await;
        let looks = if dead == 0 {
            0
        } else {
            2 * (u64::try_from(dead).expect("few") + 1)
        };
        let most = Duration::from_millis(1_600) + Duration::from_secs(looks) + BUSY;
        assert!(took <= most, "{took:?} with {dead} dead");
        assert!(sent <= 40, "{sent} requests in {took:?} with {dead} dead");
    }
}

/// Behind more dead waiters, the waiter's renewal in each third of its lease detects the crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_of_a_waiter_far_behind_notices_the_crash() {
    let server = Redis::start();
    let (wire, gone) = remote(&server, "crash-grace=1s").await;
    let _held = gone
        .mutex("a")
        .lease(Duration::from_secs(300))
        .acquire()
        .await
        .expect("granted");
    let mut dying = Vec::new();
    for ahead in 0..5 {
        dying.push(wait_with_lease(&gone, ahead, Duration::from_secs(300)).await);
    }
    let next = open(&server.url(), "crash-grace=1s").await;
    let waiting = wait_with_lease(&next, 5, Duration::from_secs(12)).await;
    let died = Instant::now();
    cut_off(&wire);
    let guard = granted(waiting).await;
    // The grace, a third of the lease, and the time that a busy machine adds.
    assert!(
        died.elapsed() < Duration::from_millis(1_600 + 4_000 + 2_000),
        "{:?}",
        died.elapsed()
    );
    guard.release().await.expect("released");
    dying.iter().for_each(Waiting::abort);
}

/// The first waiter in the queue has no connection when its turn comes. It is passed over without a
/// grace, keeps its position, and is granted next when its connection is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_without_connection_is_passed_over_and_keeps_its_position() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let (wire, away) = remote(&server, "").await;
    let first = wait_behind(&away, 0).await;
    let second = open(&server.url(), "").await;
    let third = open(&server.url(), "").await;
    let second = wait_behind(&second, 1).await;
    let third = wait_behind(&third, 2).await;
    cut_off(&wire);
    while server
        .command(&["PUBSUB", "CHANNELS", "leasehold:alive:*"])
        .list()
        .len()
        > 3
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let released = Instant::now();
    held.release().await.expect("released");
    let second = granted(second).await;
    assert!(
        released.elapsed() < Duration::from_secs(3),
        "the second waiter waited for a grace: {:?}",
        released.elapsed()
    );
    wire.refuse(false);
    while server
        .command(&["PUBSUB", "CHANNELS", "leasehold:alive:*"])
        .list()
        .len()
        < 4
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    second.release().await.expect("released");
    let first = granted(first).await;
    assert!(!third.is_finished(), "two clients hold the lock");
    first.release().await.expect("released");
    granted(third).await.release().await.expect("released");
}

/// A grant that comes long after the last message of the waiter is confirmed before it counts. The
/// grace decides the end of a hold, but the server kept the waiting claim for its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_of_a_waiter_counts_for_the_grace_not_for_its_lease() {
    let server = Redis::start();
    let ours = open(&server.url(), "crash-grace=1s").await;
    let theirs = open(&server.url(), "crash-grace=1s").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let waiting = wait_with_lease(&theirs, 0, Duration::from_secs(3600)).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    held.release().await.expect("released");
    let next = granted(waiting).await;
    let left = next.remaining();
    assert!(left <= Duration::from_secs(1), "trusted for {left:?}");
    next.check().expect("held");
}

/// A server's clock was two days ahead, and an operator corrected it.
#[tokio::test]
async fn contended_acquire_succeeds_after_the_clock_was_two_days_ahead() {
    let server = Redis::setup().own_clock().start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    server.set_clock(2 * DAY);
    for locks in [&ours, &theirs] {
        locks
            .mutex("a")
            .acquire()
            .await
            .expect("granted")
            .release()
            .await
            .expect("released");
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
            .is_none()
    );
    let token = held.token();
    held.release().await.expect("released");
    let next = granted(waiting).await;
    assert!(next.token() > token);
    next.release().await.expect("released");
}

/// Scripts count in doubles, which cannot count beyond 2^53.
#[tokio::test]
async fn token_ten_years_ahead_is_damage() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    for state in [
        "9007199254740992~".to_owned(),
        "9007199254740990~".to_owned(),
    ] {
        server.command(&["SET", "leasehold:{a}", &state, "PX", "60000"]);
        let error = locks.mutex("a").acquire().await.expect_err("damaged");
        assert!(error.is_damaged(), "{error}");
        assert_eq!(server.command(&["GET", "leasehold:{a}"]).text(), state);
    }
}

/// A lock that a client with another layout holds is refused with an error that names the reason.
/// Its keys stay as they are.
#[tokio::test]
async fn record_of_another_version_is_refused() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    let _held = ours
        .mutex("a")
        .lease(Duration::from_secs(300))
        .acquire()
        .await
        .expect("granted");
    let state = server.command(&["GET", "leasehold:{a}"]).text().to_owned();
    assert_eq!(&state[86..90], " v1 ", "{state}");
    let shared = format!("{}L v2 1 2 1 0 {}", &state[..16], "-".repeat(22));
    for other in [
        state.replacen(" v1 ", " v2 ", 1),
        state.replacen(" v1 ", " ", 1),
        shared,
    ] {
        server.command(&["SET", "leasehold:{a}", &other, "KEEPTTL"]);
        let error = theirs.mutex("a").try_acquire().await.expect_err("refused");
        assert!(
            error.is_unsupported() && error.to_string().contains("version of leasehold"),
            "{error}"
        );
        assert_eq!(
            server.command(&["GET", "leasehold:{a}"]).text(),
            other,
            "it was written"
        );
    }
    // A free lock keeps only a token, which every version can read.
    server.command(&[
        "SET",
        "leasehold:{a}",
        &format!("{}~", &state[..16]),
        "KEEPTTL",
    ]);
    theirs
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
}

/// A user deleted the keys of a queue. The keys that a new waiter creates have an expiry.
#[tokio::test]
async fn keys_that_a_waiter_makes_anew_have_an_end() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    let _held = ours.mutex("a").acquire().await.expect("granted");
    let _first = wait_behind(&theirs, 0).await;
    server.command(&["DEL", "leasehold:{a}:claims", "leasehold:{a}:queue"]);
    let third = open(&server.url(), "").await;
    let _second = wait_behind(&third, 0).await;
    for key in ["leasehold:{a}:claims", "leasehold:{a}:queue"] {
        assert!(
            server.command(&["PTTL", key]).int() > 0,
            "{key} has no expiry"
        );
    }
}

/// One key of many locks is damaged. A round of renewals is still one script.
#[tokio::test]
async fn damaged_key_leaves_the_renewal_of_others_one_request() {
    let server = Redis::start();
    let locks = open(&server.url(), "crash-grace=off").await;
    let mut held = Vec::new();
    for number in 0..50 {
        let lock = locks
            .mutex(&format!("lock-{number}"))
            .lease(Duration::from_secs(6));
        held.push(lock.acquire().await.expect("granted"));
    }
    server.command(&["DEL", "leasehold:{lock-7}"]);
    server.command(&["LPUSH", "leasehold:{lock-7}", "something else"]);
    let mut monitor = Monitor::of(&server);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let sent = requests(&commands(&server, &mut monitor));
    assert!(sent < 45, "{sent} requests");
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (number, guard) in held.iter().enumerate() {
        assert_eq!(guard.check().is_ok(), number != 7, "lock-{number}");
    }
}

/// A request to enter reaches the server after its client has left. Its claim waits on the server
/// until it is granted. The client then releases a grant that no caller wants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_to_a_claim_that_has_left_is_released() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    let hour = Duration::from_secs(3600);
    // The server learns the script.
    ours.mutex("b")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let mut monitor = Monitor::of(&server);
    ours.mutex("a")
        .lease(hour)
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let request = entering(&commands(&server, &mut monitor), "a");
    let held = theirs.mutex("a").acquire().await.expect("granted");
    let late = again(&server, &request);
    assert_eq!(&late.text()[16..17], "N", "{late:?}");
    held.release().await.expect("released");
    let next = within_timeout("the late claim is released", theirs.mutex("a").acquire())
        .await
        .expect("granted");
    next.release().await.expect("released");
}

/// The same request is refused if it arrives later than its client waits. A clock that jumps causes
/// the refusal of one request at most.
#[tokio::test]
async fn request_later_than_its_client_waits_is_refused() {
    let server = Redis::setup().own_clock().start();
    let locks = open(&server.url(), "").await;
    locks
        .mutex("b")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let mut monitor = Monitor::of(&server);
    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let request = entering(&commands(&server, &mut monitor), "a");
    server.set_clock(20);
    let late = again(&server, &request);
    assert!(
        late.is_error() && late.error().is_some_and(|error| error.starts_with("LATE")),
        "{late:?}"
    );
    for ahead in [20, 2 * DAY, 0, 30] {
        server.set_clock(ahead);
        let guard = within_timeout("the lock is granted", locks.mutex("c").acquire())
            .await
            .expect("granted");
        guard.release().await.expect("released");
    }
}

/// A client receives no reply to its request to enter, and leaves. Then the server carries the
/// request out and grants the lock at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_carried_out_after_leaving_ends_within_seconds() {
    let server = Redis::start();
    let theirs = open(&server.url(), "").await;
    let (wire, ours) = remote(&server, "").await;
    ours.mutex("b")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let mut monitor = Monitor::of(&server);
    wire.drop_replies(1);
    let lock = ours.mutex("a").lease(Duration::from_secs(3600));
    let guard = within_timeout("the lock is granted", lock.acquire())
        .await
        .expect("granted");
    guard.release().await.expect("released");
    let request = entering(&commands(&server, &mut monitor), "a");
    let late = again(&server, &request);
    assert_eq!(&late.text()[16..17], "H", "{late:?}");
    let next = within_timeout("the late claim is released", theirs.mutex("a").acquire())
        .await
        .expect("granted");
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
