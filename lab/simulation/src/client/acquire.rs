//! Acquiring, in all ways that the API has.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::{Error, Guard, Lock, Locks, OnceGuard, Owner, ReentrantGuard, Result};
use tokio::time::timeout;

use crate::event::What;
use crate::plan::{Bound, LockKind, Operation, Wait, Work};
use crate::process::Acquiring;
use crate::server::{Nanos, nanos};
use crate::store::name_of;
use crate::world::World;

/// A guard of one of the kinds that the API has.
pub(crate) enum Held {
    Plain(Guard),
    Nested(Vec<ReentrantGuard>),
    Job(OnceGuard),
}

impl Held {
    pub(crate) fn guard(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Job(guard) => guard,
            Self::Nested(guards) => guards.first().expect("the first guard is released last"),
        }
    }

    /// Gives the hold back: the last guard of an owner is left then, and a job is done.
    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Job(guard) => guard.complete().await,
            Self::Nested(mut guards) => {
                let last = guards.pop().expect("the first guard is left");
                last.release().await
            }
        }
    }
}

/// Acquires as the operation says; `None` if the lock was not granted.
pub(crate) async fn acquire(
    world: &Arc<World>,
    client: usize,
    locks: &Locks,
    operation: &Operation,
) -> Option<Held> {
    let began = world.begin_acquire(client, operation);
    let waiting = acquire_within(locks, operation, world);
    let (acquired, was_dropped) = match operation.wait {
        Wait::DroppedAfter(time) => dropped(timeout(time, waiting).await.ok()),
        Wait::DroppedAtPoll(polls) => dropped(dropped_at_poll(waiting, polls).await),
        _ => (Some(waiting.await), false),
    };

    let held = world.end_acquire(client, operation, &began, acquired, was_dropped);
    drop(began);
    held
}

/// An acquire that has not returned.
pub(crate) struct Began {
    world: Arc<World>,
    client: usize,
    number: u64,
    at: Nanos,
}

/// The acquire has ended, also if the client was killed.
impl Drop for Began {
    fn drop(&mut self) {
        self.world.state().clients[self.client]
            .acquiring
            .remove(&self.number);
    }
}

/// Runs a future that its caller drops before the poll of this number. Returns `None` then.
pub(crate) async fn dropped_at_poll<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut polled = 0;
    poll_fn(move |context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

async fn acquire_within(
    locks: &Locks,
    operation: &Operation,
    world: &World,
) -> Result<Option<Held>> {
    let unbound = with_cohort(lock_of(locks, operation, world), operation);
    let lock = with_bound(unbound, operation);
    if let Some(job) = operation.job {
        return acquire_job(locks, operation, job, world).await;
    }
    if operation.work == Work::Nested {
        return acquire_nested(locks, operation, world).await;
    }

    let guard = match operation.wait {
        Wait::Never => lock.try_acquire().await?,
        Wait::AtMost(limit) => lock.try_acquire_for(limit).await?,
        _ => Ok(lock.acquire().await?),
    };
    Ok(guard.ok().map(Held::Plain))
}

fn lock_of(locks: &Locks, operation: &Operation, world: &World) -> Lock {
    let name = name_of(operation.name);
    match (world.profile.kind, operation.amount) {
        (LockKind::Mutex, _) => locks.mutex(&name),
        (LockKind::Slots(slots), permits) => locks.semaphore(&name, slots).permits(permits),
        (LockKind::ReadWrite, 1) => locks.rwlock(&name).shared(),
        (LockKind::ReadWrite, _) => locks.rwlock(&name).exclusive(),
    }
}

fn with_cohort(lock: Lock, operation: &Operation) -> Lock {
    match operation.cohort {
        Some(max) => lock.cohort(max),
        None => lock,
    }
}

fn with_bound(lock: Lock, operation: &Operation) -> Lock {
    let lock = lock.lease(operation.lease);
    match operation.bound {
        Bound::None => lock,
        Bound::NoRenewal => lock.no_renewal(),
        Bound::MaxHold(time) => lock.max_hold(time),
        Bound::Both(time) => lock.no_renewal().max_hold(time),
    }
}

/// Acquires a job; `None` if it is done, or not granted.
async fn acquire_job(
    locks: &Locks,
    operation: &Operation,
    job: u32,
    world: &World,
) -> Result<Option<Held>> {
    let once = locks.once(name_of(operation.name)).id(job.to_string());
    let once = once.lease(operation.lease);
    let guard = match operation.wait {
        Wait::Never => once.try_acquire().await?.ok(),
        Wait::AtMost(limit) => once.try_acquire_for(limit).await?.ok(),
        _ => {
            let guard = once.acquire().await?.ok();
            if guard.is_none() {
                world.check_done(job);
            }
            guard
        }
    };
    Ok(guard.map(Held::Job))
}

/// Acquires three times for one owner. Only the first one may wait.
async fn acquire_nested(
    locks: &Locks,
    operation: &Operation,
    world: &World,
) -> Result<Option<Held>> {
    let configured = operation.clone();
    let lock = locks
        .reentrant(name_of(operation.name))
        .configure(move |lock| with_bound(with_cohort(lock, &configured), &configured));

    let owner = Owner::new();
    let first = match operation.wait {
        Wait::Never => lock.try_acquire(&owner).await?,
        _ => Ok(lock.acquire(&owner).await?),
    };
    let Ok(first) = first else { return Ok(None) };

    let mut guards = vec![first];
    for _ in 0..2 {
        let Ok(again) = lock.try_acquire(&owner).await else {
            break;
        };
        match again {
            Ok(again) => guards.push(again),
            Err(_) => world.violate("an owner acquires its lock again", ""),
        }
    }
    Ok(Some(Held::Nested(guards)))
}

fn dropped<T>(acquired: Option<T>) -> (Option<T>, bool) {
    let was_dropped = acquired.is_none();
    (acquired, was_dropped)
}

impl World {
    fn begin_acquire(&self, client: usize, operation: &Operation) -> Began {
        self.record(client, What::Acquiring(operation.name));
        let at = self.time();
        let mut state = self.state();
        let number = u64::try_from(state.events.len()).expect("few events");
        let acquiring = Acquiring {
            since: at,
            is_in_cohort: operation.cohort.is_some(),
        };
        state.clients[client].acquiring.insert(number, acquiring);

        Began {
            world: self.shared(),
            client,
            number,
            at,
        }
    }

    fn end_acquire(
        &self,
        client: usize,
        operation: &Operation,
        began: &Began,
        acquired: Option<Result<Option<Held>>>,
        was_dropped: bool,
    ) -> Option<Held> {
        if was_dropped {
            self.record(client, What::Dropped("acquire"));
            return None;
        }
        match acquired? {
            Ok(Some(held)) => Some(held),
            Ok(None) => {
                self.record(client, What::NotAcquired(operation.name));
                self.check_deadline(client, operation, began);
                None
            }
            Err(error) => {
                self.record(client, What::Failed(error.to_string()));
                self.check_refusal(client, operation, began, &error);
                None
            }
        }
    }

    /// Checks that an acquire with a limit returns in time.
    fn check_deadline(&self, client: usize, operation: &Operation, began: &Began) {
        let Wait::AtMost(limit) = operation.wait else {
            return;
        };
        let late = self.time() - began.at > nanos(limit + LEAVE_MAX) + TIMER_GRAIN;
        if late && self.profile.is_calm() && !self.was_away_since(client, began.at) {
            self.violate("an acquire returns at its deadline", format!("{limit:?}"));
        }
    }

    /// Checks that an acquire fails only if the store is away, or was until shortly before.
    /// The hold of a job may be lost while the record is read.
    fn check_refusal(&self, client: usize, operation: &Operation, began: &Began, error: &Error) {
        if operation.job.is_some() && error.is_lost() {
            return;
        }
        if !error.is_unavailable() {
            self.violate("an acquire fails only in an outage", error.to_string());
        }
        let recently = self.time().saturating_sub(nanos(NOTICED_WITHIN));
        if self.profile.is_calm() && !self.was_away_since(client, began.at.max(recently)) {
            self.violate("an acquire fails only in an outage", error.to_string());
        }
    }

    /// Returns whether the client could not reach the store at some time since `since`.
    fn was_away_since(&self, client: usize, since: Nanos) -> bool {
        self.state().clients[client].was_away_since(since)
    }
}

/// How long an acquire waits for the reply to its request to leave.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// When an outage has ended, how long it takes until a request of each acquire has a reply: a request
/// without a reply, a pause, and another request.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);
const TIMER_GRAIN: Nanos = 5_000_000;
