//! The round trips that a client needs before it holds a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lab_servers::Redis;
use leasehold::{Guard, Locks};
use leasehold_conformance::support::{waiters, within_timeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

use crate::{calls, use_once};

/// Bytes that follow the bytes before them within this time belong to the same flight.
const QUIET: Duration = Duration::from_millis(200);

/// A proxy that counts the flights: the bytes that a client sends without a reply between them.
struct Proxy {
    url: String,
    flights: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    async fn start(server: &Redis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let flights = Arc::<AtomicU64>::default();
        let server = server.address();
        let counts = Arc::clone(&flights);

        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.expect("it runs");
                let (mut replies, to_server) = server.into_split();
                let (requests, mut to_client) = client.into_split();
                tokio::spawn(forward_flights(requests, to_server, Arc::clone(&counts)));
                tokio::spawn(async move { copy(&mut replies, &mut to_client).await });
            }
        });
        Self {
            url: format!("redis://{address}"),
            flights,
            accepting,
        }
    }

    fn flights(&self) -> u64 {
        self.flights.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward_flights(
    mut requests: OwnedReadHalf,
    mut to_server: OwnedWriteHalf,
    flights: Arc<AtomicU64>,
) {
    loop {
        let mut flight = Vec::new();
        while let Ok(Ok(1..)) = timeout(QUIET, requests.read_buf(&mut flight)).await {}
        if flight.is_empty() {
            // The client waits for a reply, or has closed the connection.
            match requests.readable().await {
                Ok(()) if requests.peek(&mut [0]).await.is_ok_and(|count| count > 0) => continue,
                _ => return,
            }
        }

        flights.fetch_add(1, Ordering::SeqCst);
        if to_server.write_all(&flight).await.is_err() {
            return;
        }
    }
}

/// Each of the two connections says hello, subscribes and sends all checks at once. So a client far
/// away waits for one round trip, and for the TCP connection, before it can send its first request.
#[tokio::test]
async fn open_takes_two_round_trips_and_an_acquire_takes_one() {
    let server = Redis::start();
    let first = leasehold::open(&server.url()).await.expect("opened");
    let guard = first.mutex("a").acquire().await.expect("granted");
    guard.release().await.expect("the server knows the scripts");

    let proxy = Proxy::start(&server).await;
    let locks = leasehold::open(&proxy.url).await.expect("opened");
    assert_eq!(proxy.flights(), 2, "one flight on each connection");

    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("held");
    assert_eq!(proxy.flights(), 4, "one flight to enter, and one to leave");
}

/// Opens a store as the command does, which knows its lock before it connects.
async fn acquired_at_the_opening(url: &str) -> leasehold::Result<Guard> {
    let lock = |locks: &Locks| locks.mutex("a");
    let locks = leasehold::open_entering(url, lock, None).await?;
    lock(&locks).acquire().await
}

/// The command sends its first claim with the checks. So it starts COMMAND after the TCP connection
/// and one round trip, with the lock bound to its connection, as a later claim is.
#[tokio::test]
async fn first_claim_of_the_command_takes_no_round_trip_of_its_own() {
    let server = Redis::start();
    let first = acquired_at_the_opening(&server.url()).await;
    let released = first.expect("granted").release().await;
    released.expect("the server knows the scripts");

    let proxy = Proxy::start(&server).await;
    let guard = acquired_at_the_opening(&proxy.url).await.expect("granted");
    assert_eq!(proxy.flights(), 2, "one flight on each connection");

    let replication = server.info("replication");
    let history = replication.split("master_replid:").nth(1);
    let history = &history.expect("it has one")[..10];
    let record = server.command(&["GET", "leasehold:{a}"]);
    assert!(record.text().contains(history), "{record:?}");
    guard.release().await.expect("held");
}

/// Starts a server with the user `other`, whose password is `right`.
fn server_with_a_user() -> Redis {
    let server = Redis::start();
    let user = "ACL SETUSER other on >right allkeys allchannels +@all";
    server.command(&user.split(' ').collect::<Vec<_>>());
    server
}

/// Requests behind a login that fails would be those of the default user.
#[tokio::test]
async fn first_claim_of_the_command_follows_the_password() {
    let server = server_with_a_user();
    let wrong = server.url().replace("//", "//other:wrong@");
    let refused = acquired_at_the_opening(&wrong).await;
    assert!(refused.expect_err("the login fails").is_denied());
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);

    let first = acquired_at_the_opening(&server.url()).await;
    let released = first.expect("granted").release().await;
    released.expect("the server knows the scripts");
    let proxy = Proxy::start(&server).await;
    let right = proxy.url.replace("//", "//other:right@");
    let _guard = acquired_at_the_opening(&right).await.expect("granted");
    assert_eq!(proxy.flights(), 4, "two flights on each connection");
}

/// A server whose clock is ahead refuses the claim as late, and gets it once more.
#[tokio::test]
async fn first_claim_is_repeated_on_a_server_whose_clock_is_ahead() {
    let server = Redis::setup().own_clock().start();
    server.set_clock(3_600);
    let guard = acquired_at_the_opening(&server.url()).await;
    guard.expect("granted").release().await.expect("held");
}

/// A later connection of the same client enters nothing by itself.
#[tokio::test]
async fn first_claim_is_not_repeated_by_a_reconnect() {
    let server = Redis::start();
    let lock = |locks: &Locks| locks.mutex("a");
    let opened = leasehold::open_entering(&server.url(), lock, None).await;
    let locks = opened.expect("opened");
    let guard = lock(&locks).acquire().await.expect("granted");
    guard.release().await.expect("held");

    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    // Each of them uses one of the two connections, which are open again then.
    use_once(&locks.mutex("b")).await;
    locks.list("", 10).await.expect("listed");
    let record = server.command(&["GET", "leasehold:{a}"]);
    assert_eq!(record.bytes().get(16), Some(&b'~'), "free: {record:?}");
}

/// The server executes the request to enter, although one of its rules makes the client refuse it:
/// its user may not subscribe to grants, or it evicts keys.
#[tokio::test]
async fn server_that_is_refused_keeps_no_claim() {
    let server = Redis::start();
    let denying = "ACL SETUSER other on >right allkeys &leasehold:alive:* +@all";
    let evicting = "CONFIG SET maxmemory-policy allkeys-lru";
    server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let user = server.url().replace("//", "//other:right@");
    for (setting, url) in [(denying, user), (evicting, server.url())] {
        let words: Vec<&str> = setting.split(' ').collect();
        server.command(&words);
        let refused = acquired_at_the_opening(&url).await;
        let error = refused.expect_err(setting);
        assert!(
            error.to_string().contains("cannot open the store"),
            "{error}"
        );
        let record = server.command(&["GET", "leasehold:{a}"]);
        assert_eq!(record.bytes().get(16), Some(&b'~'), "free: {record:?}");
        server.command(&["DEL", "leasehold:{a}"]);
    }
}

/// Starts a server that knows the scripts.
async fn warm_server() -> Redis {
    let server = Redis::setup().own_clock().start();
    let first = acquired_at_the_opening(&server.url()).await;
    let released = first.expect("granted").release().await;
    released.expect("held");
    server
}

/// A proxy that holds back what goes over background connections, in one direction, until it is
/// opened.
async fn gate(server: &Redis, holds_requests: bool) -> (String, watch::Sender<bool>) {
    let (open, opened) = watch::channel(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("redis://{}", listener.local_addr().expect("bound"));
    let server = server.address();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&server).await.expect("it runs");
            let mut opened = opened.clone();
            tokio::spawn(async move {
                let mut flight = Vec::new();
                while let Ok(Ok(1..)) = timeout(QUIET, client.read_buf(&mut flight)).await {}
                let is_held = flight.windows(6).any(|word| word == b":alive");
                if holds_requests && is_held {
                    opened.wait_for(|is_open| *is_open).await?;
                }
                server.write_all(&flight).await?;
                if is_held {
                    opened.wait_for(|is_open| *is_open).await?;
                }
                copy_bidirectional(&mut client, &mut server).await?;
                anyhow::Ok(())
            });
        }
    });
    (url, open)
}

/// The server may grant the lock, and notify the client, before the client has the reply to its
/// first request.
///
/// Shows G-01.
#[tokio::test]
async fn grant_that_arrives_before_the_store_is_open_is_kept() {
    let server = warm_server().await;
    let theirs = leasehold::open(&server.url()).await.expect("opened");
    let held = theirs.mutex("a").acquire().await.expect("granted");
    let (url, open) = gate(&server, false).await;
    let acquiring = tokio::spawn(async move { acquired_at_the_opening(&url).await });
    waiters(&theirs, "a", 1).await;

    held.release().await.expect("held");
    let granted = async || {
        let lock_state = theirs.inspect("a").await.expect("inspected");
        lock_state.holders().next().map(|holder| holder.id)
    };
    let claim = granted().await.expect("granted by the release");
    // Each look gives the client time to answer the notification.
    for _ in 0..200 {
        assert_eq!(granted().await, Some(claim), "before the reply");
    }
    open.send_replace(true);
    let guard = acquiring.await.expect("it ran").expect("granted");
    for _ in 0..200 {
        assert_eq!(granted().await, Some(claim), "held");
    }
    guard.release().await.expect("held");
}

/// The server executes the request after the client has given up to open the store.
///
/// Shows G-10.
#[tokio::test]
async fn claim_that_is_entered_after_a_failed_opening_leaves() {
    let server = warm_server().await;
    // It accepts the request for longer.
    server.set_clock(-3_600);
    let theirs = leasehold::open(&server.url()).await.expect("opened");
    let before = calls(&server, "evalsha");
    let (url, open) = gate(&server, true).await;
    let failed = acquired_at_the_opening(&url).await;
    assert!(failed.expect_err("it is silent").is_unavailable());
    // The claim leaves before it is entered.
    while calls(&server, "evalsha") == before {
        yield_now().await;
    }
    open.send_replace(true);

    let entries = async || theirs.inspect("a").await.expect("read").entries.len();
    let entered_and_left = async {
        while entries().await == 0 {}
        while entries().await > 0 {}
    };
    let limit = Duration::from_secs(20);
    timeout(limit, entered_and_left)
        .await
        .expect("long before its lease ends");
}

/// The server has granted the claim, and its reply is late.
///
/// Shows G-10.
#[tokio::test]
async fn claim_of_an_opening_without_replies_leaves() {
    let server = warm_server().await;
    let theirs = leasehold::open(&server.url()).await.expect("opened");
    let entries = async || theirs.inspect("a").await.expect("read").entries.len();
    let (url, _open) = gate(&server, false).await;
    let acquiring = tokio::spawn(async move { acquired_at_the_opening(&url).await });
    while entries().await == 0 {}

    let failed = acquiring.await.expect("it ran");
    assert!(failed.expect_err("it is silent").is_unavailable());
    let leaving = async { while entries().await > 0 {} };
    within_timeout("long before its lease ends", leaving).await;
}

/// A claim that was to wait leaves if the acquire that takes it does not wait.
///
/// Shows G-09.
#[tokio::test]
async fn first_claim_that_waits_leaves_before_a_try() {
    let server = Redis::start();
    let theirs = leasehold::open(&server.url()).await.expect("opened");
    let _held = theirs.mutex("a").acquire().await.expect("granted");
    let lock = |locks: &Locks| locks.mutex("a");
    let opened = leasehold::open_entering(&server.url(), lock, None).await;
    let ours = opened.expect("opened");
    waiters(&theirs, "a", 1).await;

    let tried = lock(&ours).try_acquire().await.expect("it replies");
    tried.expect_err("it is held");
    waiters(&theirs, "a", 0).await;
}

/// What the server says is the error, and not that the claim cannot leave either.
///
/// Shows G-26.
#[tokio::test]
async fn opening_that_fails_does_not_wait_for_its_claim() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("redis://{}", listener.local_addr().expect("bound"));
    let refusing = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.read(&mut [0]).await;
        }
    });
    let opening = acquired_at_the_opening(&url);
    // The time limit of an opening.
    let failed = timeout(Duration::from_secs(5), opening).await;
    let error = failed.expect("in time").expect_err("it is refused");
    assert!(error.is_unavailable(), "{error}");
    refusing.abort();
}

/// Requests behind a login that fails would be those of the default user.
#[tokio::test]
async fn nothing_is_sent_before_a_password_is_accepted() {
    let server = server_with_a_user();

    let wrong = server.url().replace("//", "//other:wrong@");
    let refused = leasehold::open(&wrong).await;
    assert!(refused.expect_err("the login fails").is_denied());
    let ran = server.info("commandstats");
    assert!(!ran.contains("cmdstat_eval"), "{ran}");

    let proxy = Proxy::start(&server).await;
    let right = proxy.url.replace("//", "//other:right@");
    let _locks = leasehold::open(&right).await.expect("opened");
    assert_eq!(proxy.flights(), 4, "two flights on each connection");
}

/// Requests behind a database that is refused would be for another one.
#[tokio::test]
async fn nothing_is_sent_before_a_database_is_selected() {
    let server = Redis::start();
    for settings in ["", "?protocol=2", "?dialect=plain", "?dialect=redisson"] {
        let missing = format!("{}/99{settings}", server.url());
        let refused = leasehold::open(&missing).await;
        refused.expect_err("the server has 16 databases");
    }
    let ran = server.info("commandstats");
    assert!(ran.contains("cmdstat_select"), "{ran}");
    assert!(!ran.contains("cmdstat_eval"), "{ran}");

    let proxy = Proxy::start(&server).await;
    let present = format!("{}/1", proxy.url);
    let _locks = leasehold::open(&present).await.expect("opened");
    assert_eq!(proxy.flights(), 4, "two flights on each connection");
}

/// The names of a day are far more than those in use.
#[tokio::test]
async fn listing_transfers_only_names_in_use() {
    let server = Redis::start();
    let locks = leasehold::open(&server.url()).await.expect("opened");
    use_once(&locks.mutex("released")).await;
    let copy = "local value = redis.call('DUMP', KEYS[1])
        for i = 1, 5000 do
            redis.call('RESTORE', 'leasehold:{released/' .. i .. '}', ARGV[1], value)
        end";
    server.command(&["EVAL", copy, "1", "leasehold:{released}", "80000000"]);
    let _held = locks.mutex("held").acquire().await.expect("granted");

    let sent = || {
        let stats = server.info("stats");
        let rest = stats.split("total_net_output_bytes:").nth(1);
        let number = rest.and_then(|rest| rest.lines().next()?.parse::<u64>().ok());
        number.expect("the server counts what it sends")
    };
    let before = sent();
    let listed = locks.list("", 10).await.expect("listed");
    assert_eq!(listed.len(), 1);
    let bytes = sent() - before;
    assert!(bytes < 20_000, "{bytes} bytes for one name");
}
