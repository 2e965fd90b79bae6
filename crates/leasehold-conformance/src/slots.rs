//! Semaphores, and names in use as another kind of lock.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::Service;
use super::shares::clients_with_slots;
use super::support::{
    TIMEOUT, acquire, fresh_name, granted, locks_over, release, spawn_acquire, store, try_acquire,
    waiters, within_timeout,
};
use leasehold_core::store::{Intercept, Intercepted, Store, draw_claim_id};
use leasehold_core::{
    Entry, Guard, Lock, LockState, Locks, LossReason, Name, Result, SemaphoreSupport,
};

/// The number of holders reaches the number of slots and does not exceed it. A waiter is granted
/// when one of them leaves.
///
/// Shows G-01, G-55, S10.
pub async fn semaphore_slots_are_counted(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_slots(service).await else {
        return;
    };
    let name = fresh_name("slots");
    let our_slot = ours.semaphore(&name, 3);
    let their_slot = theirs.semaphore(&name, 3);

    let mut held = Vec::new();
    for lock in [&our_slot, &their_slot, &our_slot] {
        let guard = try_acquire(lock).await;
        held.push(guard.expect("there is a slot"));
    }
    assert!(try_acquire(&their_slot).await.is_none());

    let waiting = spawn_acquire(&their_slot);
    waiters(&theirs, &name, 1).await;
    release(held.pop().expect("three")).await;
    drop(granted(waiting).await);
    drop(held);
    let all = acquire(&ours.semaphore(&name, 3).permits(3)).await;
    release(all).await;

    let refused = ours.semaphore(&name, 3).permits(4).acquire().await;
    let error = refused.expect_err("more permits than slots");
    assert!(error.is_invalid());
    let refused = ours.semaphore(&name, 0).acquire().await;
    assert!(refused.expect_err("zero slots").is_invalid());
}

/// No two holders have one number, whichever clients they use. A number is a part of the hold.
///
/// Shows G-39.
pub async fn numbers_of_slots_differ(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_slots(service).await else {
        return;
    };
    let name = fresh_name("numbered");
    let one = ours.semaphore(&name, 4).numbered();
    let two = theirs.semaphore(&name, 4).numbered().permits(2);

    let first = acquire(&one).await;
    let pair = acquire(&two).await;
    let last = acquire(&one).await;
    let slots = [first.slots(), pair.slots(), last.slots()];
    assert_eq!(slots, [&[0][..], &[1, 2], &[3]]);
    let refused = one.try_acquire().await.expect("the store replies");
    assert_eq!(refused.expect_err("no slot is free").name.as_str(), name);

    release(pair).await;
    let again = acquire(&two).await;
    assert_eq!(again.slots(), [1, 2], "the numbers are free");
    let watch = again.watch();

    let number = format!("{name}/slot/2");
    let lock_state = ours.inspect(&number).await.expect("inspected");
    let token = lock_state.holders().next().and_then(Entry::token);
    let broken = ours.break_hold(&number, token.expect("it is held")).await;
    assert!(broken.expect("the store replies").is_some());
    let reason = within_timeout("the hold is lost", again.lost()).await;
    assert_eq!(reason, LossReason::Revoked);
    assert!(again.check().expect_err("it is lost").is_lost());
    within_timeout("the watch notices it", watch.lost()).await;
    assert!(watch.check().expect_err("it is lost").is_lost());

    drop((first, last, again));
    let all = acquire(&ours.semaphore(&name, 4).permits(4).numbered()).await;
    assert_eq!(all.slots(), [0, 1, 2, 3]);
    release(all).await;
    let refused = ours.semaphore(&name, 1025).numbered().acquire().await;
    assert!(refused.expect_err("too many").is_invalid());
}

/// Another program may hold the lock whose name is that of a number, under any label: also one that
/// reads like the id of a claim.
///
/// Shows G-01, G-39.
pub async fn lock_of_another_program_is_no_stale_number(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_slots(service).await else {
        return;
    };
    let name = fresh_name("labelled");
    let number = format!("{name}/slot/0");
    let label = draw_claim_id().to_string();
    let held = acquire(&theirs.mutex(&number).label(&label)).await;

    let numbered = ours.semaphore(&name, 1).numbered().try_acquire().await;
    let refused = numbered.expect("the store replies");
    assert_eq!(
        refused.expect_err("the number is held").name.as_str(),
        number
    );
    release(held).await;
    release(acquire(&ours.semaphore(&name, 1).numbered()).await).await;
}

/// Holders come and go while another client looks for stale numbers. It breaks none of theirs.
///
/// Shows G-01, G-39.
pub async fn number_of_the_next_holder_is_not_stale(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_slots(service).await else {
        return;
    };
    let name = fresh_name("replaced");
    let numbered = |locks: &Locks| locks.semaphore(&name, 2).numbered();
    // Of the two numbers, another program has one, and a holder the other.
    let other = acquire(&ours.mutex(format!("{name}/slot/0"))).await;
    let first = acquire(&numbered(&theirs)).await;
    let first_claim = first.claim_id();

    let held = Arc::new(Mutex::new(Some(first)));
    let store = Intercepted(Replacing {
        store: store(service).await,
        lock: numbered(&theirs),
        held: Arc::clone(&held),
    });
    let looking = locks_over(Arc::new(store)).reply_timeout(TIMEOUT);
    let looking = numbered(&looking.expect("it is in range"));
    let refused = looking.try_acquire().await.expect("the store replies");
    refused.expect_err("no number is free");

    let last = held.lock().take().expect("it is held");
    assert_ne!(last.claim_id(), first_claim, "no holder came");
    release(last).await;
    release(other).await;
}

/// A client that lets the holder of a lock end, and the next one begin, before each of its reads.
#[derive(Debug)]
struct Replacing {
    store: Arc<dyn Store>,
    lock: Lock,
    held: Arc<Mutex<Option<Guard>>>,
}

#[async_trait]
impl Intercept for Replacing {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        let last = self.held.lock().take();
        release(last.expect("it is held")).await;
        let next = acquire(&self.lock).await;
        *self.held.lock() = Some(next);
        self.store.inspect(name).await
    }
}

/// A claim for many slots keeps its position. Later claims for few slots do not overtake it.
///
/// Without a queue, it is granted when enough slots are free.
///
/// Shows G-05.
pub async fn large_claims_are_not_overtaken(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_slots(service).await else {
        return;
    };
    let name = fresh_name("big");

    let small = acquire(&ours.semaphore(&name, 3)).await;
    let waiting = spawn_acquire(&theirs.semaphore(&name, 3).permits(3));
    if !ours.guarantees().fifo {
        waiters(&theirs, &name, 1).await;
        release(small).await;
        return release(granted(waiting).await).await;
    }
    waiters(&ours, &name, 1).await;
    let refused = try_acquire(&ours.semaphore(&name, 3)).await;
    assert!(refused.is_none(), "a small claim overtook");

    let later = spawn_acquire(&ours.semaphore(&name, 3));
    waiters(&ours, &name, 2).await;
    release(small).await;
    let big = granted(waiting).await;
    assert!(!later.is_finished(), "a small claim overtook");

    release(big).await;
    release(granted(later).await).await;
}

/// A name that is in use with one kind or size is refused for another, whether a claim would wait
/// or not, and the error names the present one. Afterwards the name is free for any kind, unless
/// the store keeps sizes forever.
///
/// Shows G-06.
pub async fn mixed_kinds_are_refused(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_slots(service).await else {
        return;
    };
    let name = fresh_name("kinds");
    let held = acquire(&ours.semaphore(&name, 3).permits(3)).await;
    let waiting = spawn_acquire(&ours.semaphore(&name, 3));
    waiters(&ours, &name, 1).await;

    let mut others = vec![theirs.mutex(&name), theirs.semaphore(&name, 4)];
    if theirs.guarantees().rwlock {
        others.push(theirs.rwlock(&name).shared());
    }
    for other in others {
        let tried = other.try_acquire().await.expect_err("refused");
        let waited = within_timeout("the claim is refused", other.acquire()).await;
        for error in [tried, waited.expect_err("refused")] {
            assert!(error.is_mismatch(), "{error}");
            assert!(error.to_string().contains("3 slots"), "{error}");
        }
    }

    release(held).await;
    release(granted(waiting).await).await;
    let mutex = theirs.mutex(&name).acquire().await;
    if theirs.guarantees().semaphore == SemaphoreSupport::Permanent {
        assert!(mutex.expect_err("the size stays").is_mismatch());
        return release(acquire(&theirs.semaphore(&name, 3)).await).await;
    }
    release(mutex.expect("free for any kind")).await;
}
