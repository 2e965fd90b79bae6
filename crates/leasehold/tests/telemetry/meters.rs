use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lab_servers::Redis;
use leasehold::metrics::{ALL, label_locks};
use leasehold::store::{Claim, Entered, Intercept, Intercepted, OnContention, Store};
use leasehold::{Lock, Locks, Result, stores::Memory};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::{capture, document, spans};

/// The series recorded so far: the name and the sorted labels of each, with its value.
type Series = BTreeMap<(String, Vec<(String, String)>), f64>;

static SNAPSHOTTER: LazyLock<Snapshotter> = LazyLock::new(|| {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("it is the only recorder");
    snapshotter
});
static TOTALS: Mutex<Series> = Mutex::new(Series::new());

/// A snapshot resets all series, so the totals are kept here. The value of a histogram is the number
/// of its samples above zero.
fn series() -> Series {
    let mut totals = TOTALS.lock().unwrap();
    for (key, _unit, _description, value) in SNAPSHOTTER.snapshot().into_vec() {
        let key = key.key();
        let mut labels: Vec<_> = key
            .labels()
            .map(|label| (label.key().to_owned(), label.value().to_owned()))
            .collect();
        labels.sort();

        let total = totals.entry((key.name().to_owned(), labels)).or_default();
        match value {
            #[expect(clippy::cast_precision_loss, reason = "the tests count to ten")]
            DebugValue::Counter(more) => *total += more as f64,
            DebugValue::Gauge(now) => *total += now.0,
            #[expect(clippy::cast_precision_loss, reason = "the tests count to ten")]
            DebugValue::Histogram(samples) => {
                *total += samples.iter().filter(|sample| sample.0 > 0.0).count() as f64;
            }
        }
    }
    totals.clone()
}

/// The value of a series, or 0 if it does not exist.
fn value(name: &str, labels: &[(&str, &str)]) -> f64 {
    let mut labels: Vec<_> = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    labels.sort();
    series()
        .get(&(name.to_owned(), labels))
        .copied()
        .unwrap_or_default()
}

/// A store whose scheme, and so whose label, no other test uses.
fn store(label: &str) -> Locks {
    LazyLock::force(&SNAPSHOTTER);
    Locks::from_store(Memory::new(), &format!("{label}:")).unwrap()
}

#[tokio::test]
async fn grants_refusals_and_cancelled_waits_are_counted() {
    are_counted("counted", |lock| lock).await;
    are_counted("cohort", |lock| lock.cohort(4)).await;
}

async fn are_counted(label: &str, change: fn(Lock) -> Lock) {
    let lock = change(store(label).mutex("a"));
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_err());
    let of_state = |state| value("leasehold_claims", &[("store", label), ("state", state)]);
    let tolerance = f64::EPSILON;
    assert!((of_state("held") - 1.0).abs() < tolerance);

    let mut waiting = Box::pin(lock.acquire());
    let begun = Instant::now();
    while of_state("waiting") < 1.0 {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(30), "no claim waits");
        tokio::select! {
            biased;
            _ = &mut waiting => unreachable!("the lock is held"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(waiting);
    guard.release().await.unwrap();

    assert!(of_state("waiting").abs() < tolerance && of_state("held").abs() < tolerance);
    for outcome in ["granted", "refused", "cancelled"] {
        let labels = [("store", label), ("lock", "other"), ("outcome", outcome)];
        let count = value("leasehold_acquires_total", &labels);
        assert!((count - 1.0).abs() < tolerance, "{outcome}: {count}");
    }
    let labels = [("store", label), ("lock", "other")];
    assert!((value("leasehold_hold_seconds", &labels) - 1.0).abs() < tolerance);
    assert!((value("leasehold_queue_length", &labels) - 1.0).abs() < tolerance);
}

#[tokio::test]
async fn lock_name_is_a_label_only_if_a_pattern_allows_it() {
    label_locks(["nightly", "orders/*"]);
    let locks = store("labelled");
    for name in ["nightly", "nightly2", "orders/1", "orders/2", "secret"] {
        let guard = locks.mutex(name).acquire().await.unwrap();
        guard.release().await.unwrap();
    }

    let labels: BTreeMap<String, f64> = series()
        .into_iter()
        .filter(|((name, labels), _)| {
            name == "leasehold_wait_seconds"
                && labels.contains(&("store".to_owned(), "labelled".to_owned()))
        })
        .map(|((_, labels), count)| (labels[0].1.clone(), count))
        .collect();
    let expected = [("nightly", 1.0), ("orders/*", 2.0), ("other", 2.0)]
        .map(|(label, count)| (label.to_owned(), count));
    assert_eq!(labels, BTreeMap::from(expected));
}

#[tokio::test]
async fn hold_that_is_gone_at_the_release_is_lost() {
    capture::start();
    LazyLock::force(&SNAPSHOTTER);
    let locks = Locks::from_store(Intercepted(Forgetful(Memory::new())), "ended:").unwrap();
    let guard = locks.mutex("ended before").acquire().await.unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    let job = locks.once("ended job").id("1").acquire().await.unwrap();
    assert!(job.unwrap().complete().await.unwrap_err().is_lost());

    let labels = [("store", "ended"), ("lock", "other"), ("reason", "revoked")];
    let losses = value("leasehold_losses_total", &labels);
    assert!((losses - 2.0).abs() < f64::EPSILON, "{losses}");
    for name in ["ended before", "ended job"] {
        let all = capture::of_lock(name);
        assert!(all.iter().all(|one| one.name != "released"), "{all:#?}");
        for name in ["lost", "hold", "release"] {
            let one = spans::find(&all, name);
            assert_eq!(one.field("error.type"), "revoked", "{name}");
        }
    }
}

/// Forgets each claim that it grants.
#[derive(Debug)]
struct Forgetful(Memory);

#[async_trait]
impl Intercept for Forgetful {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let entered = self.0.enter(claim, on_contention).await?;
        self.0.leave(claim).await?;
        Ok(entered)
    }
}

/// The acquire of numbered slots ends with its numbers, not with the semaphore.
#[tokio::test]
async fn numbers_that_are_held_elsewhere_are_a_refusal() {
    let locks = store("numbered");
    let semaphore = locks.semaphore("n", 2).numbered();
    let both = ["n/slot/0", "n/slot/1"].map(|name| locks.mutex(name));
    let numbers = leasehold::multi_lock(both).acquire().await.unwrap();
    for _ in 0..3 {
        assert!(semaphore.try_acquire().await.unwrap().is_err());
    }
    numbers.release().await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();

    for outcome in ["granted", "refused"] {
        let labels = [
            ("store", "numbered"),
            ("lock", "other"),
            ("outcome", outcome),
        ];
        let count = value("leasehold_acquires_total", &labels);
        assert!((count - 3.0).abs() < f64::EPSILON, "{outcome}: {count}");
    }
}

/// Records each metric at least once, and compares names and labels with the table and the page.
#[tokio::test]
async fn metrics_are_those_of_the_table_and_of_the_document() {
    lose_and_miss(&store("documented")).await;
    spans::missed_hand_over("metered").await;
    reconnect().await;

    let recorded: BTreeSet<(String, Vec<String>)> = series()
        .into_keys()
        .map(|(name, labels)| (name, labels.into_iter().map(|(key, _)| key).collect()))
        .collect();
    let listed = ALL.iter().map(|metric| {
        let mut labels: Vec<String> = metric.labels.iter().map(|&l| l.to_owned()).collect();
        labels.sort();
        (metric.name.to_owned(), labels)
    });
    assert_eq!(recorded, listed.collect());

    let documented = document::rows("Metrics of a program")
        .into_iter()
        .map(|row| {
            let labels = row[2].split(", ").map(str::to_owned).collect();
            (row[0].clone(), row[1].clone(), labels, row[3].clone())
        });
    let listed = ALL.iter().map(|metric| {
        let labels: Vec<String> = metric.labels.iter().map(|&l| l.to_owned()).collect();
        let kind = format!("{:?}", metric.kind).to_lowercase();
        (
            metric.name.to_owned(),
            kind,
            labels,
            metric.description.to_owned(),
        )
    });
    assert_eq!(documented.collect::<Vec<_>>(), listed.collect::<Vec<_>>());
}

async fn lose_and_miss(locks: &Locks) {
    let lock = locks.mutex("lost").lease(Duration::from_millis(300));
    let guard = lock
        .clone()
        .max_hold(Duration::from_millis(250))
        .acquire()
        .await
        .unwrap();
    let refused = lock
        .try_acquire_for(Duration::from_millis(20))
        .await
        .unwrap();
    assert!(refused.is_err());
    guard.lost().await;

    let labels = [
        ("store", "documented"),
        ("lock", "other"),
        ("reason", "max_hold_exceeded"),
    ];
    assert!(value("leasehold_losses_total", &labels) >= 1.0);
}

async fn reconnect() {
    let mut server = Redis::start();
    let locks = leasehold::open(&format!("{}?crash-grace=2s", server.url()))
        .await
        .unwrap();
    let guard = locks.mutex("a").acquire().await.unwrap();
    server.kill();
    guard.lost().await;
    let outages = || value("leasehold_outages_total", &[("store", "redis")]);
    assert!(outages() >= 1.0);

    // Without a reply it does not count as refused.
    let lock = locks.mutex("b");
    let refused = lock.try_acquire_for(Duration::from_millis(10)).await;
    refused.expect_err("the server is down");
    let outcome = |outcome| {
        let labels = [("store", "redis"), ("lock", "other"), ("outcome", outcome)];
        value("leasehold_acquires_total", &labels)
    };
    assert!(outcome("unavailable") >= 1.0 && outcome("refused") == 0.0);

    server.restart();
    while value("leasehold_reconnects_total", &[("service", "redis")]) < 1.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
