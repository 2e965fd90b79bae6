//! Tests of grants whose confirmation is slow, and of acquires whose store fails at their deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::store::{Intercept, Intercepted};
use crate::stores::Memory;
use crate::{Claim, Entered, Error, Guard, Lock, Locks, OnContention, Result, Standing, Store};
use leasehold_conformance::support::{eventually, within_timeout};

/// Half of it is longer than a busy machine stops a test.
const LEASE: Duration = Duration::from_secs(1);

/// A store whose replies to the confirmations of grants are late, or which cannot be reached.
#[derive(Debug)]
struct Leasing {
    store: Memory,
    /// The first confirmations of a grant get their replies after 0.6 of the lease.
    slow: usize,
    confirmed: Arc<AtomicUsize>,
    is_unreachable: Arc<AtomicBool>,
}

impl Leasing {
    fn check(&self) -> Result<()> {
        if self.is_unreachable.load(SeqCst) {
            return Err(Error::unavailable("the test has cut the connection"));
        }
        Ok(())
    }
}

#[async_trait]
impl Intercept for Leasing {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.check()?;
        self.store.enter(claim, on_contention).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.check()?;
        let lock_state = self.store.inspect(&claims[0].name).await?;
        let is_granted = lock_state.holders().any(|it| it.id == claims[0].id);
        let leases = self.store.renew(claims).await?;
        if is_granted && self.confirmed.fetch_add(1, SeqCst) < self.slow {
            sleep(LEASE * 6 / 10).await;
        }
        Ok(leases)
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.check()?;
        self.store.leave(claim).await
    }
}

/// A lock that another client holds, and what its store does to it.
struct Contended {
    lock: Lock,
    others: Locks,
    held: Guard,
    confirmed: Arc<AtomicUsize>,
    is_unreachable: Arc<AtomicBool>,
}

async fn contended(slow: usize) -> Contended {
    let memory = Memory::new();
    let others = Locks::from_store(memory.clone(), "memory:").expect("it starts");
    let held = others.mutex("a").acquire().await.expect("it is free");

    let confirmed = Arc::new(AtomicUsize::new(0));
    let is_unreachable = Arc::new(AtomicBool::new(false));
    let store = Intercepted(Leasing {
        store: memory,
        slow,
        confirmed: Arc::clone(&confirmed),
        is_unreachable: Arc::clone(&is_unreachable),
    });
    let locks = Locks::from_store(store, "memory:").expect("it starts");
    Contended {
        lock: locks.mutex("a").lease(LEASE),
        others,
        held,
        confirmed,
        is_unreachable,
    }
}

impl Contended {
    /// Starts an acquire, and returns once it waits in the queue.
    async fn waiter<T: Send + 'static>(
        &self,
        acquiring: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let waiting = tokio::spawn(acquiring);
        let is_queued = || async {
            let lock_state = self.others.inspect("a").await;
            lock_state.expect("a state").waiters().count() == 1
        };
        eventually("it is queued", is_queued).await;
        waiting
    }
}

/// Returns how much of its lease a waiter has when its acquire returns, and how often its client has
/// confirmed the grant by then.
async fn granted_after_a_wait(slow: usize, change: impl FnOnce(Lock) -> Lock) -> (Duration, usize) {
    let test = contended(slow).await;
    let lock = change(test.lock.clone());
    let waiting = test.waiter(async move { lock.acquire().await }).await;
    test.held.release().await.expect("released");

    let granted = within_timeout("it is granted", waiting).await;
    let guard = granted.expect("no panic").expect("granted");
    (guard.remaining(), test.confirmed.load(SeqCst))
}

/// A lease that is not renewed has at least half of it left when its acquire returns, if one of
/// three confirmations is fast enough.
///
/// Shows G-14.
#[tokio::test]
async fn fixed_lease_is_confirmed_until_half_of_it_is_left() {
    let (left, confirmed) = granted_after_a_wait(0, Lock::no_renewal).await;
    assert!(left > LEASE / 2 && confirmed == 1, "{left:?}, {confirmed}");

    let (left, confirmed) = granted_after_a_wait(2, Lock::no_renewal).await;
    assert!(left > LEASE / 2 && confirmed == 3, "{left:?}, {confirmed}");
}

/// A store that is always slow grants what is left, and a lease that is renewed needs no half.
#[tokio::test]
async fn slow_confirmation_is_accepted_at_last() {
    let (left, confirmed) = granted_after_a_wait(usize::MAX, Lock::no_renewal).await;
    assert!(!left.is_zero() && left < LEASE / 2, "{left:?}");
    assert_eq!(confirmed, 3);

    // The hold renews itself beside this test.
    let (left, confirmed) = granted_after_a_wait(usize::MAX, |lock| lock).await;
    assert!(!left.is_zero() && confirmed < 3, "{left:?}, {confirmed}");
}

/// Only a reply shows that the lock was not granted in time.
///
/// Shows G-26.
#[tokio::test]
async fn store_that_cannot_be_reached_at_the_deadline_refuses_nothing() {
    let test = contended(0).await;
    let lock = test.lock.clone();
    let trying = async move { lock.try_acquire_for(LEASE / 2).await.map(drop) };
    let trying = test.waiter(trying).await;
    test.is_unreachable.store(true, SeqCst);

    let tried = within_timeout("the wait ends", trying).await;
    let error = tried
        .expect("no panic")
        .expect_err("nothing has refused it");
    assert!(error.is_unavailable(), "{error}");
}

/// A store that forgets its waiter in an outage, after which it is silent for a while.
#[derive(Debug)]
struct Forgetful {
    store: Memory,
    enters: AtomicUsize,
    was_silent: Arc<AtomicBool>,
}

#[async_trait]
impl Intercept for Forgetful {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        if self.enters.fetch_add(1, SeqCst) > 0 {
            // It ends before the reply timeout.
            sleep(Duration::from_millis(1_500)).await;
            self.was_silent.store(true, SeqCst);
            return Err(Error::unavailable("the store sends no reply"));
        }
        self.store.enter(claim, on_contention).await
    }

    async fn queued(&self, _: &Claim, _: u32) -> Result<Standing> {
        Err(Error::unavailable("the test has cut the connection"))
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        Ok(vec![None; claims.len()])
    }
}

/// Only the first request may take the reply timeout beyond the deadline.
///
/// Shows G-26.
#[tokio::test]
async fn claim_that_is_forgotten_in_an_outage_waits_until_the_deadline() {
    let memory = Memory::new();
    let others = Locks::from_store(memory.clone(), "memory:").expect("it starts");
    let _held = others.mutex("a").acquire().await.expect("it is free");
    let was_silent = Arc::new(AtomicBool::new(false));
    let store = Intercepted(Forgetful {
        store: memory,
        enters: AtomicUsize::new(0),
        was_silent: Arc::clone(&was_silent),
    });
    let locks = Locks::from_store(store, "memory:").expect("it starts");

    let limit = Duration::from_millis(200);
    let tried = locks.mutex("a").try_acquire_for(limit).await;
    let error = tried.expect_err("nothing has refused it");
    assert!(error.is_unavailable(), "{error}");
    assert!(!was_silent.load(SeqCst), "it waited for the reply timeout");
}
