//! Servers that leasehold does not support, or cannot reach.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use lab_servers::Redis;
use leasehold::Error;
use tokio::io::AsyncReadExt as _;

use super::{check, hold, open, refused};

/// Shows G-28.
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

/// Listens, and lets `serve` serve each connection until it returns.
fn service(serve: fn(TcpStream) -> std::io::Result<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("the listener has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The client may have closed the connection.
            let _ = serve(stream);
        }
    });
    format!("redis://{address}")
}

/// A server that refuses a connection says why, and closes it before it has read a request.
///
/// Shows G-28.
#[tokio::test]
async fn last_words_of_a_server_are_in_the_error() {
    type IsKind = fn(&Error) -> bool;
    let cases: [(_, IsKind, _); 2] = [
        (
            service(|mut stream| stream.write_all(b"-ERR max number of clients reached\r\n")),
            Error::is_unavailable,
            "raise its maxclients",
        ),
        (
            service(|mut stream| stream.write_all(b"-DENIED Redis is protected. In this\r\n")),
            Error::is_denied,
            "set a password on the server",
        ),
    ];
    for (url, is_kind, part) in cases {
        for settings in ["", "?protocol=2", "?dialect=plain", "?dialect=redisson"] {
            check(&refused(&format!("{url}{settings}")).await, is_kind, part);
        }
    }
}

/// A proxy refuses HELLO, and takes the connection for that of a subscriber of RESP2, to which it
/// replies nothing more.
#[tokio::test]
async fn refused_hello_is_followed_by_resp2_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("the listener has an address");
    let (seen, logins) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1024];
            let count = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            // The login has two more requests, whose replies do not matter.
            let unknown = b"-ERR unknown command 'HELLO'\r\n-ERR no\r\n-ERR no\r\n";
            let _ = stream.write_all(unknown);
            open.push(stream);
            if seen.send(request).is_err() {
                return;
            }
        }
    });

    let opening = tokio::spawn(async move { leasehold::open(&format!("redis://{address}")).await });
    let resp2 = tokio::task::spawn_blocking(move || {
        let next = || logins.recv_timeout(lab_servers::DEADLINE).ok();
        std::iter::from_fn(next).any(|login| !login.contains("HELLO"))
    });
    assert!(resp2.await.expect("it runs"), "RESP2 is not tried");
    opening.abort();
}

/// A server accepts connections and does not reply, as one that is stopped.
#[tokio::test]
async fn dropped_opening_ends_the_connection_whose_login_has_no_reply() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("the listener has an address");
    let url = format!("redis://:hunter2@{address}");
    let opening = tokio::spawn(async move { leasehold::open(&url).await });
    let (mut stream, _) = listener.accept().await.expect("it connects");
    stream.read_u8().await.expect("the login begins");

    opening.abort();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(lab_servers::DEADLINE, stream.read_to_end(&mut rest)).await;
    let ended = ended.expect("the connection stays open");
    ended.expect("the client closes it");
}

/// Sends an alert of TLS in place of the rest of the handshake.
fn alert(mut stream: TcpStream, description: u8) -> std::io::Result<()> {
    stream.read(&mut [0; 4096]).map(drop)?;
    stream.write_all(&[21, 3, 3, 0, 2, 2, description])
}

/// Only some alerts concern the certificate of the client.
///
/// Shows G-28.
#[tokio::test]
async fn alert_of_a_server_is_reported_with_its_remedy() {
    let unknown_authority = service(|stream| alert(stream, 48));
    let unknown_name = service(|stream| alert(stream, 112));
    let old_version = service(|stream| alert(stream, 70));
    let internal_error = service(|stream| alert(stream, 80));
    let with_tls = |url: String| url.replace("redis://", "rediss://");

    let error = refused(&with_tls(unknown_authority)).await;
    check(&error, Error::is_denied, "cert=/path/to/cert.pem");
    let error = refused(&with_tls(unknown_name)).await;
    check(&error, Error::is_denied, "server-name=");
    let error = refused(&with_tls(old_version)).await;
    check(&error, Error::is_unsupported, "no TLS 1.2 or 1.3");
    let error = refused(&with_tls(internal_error)).await;
    check(&error, Error::is_unavailable, "InternalError");
}

/// As a proxy does that does not know a command.
///
/// Shows G-26.
#[tokio::test]
async fn service_that_closes_each_connection_is_named() {
    let at_login = service(|mut stream| stream.read(&mut [0; 1024]).map(drop));
    let at_subscribe = service(|mut stream| {
        stream.write_all(b"+OK\r\n+OK\r\n")?;
        let mut received = String::new();
        let mut reader = BufReader::new(stream);
        while !received.contains("SUBSCRIBE") {
            if reader.read_line(&mut received)? == 0 {
                return Ok(());
            }
        }
        Ok(())
    });

    for url in [
        at_login.clone(),
        format!("{at_login}?protocol=2"),
        format!("{at_subscribe}?protocol=2"),
    ] {
        let part = "a proxy or another service closes it: leasehold needs HELLO and SUBSCRIBE";
        check(&refused(&url).await, Error::is_unavailable, part);
    }
}

/// Shows G-28.
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
///
/// Shows G-28.
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

/// Shows G-28.
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
///
/// Shows G-28.
#[tokio::test]
async fn active_replica_is_unsupported() {
    let keydb = |request: &str| other_server(request, "active-replica", "+OK\r\n");
    check(
        &refused(&fake_server(keydb)).await,
        Error::is_unsupported,
        "the server's role is active-replica",
    );
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
        Error::is_unsupported,
        "the server does not speak Redis",
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
