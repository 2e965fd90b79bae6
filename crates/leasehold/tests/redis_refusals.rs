//! The requests that a Redis server may refuse, and the library's errors for them: the kind of the
//! error, a remedy, and never the password.
#![cfg(all(feature = "redis", feature = "tls"))]
#![allow(missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use lab_servers::{Redis, Reply};
use leasehold::{Error, Guard, Locks};

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("the store opens")
}

async fn refused(url: &str) -> Error {
    leasehold::open(url).await.expect_err("refused")
}

async fn hold(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).acquire().await.expect("granted")
}

#[track_caller]
fn check(error: &Error, is: fn(&Error) -> bool, output: &str) {
    assert!(is(error) && error.to_string().contains(output), "{error:?}");
    assert!(
        !format!("{error:?} {error}").contains("hunter2"),
        "{error:?}"
    );
}

#[tokio::test]
async fn eviction_policy_is_rejected() {
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl"] {
        let server = Redis::configured(&[("maxmemory", "100mb"), ("maxmemory-policy", policy)]);
        check(
            &refused(&server.url()).await,
            Error::is_unsupported,
            "set its maxmemory-policy to noeviction",
        );
    }
    let server = Redis::configured(&[("maxmemory", "100mb"), ("maxmemory-policy", "noeviction")]);
    drop(hold(&open(&server.url()).await, "a").await);
}

#[tokio::test]
async fn keys_of_another_type_are_refused() {
    for key in [
        "leasehold:{a}",
        "leasehold:{a}:claims",
        "leasehold:{a}:queue",
        "leasehold:{a}:holders",
    ] {
        let server = Redis::start();
        let locks = open(&server.url()).await;
        server.command(&["LPUSH", key, "mine"]);
        // A reader needs all four keys.
        let error = locks.rwlock("a").shared().acquire().await.expect_err(key);
        check(&error, Error::is_damaged, "not of leasehold's type");
        assert_eq!(
            server.command(&["LRANGE", key, "0", "-1"]).texts(),
            ["mine"]
        );
        assert_eq!(
            server.command(&["DBSIZE"]).int(),
            1,
            "something was written before the refusal"
        );
    }
}

#[tokio::test]
async fn foreign_text_is_refused() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    for text in [
        "",
        "mine",
        "0000000000000000X",
        "00000000000000000000000000000000",
    ] {
        server.command(&["SET", "leasehold:{a}", text]);
        if text.is_empty() {
            continue;
        }
        check(
            &locks.mutex("a").acquire().await.expect_err(text),
            Error::is_damaged,
            "was not written by leasehold",
        );
        assert_eq!(server.command(&["GET", "leasehold:{a}"]).text(), text);
    }
}

#[tokio::test]
async fn replicas_are_refused() {
    let master = Redis::start();
    let replica = Redis::setup().replica_of(&master).start();
    check(
        &refused(&replica.url()).await,
        Error::is_unavailable,
        "connect to its master",
    );
    let locks = open(&master.url()).await;
    // The master becomes a replica while the client is connected.
    master.command(&["REPLICAOF", "127.0.0.1", "1"]);
    check(
        &locks.mutex("a").acquire().await.expect_err("read-only"),
        Error::is_unavailable,
        "connect to its master",
    );
}

#[tokio::test]
async fn wrong_passwords_are_refused() {
    let server = Redis::setup().password("hunter2").start();
    let at = server.address();
    check(
        &refused(&format!("redis://{at}")).await,
        Error::is_denied,
        "the server requires a password",
    );
    for wrong in [
        "redis://:hunter22@",
        "redis://nobody:hunter2@",
        "redis://default:hunter2x@",
    ] {
        check(
            &refused(&format!("{wrong}{at}")).await,
            Error::is_denied,
            "does not accept the user name and password",
        );
    }
    drop(hold(&open(&format!("redis://:hunter2@{at}")).await, "a").await);
}

#[tokio::test]
async fn server_without_memory_is_reported() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    let alone = hold(&locks, "alone").await;
    let first = hold(&locks, "queue").await;
    let second = locks.mutex("queue");
    let waiting = tokio::spawn(async move { second.acquire().await });
    while locks
        .inspect("queue")
        .await
        .expect("read")
        .waiters()
        .count()
        == 0
    {
        tokio::task::yield_now().await;
    }
    let short = locks
        .mutex("short")
        .lease(Duration::from_millis(1500))
        .acquire()
        .await
        .expect("granted");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    check(
        &locks
            .mutex("new")
            .acquire()
            .await
            .expect_err("the server has no memory"),
        Error::is_unavailable,
        "raise its maxmemory",
    );
    // The client can still renew, release, and hand over the locks that it holds.
    let kept = tokio::time::timeout(Duration::from_secs(4), short.lost()).await;
    assert!(kept.is_err(), "{kept:?}");
    short.release().await.expect("released");
    alone.release().await.expect("released");
    first.release().await.expect("released");
    waiting
        .await
        .expect("the task runs")
        .expect("granted")
        .release()
        .await
        .expect("released");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    for name in ["alone", "queue", "short"] {
        assert!(
            locks.inspect(name).await.expect("read").entries.is_empty(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn too_few_replicas_to_write_are_reported() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = locks.mutex("a").acquire().await.expect_err("refused");
    check(&error, Error::is_unavailable, "bring the replicas back");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    drop(hold(&locks, "a").await);
}

#[tokio::test]
async fn grant_without_its_replicas_is_given_back() {
    let master = Redis::start();
    let locks = open(&format!("{}?replicas=1", master.url())).await;
    let lock = locks.mutex("a").lease(Duration::from_secs(12));
    check(
        &lock.acquire().await.expect_err("a replica is missing"),
        Error::is_unavailable,
        "only 0 of 1 replicas",
    );
    assert!(
        locks.inspect("a").await.expect("read").entries.is_empty(),
        "the grant was kept"
    );
    let replica = Redis::setup().replica_of(&master).start();
    replica.in_step_with(&master);
    let held = lock.acquire().await.expect("granted");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while locks.inspect("a").await.expect("read").waiters().count() == 0 {
        tokio::task::yield_now().await;
    }
    held.release().await.expect("released");
    waiting
        .await
        .expect("the task runs")
        .expect("handed over")
        .release()
        .await
        .expect("released");
}

#[tokio::test]
async fn busy_script_is_reported() {
    let server = Redis::configured(&[("busy-reply-threshold", "50")]);
    let locks = open(&server.url()).await;
    let mut other = server.connection();
    other
        .send(&lab_servers::request(&["EVAL", "while true do end", "0"]))
        .expect("sent");
    while !matches!(server.request(&["PING"]), Reply::Error(busy) if busy.starts_with("BUSY")) {}
    check(
        &locks.mutex("a").acquire().await.expect_err("busy"),
        Error::is_unavailable,
        "SCRIPT KILL",
    );
    server.command(&["SCRIPT", "KILL"]);
    drop(hold(&locks, "a").await);
}

/// Sends the result of `reply` for the words of each request.
fn fake_server(reply: fn(&str) -> String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("the listener has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut lock_states =
                    BufReader::new(stream.try_clone().expect("the stream is cloned"))
                        .lines()
                        .map_while(Result::ok);
                let mut stream = stream;
                while let Some(count) = lock_states
                    .next()
                    .and_then(|line| line.strip_prefix('*')?.parse::<usize>().ok())
                {
                    let words: Vec<String> =
                        (0..count).filter_map(|_| lock_states.nth(1)).collect();
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    if stream
                        .write_all(reply(&words.join(" ")).as_bytes())
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    format!("redis://:hunter2@{address}")
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn old(request: &str) -> String {
    match request.split(' ').next().unwrap_or_default() {
        "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
        "SUBSCRIBE" => format!(">3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(&request[10..])),
        "INFO" => bulk("redis_version:5.0.14\r\n"),
        _ => "+OK\r\n".to_owned(),
    }
}

#[tokio::test]
async fn old_servers_are_refused() {
    check(
        &refused(&fake_server(old)).await,
        Error::is_unsupported,
        "6.2 or newer",
    );
}

/// A server that passes the handshake as far as its scripts. `role` and `eval` are its replies to
/// INFO and EVAL.
fn other_server(request: &str, role: &str, eval: &str) -> String {
    match request.split(' ').next().unwrap_or_default() {
        "INFO" => bulk(&format!(
            "redis_version:7.4.0\r\nmaxmemory:0\r\nrole:{role}\r\n"
        )),
        "TIME" => format!("*2\r\n{}{}", bulk("1700000000"), bulk("0")),
        "EVALSHA" => "-NOSCRIPT No matching script.\r\n".to_owned(),
        "EVAL" => eval.to_owned(),
        _ => old(request),
    }
}

/// Dragonfly refuses undeclared keys.
#[tokio::test]
async fn server_that_refuses_undeclared_keys_is_unsupported() {
    let dragonfly = |request: &str| {
        other_server(
            request,
            "master",
            "-ERR script tried accessing undeclared key\r\n",
        )
    };
    check(
        &refused(&fake_server(dragonfly)).await,
        Error::is_unsupported,
        "does not run scripts as Redis does",
    );
}

#[tokio::test]
async fn server_with_another_lua_is_unsupported() {
    let raises = |request: &str| {
        let error = "-ERR bad argument #2 to 'format' (number has no integer representation) \
            script: on @user_script:11.\r\n";
        other_server(request, "master", error)
    };
    check(
        &refused(&fake_server(raises)).await,
        Error::is_unsupported,
        "does not run scripts as Redis does",
    );

    let counts_otherwise =
        |request: &str| other_server(request, "master", &bulk("false string 3 5.0 42.0 ab"));
    check(
        &refused(&fake_server(counts_otherwise)).await,
        Error::is_unsupported,
        "does not run scripts as Redis does",
    );
}

/// `KeyDB` has this role on a server if clients of other servers write the same data.
#[tokio::test]
async fn active_replica_is_unsupported() {
    let keydb = |request: &str| other_server(request, "active-replica", "+OK\r\n");
    check(
        &refused(&fake_server(keydb)).await,
        Error::is_unsupported,
        "the server's role is active-replica",
    );
}

/// Ends all connections of other clients than the one that sends the request.
fn kill_clients(admin: &mut lab_servers::Raw) {
    for kind in ["normal", "pubsub"] {
        let reply = admin
            .request(&["CLIENT", "KILL", "TYPE", kind])
            .expect("the server replies");
        assert!(!reply.is_error(), "{reply:?}");
    }
}

/// Waits until the server has replied on connections that were made since `kill_clients`.
async fn reconnected(locks: &Locks, server: &Redis) {
    let reconnects = async {
        while locks.mutex("probe").try_acquire().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(10), reconnects).await;
    assert!(
        done.is_ok(),
        "the client did not reconnect within ten seconds: {}",
        server.log()
    );
}

#[tokio::test]
async fn hold_survives_a_rotated_password_in_its_file() {
    let server = Redis::setup().password("hunter2").start();
    let mut admin = server.connection();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "hunter2\n").expect("written");
    let locks = open(&format!(
        "redis://{}?crash-grace=3s&password-file={}",
        server.address(),
        file.display()
    ))
    .await;
    let held = hold(&locks, "a").await;

    for password in ["hunter2-second", "hunter2-third"] {
        let reply = admin
            .request(&["CONFIG", "SET", "requirepass", password])
            .expect("the server replies");
        assert!(!reply.is_error(), "{reply:?}");
        std::fs::write(&file, format!("{password}\n")).expect("written");
        kill_clients(&mut admin);
        reconnected(&locks, &server).await;

        let lost = tokio::time::timeout(Duration::from_secs(4), held.lost()).await;
        assert!(
            lost.is_err(),
            "lost after the rotation to {password}: {lost:?}"
        );
    }
    held.release().await.expect("released");
}

/// A reconnect does not read the file of authorities again, even if the file has changed or is
/// missing. Only a rejection of the server causes another read.
#[tokio::test]
async fn authorities_are_read_again_only_after_a_rejection() {
    let server = Redis::setup().tls().start();
    let mut admin = server.connection();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = folder.path().join("ca.pem");
    let url = format!("{}?ca={}", server.tls_url(), ca.display());

    std::fs::copy(server.other_ca_file(), &ca).expect("copied");
    check(
        &refused(&url).await,
        Error::is_denied,
        "certificate is not accepted",
    );
    std::fs::copy(server.ca_file(), &ca).expect("copied");
    let locks = open(&url).await;
    let held = hold(&locks, "a").await;

    std::fs::remove_file(&ca).expect("removed");
    kill_clients(&mut admin);
    reconnected(&locks, &server).await;
    held.release().await.expect("released");
}

#[tokio::test]
async fn loading_servers_are_reported() {
    let loading = |_: &str| "-LOADING Redis is loading the dataset in memory\r\n".to_owned();
    check(
        &refused(&fake_server(loading)).await,
        Error::is_unavailable,
        "still loading",
    );
}

#[tokio::test]
async fn other_services_are_refused() {
    let other = |_: &str| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned();
    check(
        &refused(&fake_server(other)).await,
        Error::is_unavailable,
        "",
    );
    check(
        &refused("redis://:hunter2@127.0.0.1:1").await,
        Error::is_unavailable,
        "check host and port",
    );
    check(
        &refused("redis+unix:///nowhere/redis.sock").await,
        Error::is_unavailable,
        "check the path",
    );
    check(
        &refused("redis://:hunter2@no.such.host.invalid").await,
        Error::is_unavailable,
        "check host and port",
    );
}

#[tokio::test]
async fn untrusted_certificates_are_refused() {
    let server = Redis::setup().tls().start();
    let ca = server.ca_file();
    let other = server.other_ca_file();
    let with = |url: String, ca: &std::path::Path| format!("{url}?ca={}", ca.display());
    let locks = open(&with(server.tls_url(), &ca)).await;
    let held = hold(&locks, "a").await;
    assert!(
        locks
            .mutex("a")
            .try_acquire()
            .await
            .expect("replied")
            .is_none()
    );
    held.release().await.expect("released");
    check(
        &refused(&with(server.tls_url(), &other)).await,
        Error::is_denied,
        "certificate is not accepted",
    );
    check(
        &refused(&server.tls_url()).await,
        Error::is_denied,
        "certificate is not accepted",
    );
    let elsewhere = format!("rediss://[::ffff:127.0.0.1]:{}", server.tls_port());
    check(
        &refused(&with(elsewhere, &ca)).await,
        Error::is_denied,
        "certificate is not accepted",
    );
    let plain = format!("rediss://localhost:{}", server.port());
    check(
        &refused(&with(plain, &ca)).await,
        |error| error.is_unavailable() || error.is_denied(),
        "",
    );
    let nothing = server.folder().join("redis.conf");
    check(
        &refused(&with(server.tls_url(), &nothing)).await,
        Error::is_invalid,
        "authority",
    );
}
