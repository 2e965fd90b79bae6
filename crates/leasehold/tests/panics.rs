//! The program's own code panics on the background thread: a layer of `tracing`, or a recorder of
//! metrics. Both are those of the process, so these tests are alone in their program, and one runs
//! at a time.
#![cfg(all(feature = "redis", feature = "metrics"))]
#![allow(missing_docs)]

use std::pin::pin;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::poll;
use lab_servers::Redis;
use leasehold::{Guard, Lock, Locks, LossReason};
use leasehold_conformance::support::{eventually, within_timeout};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tokio::sync::{Mutex, MutexGuard};
use tracing::span::Id;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const LEASE: Duration = Duration::from_secs(3);

/// Shows G-13.
#[tokio::test]
async fn holds_are_renewed_after_panics_in_a_layer_while_redis_is_away() {
    let _program = Program::start().await;
    let mut server = Redis::start();
    let url = format!("{}?crash-grace=2s", server.url());
    let locks = leasehold::open(&url).await.expect("it opens");
    let held = lock(&locks).acquire().await.expect("granted");

    LAYER.store(true, Ordering::SeqCst);
    server.kill();
    eventually("the layer panics", async || {
        PANICS.load(Ordering::SeqCst) > 2
    })
    .await;
    server.restart();
    drop(held);
    LAYER.store(false, Ordering::SeqCst);

    let next = within_timeout("the next is granted", lock(&locks).acquire()).await;
    assert_is_renewed(next.expect("granted")).await;
}

/// Shows G-13.
#[tokio::test]
async fn holds_are_renewed_after_panics_in_a_recorder_on_redis() {
    let server = Redis::start();
    holds_are_renewed_after_panics_in_a_recorder(&server.url()).await;
}

/// Shows G-13.
#[tokio::test]
async fn holds_are_renewed_after_panics_in_a_recorder_on_memory() {
    holds_are_renewed_after_panics_in_a_recorder("memory:").await;
}

async fn holds_are_renewed_after_panics_in_a_recorder(url: &str) {
    let _program = Program::start().await;
    let locks = leasehold::open(url).await.expect("it opens");
    let held = lock(&locks).acquire().await.expect("granted");

    // It panics at each renewal, so more than once.
    RECORDER.store(true, Ordering::SeqCst);
    assert_is_renewed(held).await;
    assert!(PANICS.load(Ordering::SeqCst) > 1, "the recorder panics");
}

/// Without leases, a departure that has died would keep the lock for ever.
///
/// Shows G-13.
#[tokio::test]
async fn dropped_hold_is_released_although_a_layer_panics() {
    let _program = Program::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("file:{}", folder.path().display());
    let locks = leasehold::open(&url).await.expect("it opens");
    let held = lock(&locks).acquire().await.expect("granted");

    LAYER.store(true, Ordering::SeqCst);
    drop(held);
    let next = within_timeout("the next is granted", lock(&locks).acquire()).await;
    assert!(PANICS.load(Ordering::SeqCst) > 0, "the layer panics");
    LAYER.store(false, Ordering::SeqCst);
    next.expect("granted").release().await.expect("released");
}

/// A hold that is passed on has no guard for a moment, and would be renewed for ever.
///
/// Shows G-13.
#[tokio::test]
async fn hold_is_passed_on_although_a_recorder_panics() {
    let _program = Program::start().await;
    let locks = leasehold::open("memory:").await.expect("it opens");
    let cohort = lock(&locks).cohort(4);
    let held = cohort.acquire().await.expect("granted");
    let mut waiting = pin!(cohort.acquire());
    assert!(poll!(waiting.as_mut()).is_pending(), "it is held");

    GAUGE.store(true, Ordering::SeqCst);
    drop(held);
    let next = within_timeout("the second is granted", waiting).await;
    let next = next.expect("granted");
    assert_eq!(PANICS.load(Ordering::SeqCst), 1, "the recorder panics");
    next.release().await.expect("released");
    let free = within_timeout("the lock is free", lock(&locks).acquire()).await;
    assert!(free.is_ok(), "{free:?}");
}

/// Shows G-12.
#[tokio::test]
async fn losses_are_reported_although_a_layer_panics() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("file:{}", folder.path().display());
    for url in ["memory:", &file] {
        let _program = Program::start().await;
        let locks = leasehold::open(url).await.expect("it opens");
        let short = locks.mutex("a").max_hold(Duration::from_millis(200));

        LAYER.store(true, Ordering::SeqCst);
        for round in 0..2 {
            let held = within_timeout("the lock is free", short.acquire()).await;
            let lost = held.expect("granted");
            let reason = within_timeout("it is lost", lost.lost()).await;
            assert_eq!(reason, LossReason::MaxHoldExceeded, "{url}, round {round}");
        }
        assert!(PANICS.load(Ordering::SeqCst) > 1, "{url}: the layer panics");
    }
}

fn lock(locks: &Locks) -> Lock {
    locks.mutex("a").lease(LEASE)
}

async fn assert_is_renewed(held: Guard) {
    // Time has to pass here: without renewals the hold ends by its lease.
    tokio::time::sleep(LEASE + LEASE / 2).await;
    held.check().expect("it is renewed");
    held.release().await.expect("released");
}

/// The code of the program, which panics on the thread of leasehold while it is told to.
struct Program(#[expect(dead_code, reason = "it is unlocked at the end")] MutexGuard<'static, ()>);

static ALONE: Mutex<()> = Mutex::const_new(());
static LAYER: AtomicBool = AtomicBool::new(false);
static RECORDER: AtomicBool = AtomicBool::new(false);
/// Tells the recorder to panic once, on whatever thread a hold is counted next.
static GAUGE: AtomicBool = AtomicBool::new(false);
static PANICS: AtomicU32 = AtomicU32::new(0);
static INSTALLED: LazyLock<()> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::registry().with(PanickingLayer);
    tracing::subscriber::set_global_default(subscriber).expect("it is the only one");
    metrics::set_global_recorder(PanickingRecorder).expect("it is the only one");
});

impl Program {
    async fn start() -> Self {
        let alone = ALONE.lock().await;
        LazyLock::force(&INSTALLED);
        PANICS.store(0, Ordering::SeqCst);
        Self(alone)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        LAYER.store(false, Ordering::SeqCst);
        RECORDER.store(false, Ordering::SeqCst);
    }
}

fn panic_in(code: &AtomicBool) {
    let is_background = std::thread::current().name() == Some("leasehold");
    if is_background && code.load(Ordering::SeqCst) {
        PANICS.fetch_add(1, Ordering::SeqCst);
        panic!("the test has told it to");
    }
}

struct PanickingLayer;

impl<S: Subscriber> Layer<S> for PanickingLayer {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        panic_in(&LAYER);
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        panic_in(&LAYER);
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        panic_in(&LAYER);
    }
}

struct PanickingRecorder;
struct Handle;

impl Recorder for PanickingRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Handle))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Handle))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Handle))
    }
}

impl CounterFn for Handle {
    fn increment(&self, _: u64) {
        panic_in(&RECORDER);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Handle {
    fn increment(&self, _: f64) {
        if GAUGE.swap(false, Ordering::SeqCst) {
            PANICS.fetch_add(1, Ordering::SeqCst);
            panic!("the test has told it to");
        }
        panic_in(&RECORDER);
    }

    fn decrement(&self, _: f64) {
        panic_in(&RECORDER);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Handle {
    fn record(&self, _: f64) {
        panic_in(&RECORDER);
    }
}
