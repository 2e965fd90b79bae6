//! Waiting for the single-key lock: by polling, and by keyspace notifications where the server
//! publishes them.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use lab_servers::Redis;
use leasehold::{Guard, Locks, LossReason, Name, Result};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const DEADLINE: Duration = Duration::from_secs(30);
/// The script with which redis-py and other libraries release a lock.
const RELEASE: &str = "\
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0";

/// Its value is all that the format has of a holder.
#[tokio::test]
async fn refusal_by_another_library_shows_its_value() {
    let redis = Redis::start();
    for (value, shown) in [("theirs", "theirs"), ("\u{1}\n", "")] {
        redis.command(&["SET", "a", value, "PX", "60000"]);
        let url = format!("redis://{}?dialect=plain", redis.address());
        let locks = leasehold::open(&url).await.expect("it opens");

        let tried = locks.mutex("a").try_acquire().await.expect("it replies");
        let refused = tried.expect_err("it is held");
        let label = refused.holders.first().map(|entry| &*entry.info.label);
        assert!(label.unwrap_or_default().contains(shown), "{refused}");
        assert!(
            refused.to_string().starts_with("\"a\" is held"),
            "{refused}"
        );
    }
}

/// The key was the lock: another client may have held it since.
///
/// Shows G-01.
#[tokio::test]
async fn renewal_does_not_restore_a_key_that_was_deleted() {
    let redis = Redis::start();
    let url = format!("{}?dialect=plain", redis.url());
    let locks = leasehold::open(&url).await.expect("it opens");
    let lock = locks.mutex("a").lease(Duration::from_secs(2));
    let held = lock.acquire().await.expect("granted");
    redis.command(&["DEL", "a"]);

    let lost = timeout(DEADLINE, held.lost()).await;
    assert_eq!(lost, Ok(LossReason::Revoked));
    assert_eq!(redis.command(&["EXISTS", "a"]).int(), 0);
}

/// Locks of other libraries have values of known shapes. Any other value, which may be empty, holds
/// a lock too, but may be no lock.
#[tokio::test]
async fn value_of_any_shape_is_shown_and_those_of_known_shapes_are_listed() {
    let redis = Redis::start();
    let url = format!("{}?dialect=plain", redis.url());
    let locks = leasehold::open(&url).await.expect("it opens");
    let _own = locks.mutex("own").acquire().await.expect("granted");
    for (key, value) in [
        ("theirs", "9a8e4c7a6f1211efb2c50242ac120002"),
        ("empty", ""),
    ] {
        redis.command(&["SET", key, value, "PX", "60000"]);
    }

    redis.command(&["SET", "for ever", ""]);

    for (name, has_end) in [
        ("own", true),
        ("theirs", true),
        ("empty", true),
        ("for ever", false),
    ] {
        let shown = locks.inspect(name).await.expect("it replies");
        let ends: Vec<bool> = shown.holders().map(|it| it.lease_left.is_some()).collect();
        assert_eq!(ends, [has_end], "{name}");
    }
    let listed = locks.list("", 9).await.expect("it replies");
    let listed: Vec<&str> = listed.iter().map(Name::as_str).collect();
    assert_eq!(listed, ["own", "theirs"]);
}

/// A server on which another library holds the lock, and a claim of leasehold that waits for it.
struct Fixture {
    redis: Redis,
    waiting: JoinHandle<Result<Guard>>,
}

impl Fixture {
    async fn begin(redis: Redis, user: &str, settings: &str) -> Self {
        assert_eq!(
            redis
                .command(&["SET", "a", "theirs", "NX", "PX", "60000"])
                .text(),
            "OK"
        );
        let url = format!("redis://{user}{}?dialect=plain{settings}", redis.address());
        let locks: Locks = leasehold::open(&url).await.expect("it opens");
        let waiting = tokio::spawn(async move { locks.mutex("a").acquire().await });
        Self { redis, waiting }
    }

    fn requests(&self) -> u64 {
        let about = self.redis.info("commandstats");
        let calls = about.lines().find_map(|line| {
            line.strip_prefix("cmdstat_evalsha:calls=")?
                .split(',')
                .next()?
                .parse()
                .ok()
        });
        calls.unwrap_or(0)
    }

    fn listens(&self) -> bool {
        self.redis
            .command(&["PUBSUB", "NUMSUB", "__keyspace@0__:a"])
            .list()[1]
            .int()
            > 0
    }

    /// Waits until the waiter has sent this number of requests, each after a longer pause.
    async fn has_requested(&self, times: u64) {
        let begun = Instant::now();
        while self.requests() < times {
            assert!(begun.elapsed() < DEADLINE, "the waiter does not poll");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for the grant, and returns how long the grant took.
    async fn granted(self) -> Duration {
        let begun = Instant::now();
        let waited = tokio::time::timeout(DEADLINE, self.waiting).await;
        let guard = waited.expect("in time").expect("it runs").expect("granted");
        let waited = begun.elapsed();
        guard.release().await.expect("released");
        waited
    }
}

fn release(redis: &Redis) {
    assert_eq!(
        redis.command(&["EVAL", RELEASE, "1", "a", "theirs"]).int(),
        1
    );
}

/// After seven requests the waiter pauses for at least 160 ms. A grant within 100 ms shows that the
/// notification ended the pause. On a busy machine half of the rounds are enough.
async fn is_woken(settings: &str, free: fn(&Redis)) {
    const ROUNDS: usize = 4;
    let mut soon = 0;
    for _ in 0..ROUNDS {
        let redis = Redis::configured(&[("notify-keyspace-events", "Kgx"), ("hz", "500")]);
        let fixture = Fixture::begin(redis, "", settings).await;
        fixture.has_requested(7).await;
        assert!(fixture.listens());
        free(&fixture.redis);
        soon += usize::from(fixture.granted().await < Duration::from_millis(100));
    }
    assert!(soon >= ROUNDS / 2, "only {soon} of {ROUNDS} times");
}

#[tokio::test]
async fn waiter_is_notified_of_release_by_another_library() {
    is_woken("", release).await;
}

#[tokio::test]
async fn waiter_is_notified_on_a_separate_resp2_connection() {
    is_woken("&protocol=2", release).await;
}

/// The other library's lease ends earlier than the waiter expects.
#[tokio::test]
async fn waiter_is_notified_of_an_expired_lease() {
    is_woken("", |redis| drop(redis.command(&["PEXPIRE", "a", "1"]))).await;
}

/// The waiter does not subscribe, and polls as it does without notifications.
#[tokio::test]
async fn waiter_polls_without_keyspace_events() {
    for events in ["\"\"", "Ex", "Kl"] {
        let fixture = Fixture::begin(
            Redis::configured(&[("notify-keyspace-events", events)]),
            "",
            "",
        )
        .await;
        fixture.has_requested(12).await;
        assert!(!fixture.listens(), "{events}");
        release(&fixture.redis);
        fixture.granted().await;
    }
}

/// A user without the permission to subscribe still gets the lock.
#[tokio::test]
async fn waiter_polls_without_subscribe_permission() {
    let redis = Redis::setup()
        .config("notify-keyspace-events", "KEA")
        .acl("app on >secret resetchannels &leasehold:* ~* -@admin +@all")
        .start();
    let fixture = Fixture::begin(redis, "app:secret@", "").await;
    fixture.has_requested(12).await;
    assert!(!fixture.listens());
    release(&fixture.redis);
    fixture.granted().await;
}

/// The subscription ends with the wait, even if the wait timed out.
#[tokio::test]
async fn subscription_ends_with_the_wait() {
    let redis = Redis::configured(&[("notify-keyspace-events", "KA")]);
    redis.command(&["SET", "a", "theirs"]);
    let locks = leasehold::open(&format!("{}?dialect=plain", redis.url()))
        .await
        .expect("it opens");
    assert!(
        locks
            .mutex("a")
            .try_acquire_for(Duration::from_millis(200))
            .await
            .expect("asked")
            .is_err()
    );
    let begun = Instant::now();
    while !redis
        .command(&["PUBSUB", "CHANNELS", "__keyspace*"])
        .list()
        .is_empty()
    {
        assert!(begun.elapsed() < DEADLINE, "the subscription remains");
        sleep(Duration::from_millis(1)).await;
    }
}
