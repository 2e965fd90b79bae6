//! A store in memory on the clock of tokio, in tests that pause it. Every test here takes hours of
//! virtual time, and would not end in real time.
#![cfg(all(feature = "test-util", feature = "unstable-store"))]
#![allow(missing_docs)]

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold::store::{Claim, Entered, Intercept, Intercepted, OnContention, Request, Store};
use leasehold::{
    LockState, Locks, LossReason, Name, Owner, RenewalStatus, Result, drain, stores::Memory,
};
use tokio::time::{Instant, advance, pause, sleep, sleep_until, timeout};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

fn open() -> Locks {
    Locks::from_store(Memory::on_tokio_clock(), "memory:").expect("it opens")
}

#[tokio::test(start_paused = true)]
async fn waits_end_in_virtual_time() {
    let locks = open();
    let _guard = locks.mutex("a").acquire().await.expect("granted");
    let begun = Instant::now();

    let refused = locks.mutex("a").try_acquire_for(HOUR).await;
    assert!(refused.expect("it replies").is_err());
    let waited = begun.elapsed();
    assert!(waited >= HOUR && waited < HOUR + SECOND, "{waited:?}");

    let lock = locks.mutex("a");
    timeout(HOUR, lock.acquire()).await.expect_err("it waits");
    let cohort = locks.mutex("a").cohort(3);
    let refused = cohort.try_acquire_for(HOUR).await;
    assert!(refused.expect("it replies").is_err());
    let reentrant = locks.reentrant("a");
    let owner = Owner::new();
    let refused = reentrant.try_acquire_for(&owner, HOUR).await;
    assert!(refused.expect("it replies").is_err());

    drain().await;
    let lock_state = locks.inspect("a").await.expect("it replies");
    assert_eq!(lock_state.waiters().count(), 0);
    let waited = begun.elapsed();
    assert!(waited >= 4 * HOUR && waited < 5 * HOUR, "{waited:?}");
}

/// The first lock of the set is free after half of the limit.
///
/// Shows G-09, G-46.
#[tokio::test(start_paused = true)]
async fn locks_of_a_set_share_the_limit_of_its_wait() {
    let locks = open();
    let first = locks.mutex("a").acquire().await.expect("granted");
    let _second = locks.mutex("b").acquire().await.expect("granted");
    let begun = Instant::now();

    let set = locks.multi_lock(["a", "b"]);
    let releasing = async {
        sleep(HOUR / 2).await;
        first.release().await.expect("released");
    };
    let (refused, ()) = tokio::join!(set.try_acquire_for(HOUR), releasing);
    assert!(refused.expect("it replies").is_err());
    let waited = begun.elapsed();
    assert!(waited >= HOUR && waited < HOUR + SECOND, "{waited:?}");
}

/// Inspects a lock only after three seconds.
#[derive(Debug)]
struct SlowReads(Memory);

#[async_trait]
impl Intercept for SlowReads {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        sleep(3 * SECOND).await;
        self.0.inspect(name).await
    }
}

/// Another program has the number. The semaphore is free after a part of the limit.
///
/// Shows G-09, G-39.
#[tokio::test(start_paused = true)]
async fn numbers_of_slots_share_the_limit_of_the_wait() {
    let locks = open();
    let _number = locks.mutex("gpu/slot/0").acquire().await.expect("granted");
    let held = locks.semaphore("gpu", 1).acquire().await.expect("granted");
    let begun = Instant::now();

    let numbered = locks.semaphore("gpu", 1).numbered();
    let free = async {
        sleep(6 * SECOND).await;
        held.release().await.expect("released");
    };
    let (refused, ()) = tokio::join!(numbered.try_acquire_for(10 * SECOND), free);
    assert!(refused.expect("it replies").is_err());
    let waited = begun.elapsed();
    assert!(waited >= 10 * SECOND && waited < 11 * SECOND, "{waited:?}");
}

/// The store still has the claim.
///
/// Shows G-58.
#[tokio::test(start_paused = true)]
async fn job_that_lost_its_hold_here_is_not_recorded() {
    let locks = open();
    let once = locks.once("a").id("1").max_hold(10 * SECOND);
    let job = once.acquire().await.expect("it replies").expect("granted");
    advance(11 * SECOND).now_or_never();
    assert!(job.complete().await.expect_err("too late").is_lost());
    let again = once.try_acquire().await.expect("it replies");
    assert!(again.is_ok(), "{again:?}");
}

/// A failover takes five seconds, during which a replica refuses all requests at once.
///
/// Shows G-25, G-58.
#[tokio::test(start_paused = true)]
async fn outage_at_the_end_of_a_job_costs_no_second_run() {
    let store = Memory::on_tokio_clock();
    let locks = Locks::from_store(store.clone(), "memory:").expect("it opens");
    let once = locks.once("a").id("1");
    let job = once.acquire().await.expect("it replies").expect("granted");

    store.fail();
    let recover = async {
        sleep(5 * SECOND).await;
        store.recover();
    };
    let (completed, ()) = tokio::join!(job.complete(), recover);
    completed.expect("it is recorded");
    assert!(once.acquire().await.expect("it replies").is_err());
}

/// Notes the leases of all requests to enter.
#[derive(Debug)]
struct Leases(Memory, Arc<Mutex<Vec<Duration>>>);

#[async_trait]
impl Intercept for Leases {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.1.lock().expect("no panic").push(claim.lease);
        self.0.enter(claim, on_contention).await
    }
}

/// Shows G-07, G-14.
#[tokio::test(start_paused = true)]
async fn downgrade_does_not_begin_a_fixed_lease_again() {
    let leases = Arc::<Mutex<Vec<Duration>>>::default();
    let store = Intercepted(Leases(Memory::on_tokio_clock(), Arc::clone(&leases)));
    let locks = Locks::from_store(store, "noted:").expect("it opens");
    let lock = locks.rwlock("a").exclusive().lease(10 * SECOND);

    let fixed = lock.clone().no_renewal().acquire().await.expect("granted");
    sleep(6 * SECOND).await;
    fixed.downgrade().await.expect("it is held");
    fixed.release().await.expect("it is held");
    let renewed = lock.acquire().await.expect("granted");
    sleep(6 * SECOND).await;
    renewed.downgrade().await.expect("it is held");

    let leases: Vec<_> = leases.lock().expect("no panic").clone();
    let [first, left, again, whole] = leases[..] else {
        panic!("{leases:?}");
    };
    assert_eq!([first, again, whole], [10 * SECOND; 3]);
    assert!(
        left >= 4 * SECOND && left < 4 * SECOND + SECOND / 50,
        "{left:?}"
    );
}

/// Reads of the record take three seconds, and after the first one the lock is lost meanwhile.
#[derive(Debug)]
struct SlowRecords(Memory, AtomicU32);

#[async_trait]
impl Intercept for SlowRecords {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn around<T: Send>(
        &self,
        request: Request,
        reply: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if request == Request::Record {
            if self.1.fetch_add(1, SeqCst) == 1 {
                self.0.revoke("lost");
            }
            sleep(3 * SECOND).await;
        }
        reply.await
    }
}

#[tokio::test(start_paused = true)]
async fn lock_that_is_lost_before_its_job_begins_is_acquired_again() {
    let store = SlowRecords(Memory::on_tokio_clock(), AtomicU32::new(0));
    let locks = Locks::from_store(Intercepted(store), "slow:").expect("it opens");
    let job = locks.once("lost").id("1").acquire().await;
    let job = job.expect("it replies").expect("it is not done");
    job.complete().await.expect("it is held");
}

/// A job that cannot begin within `max_hold` would take the lock from others again and again.
#[tokio::test(start_paused = true)]
async fn job_that_never_begins_in_time_is_an_error() {
    for limit in [None, Some(HOUR)] {
        let store = SlowRecords(Memory::on_tokio_clock(), AtomicU32::new(0));
        let locks = Locks::from_store(Intercepted(store), "slow:").expect("it opens");
        let job = locks.once("a").id("1").max_hold(SECOND);
        let lost = match limit {
            None => job.acquire().await.map(drop),
            Some(limit) => job.try_acquire_for(limit).await.map(drop),
        };
        assert!(lost.expect_err("it is lost").is_lost(), "{limit:?}");
    }
}

/// The reply timeout is two seconds, and a wait with a limit gives the store ten.
///
/// Shows G-26.
#[tokio::test(start_paused = true)]
async fn job_with_a_time_limit_survives_a_silence_that_its_lock_survives() {
    let store = SlowRecords(Memory::on_tokio_clock(), AtomicU32::new(0));
    let locks = Locks::from_store(Intercepted(store), "slow:").expect("it opens");
    let job = locks.once("a").id("1").try_acquire_for(HOUR).await;
    assert!(job.expect("the silence was short").is_ok());
    drain().await;
}

/// The job began less than half a period before the other machine asked for it, and more than that
/// before its read had ended.
///
/// Shows G-58.
#[tokio::test(start_paused = true)]
async fn slow_read_of_a_record_does_not_run_a_job_again() {
    let store = Memory::on_tokio_clock();
    let ours = Locks::from_store(store.clone(), "memory:").expect("it opens");
    let slow = SlowRecords(store, AtomicU32::new(0));
    let theirs = Locks::from_store(Intercepted(slow), "slow:").expect("it opens");
    let job = ours.once("a").per(10 * SECOND).acquire().await;
    let job = job.expect("it replies").expect("it is not done");

    sleep(4 * SECOND).await;
    let end = async {
        sleep(5 * SECOND).await;
        job.complete().await.expect("it is held");
    };
    let (other, ()) = tokio::join!(theirs.once("a").per(10 * SECOND).acquire(), end);
    assert!(other.expect("it replies").is_err(), "it is done");
}

/// An acquire that looks first whether it would wait for itself gives the store as long for that as
/// for the grant.
///
/// Shows G-26.
#[tokio::test(start_paused = true)]
async fn acquire_that_inspects_first_has_the_limits_of_every_acquire() {
    let locks = open();
    let slow = Intercepted(SlowReads(Memory::on_tokio_clock()));
    let slow = Locks::from_store(slow, "slow:").expect("it opens");
    let owner = Owner::new();
    let _held = locks.reentrant("b").acquire(&owner).await.expect("granted");
    let set = leasehold::multi_lock([locks.mutex("a"), slow.mutex("a")]);
    let lock = slow.reentrant("b");

    drop(set.acquire().await.expect("granted"));
    drop(lock.acquire(&owner).await.expect("granted"));
    drain().await;
    let granted = set.try_acquire_for(5 * SECOND).await;
    drop(granted.expect("it replies").expect("granted"));
    let granted = lock.try_acquire_for(&owner, 5 * SECOND).await;
    drop(granted.expect("it replies").expect("granted"));
    drain().await;
    let error = set.try_acquire().await.expect_err("it has no reply");
    assert!(error.is_unavailable(), "{error}");
    let error = lock.try_acquire(&owner).await.expect_err("it has no reply");
    assert!(error.is_unavailable(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_a_hold_while_time_passes() {
    let locks = open();
    let guard = locks.mutex("a").acquire().await.expect("granted");

    guard.while_held(sleep(6 * HOUR)).await.expect("held");
    assert_eq!(guard.renewal(), RenewalStatus::OnTime);
    assert!(guard.remaining() > 20 * SECOND);
    let refused = locks.mutex("a").try_acquire().await;
    assert!(refused.expect("it replies").is_err());

    guard.release().await.expect("released");
}

/// No renewal takes place in a jump of the clock, as in a suspend of the machine.
#[tokio::test(start_paused = true)]
async fn hold_is_lost_in_a_jump_of_the_clock() {
    let locks = open();
    let guard = locks.mutex("a").acquire().await.expect("granted");

    advance(HOUR).await;
    assert!(guard.check().expect_err("it is lost").is_lost());
    assert_eq!(guard.loss(), Some(LossReason::RenewalTimedOut));
    let next = locks.mutex("a").try_acquire().await.expect("it replies");
    assert!(next.is_ok_and(|next| next.token() > guard.token()));
}

/// The work returns without a pause in which its loss could drop it.
///
/// Shows G-12.
#[tokio::test(start_paused = true)]
async fn work_that_ends_after_the_loss_is_lost() {
    let locks = open();
    let beyond_the_lease = async || advance(HOUR).now_or_never();

    let guard = locks.mutex("a").acquire().await.expect("granted");
    let done = guard.while_held(beyond_the_lease()).await;
    assert!(done.expect_err("it is lost").is_lost());

    let set = locks.multi_lock(["b", "c"]).acquire().await;
    let done = set.expect("granted").while_held(beyond_the_lease()).await;
    assert!(done.expect_err("it is lost").is_lost());
}

#[tokio::test(start_paused = true)]
async fn lease_without_renewal_ends_in_virtual_time() {
    let locks = open();
    let lock = locks.mutex("a").no_renewal().lease(2 * HOUR);
    let guard = lock.acquire().await.expect("granted");

    sleep(HOUR).await;
    guard.check().expect("it lasts as long as its lease");
    let waiting = locks.mutex("a");
    let (next, lost) = tokio::join!(waiting.try_acquire_for(HOUR), guard.lost());
    assert_eq!(lost, LossReason::LeaseExpired);
    assert!(next.expect("it replies").is_ok());
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_in_virtual_time() {
    let locks = open();
    let lock = locks.mutex("a").max_hold(HOUR);
    let guard = lock.acquire().await.expect("granted");
    sleep(HOUR / 2).await;
    advance(SECOND).await;
    guard.check().expect("it renews");
    sleep(HOUR / 2).await;
    assert_eq!(guard.loss(), Some(LossReason::MaxHoldExceeded));
    drop(guard);

    let guard = lock.acquire().await.expect("granted");
    let begun = Instant::now();
    assert_eq!(guard.lost().await, LossReason::MaxHoldExceeded);
    assert!(begun.elapsed() >= HOUR / 2);
}

#[tokio::test(start_paused = true)]
async fn revoked_leader_is_replaced_and_dropped_claims_leave() {
    let store = Memory::on_tokio_clock();
    let locks = Locks::from_store(store.clone(), "memory:").expect("it opens");
    let election = locks.election("a");
    let first = election.campaign("one").await.expect("elected");
    let mut observer = election.observe().await.expect("observed");
    observer.next().await.expect("inspected");

    let second = tokio::spawn(async move { election.campaign("two").await });
    sleep(HOUR).await;
    assert_eq!(store.revoke("a"), 1);
    assert_eq!(first.lost().await, LossReason::Revoked);
    let leader = observer.next().await.expect("inspected");
    assert_eq!(leader.expect("the second one leads").address(), "two");

    drop(second.await.expect("it runs").expect("elected"));
    drain().await;
    assert!(
        locks
            .inspect("a")
            .await
            .expect("it replies")
            .entries
            .is_empty()
    );
}

/// The clock belongs to the runtime in which the store was created.
#[tokio::test(start_paused = true)]
async fn other_runtimes_follow_the_clock_of_the_machine() {
    let paused = open();
    let guard = paused.mutex("a").acquire().await.expect("granted");
    let elsewhere = std::thread::spawn(|| {
        let locks = leasehold::blocking::open("memory:").expect("it opens");
        let guard = locks.mutex("a").acquire().expect("granted");
        (locks, guard)
    });
    let (_locks, real) = elsewhere.join().expect("it runs");
    let virtual_time = tokio::spawn(async move {
        advance(HOUR).await;
        guard.loss()
    });
    assert_eq!(
        virtual_time.await.expect("it runs"),
        Some(LossReason::RenewalTimedOut)
    );
    std::thread::spawn(move || real.check().expect("it is held"))
        .join()
        .expect("it runs");
}

/// Without a pause the store follows real time.
#[tokio::test]
async fn time_that_is_not_paused_goes_on() {
    let locks = open();
    let short = locks.mutex("a").lease(SECOND / 4);
    let waiting = locks.mutex("a");
    let guard = short.no_renewal().acquire().await.expect("granted");
    let (lost, next) = tokio::join!(guard.lost(), waiting.acquire());
    assert_eq!(lost, LossReason::LeaseExpired);
    let guard = next.expect("granted");
    guard.check().expect("it is held");

    pause();
    advance(HOUR).await;
    assert!(guard.check().expect_err("it is lost").is_lost());
}

/// Three machines start a daily job at times that differ by up to a minute, for a hundred days. One
/// of them is down each third day, and each seventh day the job fails at first.
#[tokio::test(start_paused = true)]
async fn daily_job_runs_once_a_day_on_three_machines() {
    const DAY: Duration = Duration::from_secs(86_400);
    let store = Memory::on_tokio_clock();
    let begun = Instant::now();
    let machines = [0, 7, 60].map(|late| {
        let locks = Locks::from_store(store.clone(), "memory:").expect("it opens");
        tokio::spawn(async move {
            let mut runs = Vec::new();
            for day in 0..100_u32 {
                sleep_until(begun + DAY * (day + 1) + SECOND * late).await;
                if late == 7 && day % 3 == 0 {
                    continue;
                }
                let by_id = locks.once("by-id").id(format!("day {day}")).acquire().await;
                if let Ok(guard) = by_id.expect("it replies") {
                    if late == 0 && day % 7 == 0 {
                        guard.fail().await.expect("it is held");
                    } else {
                        guard.complete().await.expect("it is recorded");
                        runs.push(("by-id", day));
                    }
                }
                let by_period = locks.once("by-period").per(DAY).acquire().await;
                if let Ok(guard) = by_period.expect("it replies") {
                    sleep(Duration::from_millis(5)).await;
                    guard.complete().await.expect("it is recorded");
                    runs.push(("by-period", day));
                }
            }
            runs
        })
    });

    let mut runs = Vec::new();
    for machine in machines {
        runs.extend(machine.await.expect("it runs"));
    }
    runs.sort_unstable();
    let days = |name| (0..100).map(move |day| (name, day));
    let expected: Vec<_> = days("by-id").chain(days("by-period")).collect();
    assert_eq!(runs, expected);
}

/// Shows G-58.
#[tokio::test(start_paused = true)]
async fn each_use_of_a_record_keeps_it_for_forty_days() {
    const DAY: Duration = Duration::from_secs(86_400);
    let locks = open();
    let acquire = async || locks.once("a").id("1").acquire().await.expect("it replies");
    let guard = acquire().await.expect("it is not done");
    guard.complete().await.expect("it is recorded");

    for _ in 0..3 {
        sleep(DAY * 39).await;
        assert!(acquire().await.is_err(), "it is done");
    }
    sleep(DAY * 41).await;
    assert!(acquire().await.is_ok(), "the record has ended");
}
