//! The blocking API beside a runtime of the caller's, on a real Redis server.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use lab_servers::Redis;
use leasehold::blocking;
use tokio::runtime::Builder;

/// A request on a link that nothing drives fails after ten seconds.
const PROMPT: Duration = Duration::from_secs(5);

/// Acquires, fails to acquire again before a deadline, and releases; every step needs a reply.
fn use_locks(locks: &blocking::Locks, name: &str) {
    let started = Instant::now();

    let guard = locks.mutex(name).acquire().expect("it is granted");
    let second = locks
        .mutex(name)
        .try_acquire_for(Duration::from_millis(50))
        .expect("the server replies");
    assert!(second.is_err(), "two hold {name}");
    guard.release().expect("it is released");

    let elapsed = started.elapsed();
    assert!(elapsed < PROMPT, "it took {elapsed:?}");
}

/// Shows G-13.
#[test]
fn blocking_acquire_on_current_thread_runtime_is_granted() {
    let server = Redis::start();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");

    runtime.block_on(async {
        let locks = leasehold::open(&server.url()).await.expect("it opens");
        use_locks(&blocking::Locks::from(locks), "a");
    });
}

/// Shows G-13.
#[test]
fn blocking_acquire_with_all_workers_blocked_is_granted() {
    const WORKERS: usize = 2;
    let server = Redis::start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .expect("a runtime");
    let locks = runtime
        .block_on(leasehold::open(&server.url()))
        .expect("it opens");
    let barrier = Arc::new(Barrier::new(WORKERS));

    let tasks: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let locks = blocking::Locks::from(locks.clone());
            let barrier = Arc::clone(&barrier);
            runtime.spawn(async move {
                barrier.wait();
                use_locks(&locks, &format!("lock-{worker}"));
            })
        })
        .collect();

    for task in tasks {
        runtime
            .block_on(task)
            .expect("every step had a reply in time");
    }
}

/// tokio gives each poll of a task a budget, and a call that blocks lets no poll end.
///
/// Shows G-09.
#[test]
fn blocking_calls_in_one_task_are_not_limited_by_its_budget() {
    let (ended, is_ended) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let locks = blocking::open("memory:").expect("it opens");
            let guard = locks.mutex("a").acquire().expect("it is granted");
            for _ in 0..300 {
                assert_eq!(guard.lost_for(Duration::from_millis(1)), None);
            }
            ended.send(()).expect("the test waits");
        });
    });
    let deadline = Duration::from_secs(60);
    is_ended.recv_timeout(deadline).expect("a call never ends");
}

/// Shows G-11.
#[test]
fn drain_with_silent_server_returns_at_its_timeout() {
    let server = Redis::start();
    let locks = blocking::open(&server.url()).expect("it opens");
    let guard = locks.mutex("a").acquire().expect("it is granted");
    server.pause();
    drop(guard);
    let is_drained = blocking::drain(Duration::from_millis(50));
    assert!(!is_drained, "no release was under way");

    server.resume();

    assert!(
        blocking::drain(Duration::from_secs(30)),
        "the release is still under way"
    );
    let guard = locks
        .mutex("a")
        .try_acquire()
        .expect("the server replies")
        .expect("it is free");
    guard.release().expect("it is released");
}

#[test]
fn blocking_guards_have_what_the_async_ones_have() -> leasehold::Result<()> {
    let locks = blocking::open("memory:")?;
    let set = locks.multi_lock(["a", "b"]);
    assert_eq!(set.in_order()?[1].name(), "b");
    let both = set.acquire()?;
    let names: Vec<&str> = both.guards().iter().map(leasehold::Guard::name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(both.weakest().loss(), None);

    let joined = blocking::MultiGuard::new(both.into_guards());
    let watch = joined.watch();
    let waiting = std::thread::spawn(move || watch.lost());
    joined.release()?;
    assert_eq!(waiting.join().expect("it ends with the hold"), None);

    let reentrant = locks
        .reentrant("c")
        .configure(|lock| lock.max_hold(Duration::from_millis(50)));
    assert_eq!(reentrant.name(), "c");
    assert_eq!(locks.rwlock("d").name(), "d");
    assert_eq!(locks.election("e").name(), "e");
    let guard = reentrant.acquire(&leasehold::Owner::new())?;
    assert_eq!(guard.name(), "c");
    guard.until_remaining(Duration::ZERO);
    assert_eq!(
        guard.lost_for(PROMPT),
        Some(leasehold::LossReason::MaxHoldExceeded)
    );
    assert_eq!(guard.remaining(), Duration::ZERO);

    assert!(
        locks
            .remove_unused()
            .is_err_and(|error| error.is_unsupported())
    );
    assert!(blocking::examine("memory:")?.findings.is_empty());
    Ok(())
}
