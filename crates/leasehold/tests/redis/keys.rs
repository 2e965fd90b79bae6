//! The keys of a lock: their expiry, their damage, and the tokens in them.

use std::time::Duration;

use lab_servers::{Redis, Wire};
use leasehold_conformance::support::{eventually, within_timeout};

use super::{commands, monitor, open, requests, use_once, wait_behind};

/// Tokens are compared as numbers. The locale of the server sorts the bytes behind the tokens, but
/// it does not affect the comparison.
///
/// Shows G-04.
#[tokio::test]
async fn tokens_increase_in_any_locale() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let ahead = async |micros: u64| {
        let guard = locks.mutex("a").acquire().await.expect("granted");
        let token = guard.token().get() + micros;
        guard.release().await.expect("released");
        server.command(&[
            "SET",
            "leasehold:{a}",
            &format!("{token:016}~"),
            "PX",
            "86400000",
        ]);
        token
    };
    // The token is ahead of the clock, so that the next proposed token is one above the last token
    // that the client saw.
    for _ in 0..3 {
        ahead(1_000_000).await;
        let last = ahead(1).await;
        let guard = locks.mutex("a").acquire().await.expect("granted");
        assert!(guard.token().get() > last, "token {last} was given again");
        guard.release().await.expect("released");
    }
}

/// The reply with the server's clock may take long to arrive, so the client's copy of that clock is
/// late. After a failover, the new master may lack the tokens that the old one gave meanwhile.
#[tokio::test]
async fn token_is_not_behind_the_servers_clock() {
    const DELAY: Duration = Duration::from_millis(500);
    let server = Redis::start();
    let wire = Wire::to(server.address());
    wire.delay(DELAY);
    let late = open(&wire.url_of("redis"), "").await;
    wire.delay(Duration::ZERO);
    let locks = open(&server.url(), "").await;
    use_once(&locks.mutex("a")).await;

    // The client's proposal must exceed the last token for the fast path.
    let last = server.time();
    eventually(
        "the late copy of the clock exceeds the last token",
        async || server.time() > last + 2 * i64::try_from(DELAY.as_micros()).expect("short"),
    )
    .await;
    let before = u64::try_from(server.time()).expect("after 1970");
    let guard = late.mutex("a").acquire().await.expect("granted");
    assert!(
        guard.token().get() >= before,
        "the token is behind the clock"
    );
}

/// Keys that only renewals touch live for as long as the renewals come.
///
/// Shows G-27.
#[tokio::test]
async fn renewal_keeps_all_keys_of_a_queue() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let _held = locks
        .semaphore("a", 2)
        .lease(Duration::from_secs(1))
        .acquire()
        .await
        .expect("granted");
    for key in [
        "leasehold:{a}",
        "leasehold:{a}:claims",
        "leasehold:{a}:holders",
    ] {
        server.command(&["PEXPIRE", key, "60000"]);
        eventually(key, || async {
            server.command(&["PTTL", key]).int() > 100_000_000
        })
        .await;
    }
}

/// A user who deletes keys by hand deletes the claims in these keys too. The share that those
/// claims had taken becomes free.
#[tokio::test]
async fn deleted_claims_free_their_share() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let slot = locks.semaphore("a", 2);
    let _held = (
        slot.acquire().await.expect("granted"),
        slot.acquire().await.expect("granted"),
    );
    server.command(&["DEL", "leasehold:{a}:claims", "leasehold:{a}:holders"]);
    let _next = within_timeout("both slots are free", slot.acquire())
        .await
        .expect("granted");
}

/// A name is not mistaken for an error message.
#[tokio::test]
async fn lock_names_are_not_parsed_as_error_codes() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    for name in ["MISMATCH/1/3", "HINT", "MISMATCH", "WRONGPASS", "LARGER"] {
        server.command(&["SET", &format!("leasehold:{{{name}}}"), "something else"]);
        let error = locks.mutex(name).try_acquire().await.expect_err("foreign");
        assert!(error.is_damaged(), "{name}: {error}");
        let error = locks.inspect(name).await.expect_err("foreign");
        assert!(error.is_damaged(), "{name}: {error}");
    }
    assert_eq!(locks.list("", 9).await.expect("listed").len(), 5);
}

/// A user ran PERSIST on the key of a held lock. The lock stays held, and its key expires again.
///
/// Shows G-27.
#[tokio::test]
async fn persisted_key_stays_held_and_expires_again() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    server.command(&["PERSIST", "leasehold:{a}"]);
    assert_eq!(
        theirs.inspect("a").await.expect("read").holders().count(),
        1
    );
    assert_eq!(theirs.list("", 9).await.expect("listed").len(), 1);
    assert!(
        theirs
            .mutex("a")
            .try_acquire()
            .await
            .expect("replied")
            .is_err(),
        "two clients hold the lock"
    );
    assert!(server.command(&["PTTL", "leasehold:{a}"]).int() > 0);
    held.release().await.expect("released");
}

/// Scripts count in doubles, which cannot count beyond 2^53.
///
/// Shows G-04.
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
        let error = locks.inspect("a").await.expect_err("damaged");
        assert!(error.is_damaged(), "{error}");
        assert_eq!(server.command(&["GET", "leasehold:{a}"]).text(), state);
    }
}

/// A lock that a client with another layout holds is refused with an error that names the reason.
/// Its keys stay as they are.
///
/// Shows G-23.
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
        let refused = theirs.mutex("a").try_acquire().await.expect_err("refused");
        let unread = theirs.inspect("a").await.expect_err("refused");
        for error in [refused, unread] {
            assert!(
                error.is_unsupported() && error.to_string().contains("version of leasehold"),
                "{error}"
            );
        }
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
    use_once(&theirs.mutex("a")).await;
}

/// A user deleted the keys of a queue. The keys that a new waiter creates have an expiry.
///
/// Shows G-27.
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
            .mutex(format!("lock-{number}"))
            .lease(Duration::from_secs(6));
        held.push(lock.acquire().await.expect("granted"));
    }
    server.command(&["DEL", "leasehold:{lock-7}"]);
    server.command(&["LPUSH", "leasehold:{lock-7}", "something else"]);
    let mut monitor = monitor(&server);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let sent = requests(&commands(&server, &mut monitor));
    assert!(sent < 45, "{sent} requests");
    tokio::time::sleep(Duration::from_secs(4)).await;
    for (number, guard) in held.iter().enumerate() {
        assert_eq!(guard.check().is_ok(), number != 7, "lock-{number}");
    }
}
