//! Passwords and certificates, and their rotation.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lab_servers::Redis;
use leasehold::{Error, Locks, stores};

use super::{check, hold, open, refused};

/// Shows G-28.
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

/// Without a login, the client would act as the user `default`.
///
/// Shows G-28.
#[tokio::test]
async fn user_without_a_password_logs_in() {
    let server = Redis::setup().acl("me on nopass ~* &* +@all").start();
    for setting in ["", "?protocol=2"] {
        let _locks = open(&format!("redis://me@{}{setting}", server.address())).await;
        let clients = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let is_of = |user: &str| clients.text().contains(&format!(" user={user} "));
        assert!(is_of("me") && !is_of("default"), "{setting}: {clients:?}");
    }
    check(
        &refused(&format!("redis://nobody@{}", server.address())).await,
        Error::is_denied,
        "does not accept the user name and password",
    );
}

/// A server that does not know a command replies with its arguments.
///
/// Shows G-28, G-35.
#[tokio::test]
async fn password_that_a_server_repeats_is_not_in_the_error() {
    let setup = Redis::setup().config("rename-command", "AUTH ''");
    let server = setup.config("rename-command", "HELLO ''").start();
    for setting in ["", "?protocol=2", "?dialect=plain"] {
        check(
            &refused(&format!("redis://me:hunter2@{}{setting}", server.address())).await,
            Error::is_unsupported,
            "unknown command 'AUTH'",
        );
    }
}

/// Ends all connections of other clients than the one that sends the request.
pub(super) fn kill_clients(admin: &mut lab_servers::Raw) {
    for kind in ["normal", "pubsub"] {
        let reply = admin
            .request(&["CLIENT", "KILL", "TYPE", kind])
            .expect("the server replies");
        assert!(!reply.is_error(), "{reply:?}");
    }
}

/// Waits until the server has replied on connections that were made since `kill_clients`.
pub(super) async fn reconnected(locks: &Locks, server: &Redis) {
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

/// Shows G-25.
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

/// A reconnect reads the file of authorities again. If the file is missing, the earlier authorities
/// count.
///
/// Shows G-25.
#[tokio::test]
async fn reconnect_survives_a_missing_file_of_authorities() {
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

/// Shows G-28.
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
            .is_err()
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

/// Each new connection calls the function of the program, whose tokens expire.
///
/// Shows G-25.
#[tokio::test]
async fn hold_survives_an_expired_password_of_a_function() {
    let server = Redis::setup().password("hunter2").start();
    let mut admin = server.connection();
    let token = Arc::new(Mutex::new("hunter2".to_owned()));
    let url = format!("redis://{}?crash-grace=3s", server.address());
    let builder = stores::Redis::builder(&url);
    let latest = Arc::clone(&token);
    let builder = builder.expect("a valid URL").password_from(move || {
        // As a file ends in an editor.
        let latest = latest.lock().expect("no panic");
        Ok::<_, String>(format!("{latest}\n"))
    });
    let url = builder.url();
    assert!(!format!("{builder:?} {url}").contains("hunter"));
    let store = builder.connect().await.expect("the password is right");
    let locks = Locks::from_store(store, &url).expect("the background thread runs");
    let held = hold(&locks, "a").await;

    let reply = admin
        .request(&["CONFIG", "SET", "requirepass", "hunter2-second"])
        .expect("the server replies");
    assert!(!reply.is_error(), "{reply:?}");
    *token.lock().expect("no panic") = "hunter2-second".to_owned();
    kill_clients(&mut admin);
    reconnected(&locks, &server).await;

    let lost = tokio::time::timeout(Duration::from_secs(4), held.lost()).await;
    assert!(lost.is_err(), "lost after the rotation: {lost:?}");
    held.release().await.expect("released");
}

/// Shows G-28.
#[tokio::test]
async fn failed_function_for_the_password_is_unavailable() {
    let server = Redis::start();
    let at = server.address();
    let failing = || Err("no token");
    let valid = "a valid URL";

    let single = stores::Redis::builder(&format!("redis://{at}")).expect(valid);
    let cluster = stores::Redis::builder(&format!("redis+cluster://{at}")).expect(valid);
    let plain = stores::RedisPlain::builder(&format!("redis://{at}?dialect=plain")).expect(valid);
    let redisson = format!("redis://{at}?dialect=redisson");
    let redisson = stores::Redisson::builder(&redisson).expect(valid);
    let masters = format!("redlock://{at},127.0.0.2:1,127.0.0.3:1");
    let redlock = stores::Redlock::builder(&masters).expect(valid);
    for error in [
        single.password_from(failing).connect().await.map(drop),
        cluster.password_from(failing).connect().await.map(drop),
        plain.password_from(failing).connect().await.map(drop),
        redisson.password_from(failing).connect().await.map(drop),
        redlock.password_from(failing).connect().await.map(drop),
    ] {
        let error = error.expect_err("no password");
        check(
            &error,
            Error::is_unavailable,
            "the function for the password failed: no token",
        );
    }
}
