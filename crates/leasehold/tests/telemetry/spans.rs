use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use lab_servers::Redis;
use leasehold::store::{Claim, Store};
use leasehold::store::{Intercept, Intercepted};
use leasehold::{Locks, Result, stores::Memory};
use tracing::{Instrument, info_span};

use crate::capture::{self, Recorded};
use crate::document;

fn memory() -> Locks {
    Locks::from_store(Memory::new(), "memory:").unwrap()
}

pub(crate) fn find<'a>(all: &'a [Recorded], name: &str) -> &'a Recorded {
    let found = all.iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("{name:?} is not in {all:#?}"))
}

#[tokio::test]
async fn release_is_inside_hold_and_hold_inside_the_callers_span() {
    capture::start();
    let locks = memory();
    let request = async {
        let guard = locks.mutex("nested").acquire().await.unwrap();
        guard.release().await.unwrap();
    };
    request.instrument(info_span!("request")).await;

    let all = capture::of_lock("nested");
    let parents = ["acquire", "granted", "released", "release", "hold"].map(|name| {
        let one = find(&all, name);
        (name, one.parent.unwrap_or("none"))
    });
    let expected = [
        ("acquire", "request"),
        ("granted", "acquire"),
        ("released", "release"),
        ("release", "hold"),
        ("hold", "request"),
    ];
    assert_eq!(parents, expected);
    assert_eq!(find(&all, "acquire").field("token"), "1");
    assert_eq!(find(&all, "hold").field("otel.status_code"), "");
}

#[tokio::test]
async fn waiter_has_its_position_and_its_wait() {
    capture::start();
    let locks = memory();
    let holder = locks.mutex("queued").acquire().await.unwrap();
    let wait = Duration::from_millis(60);
    let refused = locks.mutex("queued").try_acquire_for(wait).await.unwrap();
    assert!(refused.is_err());
    holder.release().await.unwrap();

    let all = capture::of_lock("queued");
    let waited = all
        .iter()
        .find(|one| one.field("position") == "2")
        .expect("the waiter has a position");
    let wait_ms: u64 = waited.field("wait_ms").parse().unwrap();
    assert!((60..10_000).contains(&wait_ms), "{waited:?}");
}

#[tokio::test]
async fn lost_hold_is_an_error_with_its_reason() {
    capture::start();
    let lock = memory().mutex("lost").max_hold(Duration::from_millis(50));
    let guard = lock.acquire().await.unwrap();
    guard.lost().await;

    // The span of a lost hold ends with the loss, although its guard exists.
    let all = capture::of_lock("lost");
    let hold = find(&all, "hold");
    assert_eq!(hold.field("error.type"), "max_hold_exceeded");
    assert_eq!(hold.field("otel.status_code"), "ERROR");
    assert_eq!(find(&all, "lost").parent, Some("hold"));
    drop(guard);
}

/// Forgets each claim that it grants to a waiter, once.
#[derive(Debug, Default)]
struct Forgetful {
    store: Memory,
    forgotten: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl Intercept for Forgetful {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let is_waiter = claims.iter().any(|claim| claim.info.label == "waiter");
        if is_waiter
            && !self
                .forgotten
                .swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            Store::leave(&self.store, &claims[0]).await?;
        }
        self.store.renew(claims).await
    }
}

#[tokio::test]
async fn missed_hand_over_is_a_warning_and_the_waiter_is_granted_later() {
    missed_hand_over("missed").await;

    let all = capture::of_lock("missed");
    let missed = find(&all, "hand-over missed");
    assert_eq!(missed.level, tracing::Level::WARN);
    assert_eq!(missed.parent, Some("acquire"));
}

pub(crate) async fn missed_hand_over(name: &str) {
    capture::start();
    let locks = Locks::from_store(Intercepted(Forgetful::default()), "memory:").unwrap();
    let holder = locks.mutex(name).acquire().await.unwrap();
    // A fixed lease begins at its grant, so the client confirms the grant with a renewal.
    let waiter = locks.mutex(name).label("waiter").no_renewal();
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    while locks.inspect(name).await.unwrap().waiters().count() == 0 {
        tokio::task::yield_now().await;
    }

    holder.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Runs everything that the page describes, and compares the page with the records.
#[tokio::test]
async fn spans_and_events_are_those_of_the_document() {
    missed_hand_over("documented").await;
    lose("documented").await;
    survive_an_outage("documented").await;

    let recorded: BTreeSet<_> = capture::everything()
        .into_iter()
        .filter(|one| one.target.starts_with("leasehold_core::engine"))
        .filter(|one| one.level <= tracing::Level::INFO)
        // Other warnings of the engine name no store.
        .filter(|one| one.declared.contains(&"store"))
        .map(|one| {
            let mut fields: Vec<String> = one.declared.iter().map(|&f| f.to_owned()).collect();
            fields.sort();
            (one.name, one.level.to_string().to_lowercase(), fields)
        })
        .collect();

    let documented: BTreeSet<_> = document::rows("Traces")
        .into_iter()
        .filter(|row| row.len() == 3)
        .map(|row| (row[0].clone(), row[1].clone(), document::list(&row[2])))
        .collect();
    assert_eq!(recorded, documented);
}

async fn lose(name: &str) {
    let lock = memory().mutex(name).max_hold(Duration::from_millis(20));
    let guard = lock.acquire().await.unwrap();
    guard.lost().await;
}

async fn survive_an_outage(name: &str) {
    let server = Redis::start();
    let locks = leasehold::open(&format!("{}?crash-grace=2s", server.url()))
        .await
        .unwrap();
    let guard = locks.mutex(name).acquire().await.unwrap();
    server.pause();
    capture_has("store unreachable").await;
    server.resume();
    // The hold may be lost by then, and a lost hold sends no more requests.
    while locks.inspect(name).await.is_err() {}
    capture_has("store reachable again").await;
    // A drain would wait for the claims that other tests have left on killed servers.
    let _is_lost = guard.release().await;
}

async fn capture_has(message: &str) {
    while !capture::everything().iter().any(|one| one.name == message) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn password_is_in_no_span_and_no_event() {
    capture::start();
    let secret = "correct-horse-battery";
    let mut server = Redis::setup().password(secret).start();
    let url = server.url();
    let with_password = |word: &str| {
        let url = url.replace("redis://", &format!("redis://:{word}@"));
        format!("{url}?crash-grace=2s")
    };

    let locks = leasehold::open(&with_password(secret)).await.unwrap();
    let guard = locks.mutex("secret").acquire().await.unwrap();
    server.kill();
    let error = locks.mutex("secret 2").try_acquire().await.unwrap_err();
    assert!(error.is_unavailable());
    guard.lost().await;
    server.restart();
    locks.inspect("secret").await.unwrap();

    let denied = leasehold::open(&with_password("wrong-staple")).await;
    assert!(denied.unwrap_err().is_denied());

    let all = capture::everything();
    assert!(all.iter().any(|one| one.name == "lost"), "it was recorded");
    let text = format!("{all:?}");
    assert!(!text.contains(secret) && !text.contains("wrong-staple"));
}
