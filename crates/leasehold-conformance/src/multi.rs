//! Several locks at once: all or none, in any order, and lost together.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::Service;
use super::support::{
    TIMEOUT, acquire, all_end, break_held, client, empty, eventually, fresh_name, release,
    try_acquire, within_timeout,
};
use leasehold_core::{Guard, Locks, MultiLock, blocking};

/// A set of locks is granted as a whole. If one lock is held, the others are free again.
///
/// Shows G-46.
pub async fn several_locks_are_granted_or_none(service: &dyn Service) {
    let ours = client(service).await;
    let theirs = client(service).await;
    let names = fresh_names("together");
    let [first, second, third] = &names;
    let set = ours.multi_lock([third, first, second]);

    let held = acquire(&theirs.mutex(second)).await;
    assert!(set.try_acquire().await.expect("it replies").is_err());
    for name in [first, third] {
        let free = try_acquire(&theirs.mutex(name)).await;
        release(free.expect("a refused set holds nothing")).await;
    }
    let waited = set.try_acquire_for(Duration::from_millis(100)).await;
    assert!(waited.expect("it replies").is_err());
    empty(&theirs, first).await;
    drop_while_waiting(&set, &theirs, first).await;

    release(held).await;
    let guard = within_timeout("the set is granted", set.acquire())
        .await
        .expect("granted");
    let order = guard.guards().iter().map(Guard::name);
    assert!(order.eq([third, first, second]), "{guard:?}");
    for name in &names {
        assert!(try_acquire(&theirs.mutex(name)).await.is_none());
    }

    guard.release().await.expect("released");
    for name in &names {
        let free = try_acquire(&theirs.mutex(name)).await;
        release(free.expect("the set is released")).await;
    }
}

/// An acquire of the set holds `first` and waits for another lock. When it is dropped, no lock of
/// the set stays held.
async fn drop_while_waiting(set: &MultiLock, observer: &Locks, first: &str) {
    let second_set = set.clone();
    let waiting = tokio::spawn(async move { second_set.acquire().await });
    eventually("the first lock of the set is granted", || async {
        let lock_state = observer.inspect(first).await.expect("inspected");
        lock_state.holders().count() == 1
    })
    .await;

    waiting.abort();
    empty(observer, first).await;
}

/// If one lock of a set is lost, the set is lost. The other locks stay held until the release.
///
/// Shows G-46.
pub async fn loss_of_one_lock_is_loss_of_the_set(service: &dyn Service) {
    let ours = client(service).await;
    let operator = client(service).await;
    let [first, second, third] = &fresh_names("lost");
    let guard = ours
        .multi_lock([first, second, third])
        .acquire()
        .await
        .expect("granted");
    assert!(guard.check().is_ok() && guard.loss().is_none());

    break_held(&operator, second, guard.guards()[1].token()).await;

    within_timeout("the loss is reported", guard.lost()).await;
    assert!(guard.check().expect_err("it is lost").is_lost());
    assert_eq!(guard.weakest().name(), second);
    let work = guard.while_held(std::future::pending::<()>()).await;
    assert!(work.expect_err("it is lost").is_lost());
    for name in [first, third] {
        assert!(try_acquire(&operator.mutex(name)).await.is_none());
    }

    let released = guard.release().await;
    assert!(released.expect_err("one was lost").is_lost());
    for name in [first, third] {
        release(acquire(&operator.mutex(name)).await).await;
    }
}

/// Sixteen clients acquire random subsets of four locks in random orders. Each of them is granted,
/// and no lock is held twice.
///
/// Shows G-46.
pub async fn opposing_orders_do_not_deadlock(service: &dyn Service) {
    const CLIENTS: u64 = 16;
    const CYCLES: usize = 3;
    let names: Arc<[String; 4]> = Arc::new(fresh_names("opposing"));
    let inside: Arc<[AtomicBool; 4]> = Arc::default();
    let mut tasks = JoinSet::new();

    for number in 0..CLIENTS {
        let locks = client(service).await;
        let names = Arc::clone(&names);
        let inside = Arc::clone(&inside);
        let mut random = Random(number);
        tasks.spawn(async move {
            for _ in 0..CYCLES {
                let subset = random.subset();
                let set = locks.multi_lock(subset.iter().map(|at| &names[*at]));
                hold_alone(set, number % 4 == 0, &subset, &inside).await;
            }
        });
    }

    all_end(tasks).await;
}

/// Acquires a set, and fails if another client holds one of its locks.
async fn hold_alone(set: MultiLock, blocks: bool, subset: &[usize], inside: &[AtomicBool; 4]) {
    let guard = if blocks {
        let set = blocking::MultiLock::from(set);
        let acquiring = tokio::task::spawn_blocking(move || set.try_acquire_for(TIMEOUT));
        let granted = acquiring.await.expect("the blocking API does not panic");
        granted
            .expect("it replies")
            .map(leasehold_core::MultiGuard::from)
            .expect("granted in time")
    } else {
        let granted = set.try_acquire_for(TIMEOUT).await;
        granted.expect("it replies").expect("granted in time")
    };

    for at in subset {
        assert!(
            !inside[*at].swap(true, Ordering::SeqCst),
            "two hold at once"
        );
    }
    tokio::task::yield_now().await;
    for at in subset {
        inside[*at].store(false, Ordering::SeqCst);
    }
    guard.release().await.expect("released");
}

fn fresh_names<const N: usize>(suite: &str) -> [String; N] {
    let name = fresh_name(suite);
    array::from_fn(|at| format!("{name}/{at}"))
}

/// The generator splitmix64. The same seed gives the same subsets in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let first = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (first ^ (first >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns two to four of the numbers from 0 to 3, in a random order.
    fn subset(&mut self) -> Vec<usize> {
        let mut numbers = vec![0, 1, 2, 3];
        numbers.sort_by_cached_key(|_| self.next());
        numbers.truncate(2 + usize::try_from(self.next() % 3).expect("a small number"));
        numbers
    }
}
