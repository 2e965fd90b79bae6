//! Acquires the locks that the options of a subcommand describe.

use std::time::Duration;

use anyhow::Result;
use leasehold::store::Share;
use leasehold::{Guard, Lock, Locks};
use tokio::time::timeout;

use crate::commands::{LockOptions, Origin};
use crate::guards::Guards;
use crate::run::retry::Retry;
use crate::run::signals::Signals;
use crate::run::waiting::{self, Acquired};

/// How long to wait until the claims have left their queues. They leave in the background.
pub(crate) const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The names to acquire, and the options for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The names in the order of the arguments, without repetitions; never empty.
    pub(crate) names: &'a [String],
    pub(crate) options: &'a LockOptions,
    /// The default of `--label`.
    pub(crate) label: &'a str,
    pub(crate) slot_numbers: SlotNumbers,
    /// Where the URL of the store comes from.
    pub(crate) origin: Origin,
}

impl Request<'_> {
    /// Whether the slots of the first name have numbers. Those of a larger semaphore than can be
    /// numbered count load, and no devices.
    fn needs_numbers(&self) -> bool {
        let numbered = 1..=Lock::NUMBERED_MAX;
        let can_have = self
            .options
            .slots
            .is_some_and(|slots| numbered.contains(&slots));
        self.slot_numbers == SlotNumbers::Taken && can_have
    }
}

/// Whether the holder of a semaphore needs the numbers of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotNumbers {
    Taken,
    Unneeded,
}

/// Acquires all names, or none of them.
///
/// Every client acquires several names in the order of [`MultiLock`](leasehold::MultiLock). So no
/// two clients each hold a name that the other one waits for.
///
/// # Cancel safety
/// Dropping the future leaves the queues and releases granted locks.
pub(crate) async fn acquire(
    locks: &Locks,
    request: Request<'_>,
    retry: &mut Retry,
    signals: &mut Signals,
) -> Result<Acquired> {
    let acquired = acquire_names(locks, request, retry, signals).await;
    if !matches!(acquired, Ok(Acquired::Granted(_))) {
        leave_queues().await;
    }
    acquired
}

/// Waits until the claims have left their queues.
pub(crate) async fn leave_queues() {
    // After this time the store itself detects that the client has ended.
    drop(timeout(LEAVE_TIMEOUT, leasehold::drain()).await);
}

async fn acquire_names(
    locks: &Locks,
    request: Request<'_>,
    retry: &mut Retry,
    signals: &mut Signals,
) -> Result<Acquired> {
    let Request { names, options, .. } = request;
    let set = leasehold::multi_lock(names.iter().map(|name| {
        let lock = options.lock(locks, name, request.label);
        if name == &names[0] && request.needs_numbers() {
            lock.numbered()
        } else {
            lock
        }
    }));
    let order = set.in_order()?;

    loop {
        let mut guards = Vec::new();
        for lock in &order {
            match waiting::wait(lock, locks, request, retry, signals).await? {
                Acquired::Granted(guard) => guards.push(guard),
                Acquired::TimedOut => return Ok(Acquired::TimedOut),
                Acquired::Interrupted(by) => return Ok(Acquired::Interrupted(by)),
            }
        }

        // A hold may have been lost during the wait for the next name.
        if guards.iter().all(|guard: &Guard| guard.check().is_ok()) {
            guards.sort_by_key(|guard| names.iter().position(|name| name == guard.name()));
            return Ok(Acquired::Granted(Guards::new(guards)));
        }
    }
}

impl LockOptions {
    /// Creates the lock `name` with these options. `label` is used unless --label is given.
    pub(crate) fn lock(&self, locks: &Locks, name: &str, label: &str) -> Lock {
        let lock = match (self.slots, self.shared) {
            (Some(slots), _) => locks
                .semaphore(name, slots)
                .permits(self.permits.unwrap_or(1)),
            (None, true) => locks.rwlock(name).shared(),
            (None, false) => locks.mutex(name),
        };

        let timed = self.with_times(lock);
        match &self.address {
            Some(address) => timed.candidate(address),
            None => timed.label(self.label.as_deref().unwrap_or(label)),
        }
    }

    fn with_times(&self, lock: Lock) -> Lock {
        let timed = lock.lease(self.lease);
        match self.max_hold {
            Some(longest) => timed.max_hold(longest),
            None => timed,
        }
    }

    /// The share that `lock` requests.
    pub(crate) fn share(&self) -> leasehold::Result<Share> {
        match (self.slots, self.shared) {
            (Some(slots), _) => Share::slots(self.permits.unwrap_or(1), slots),
            (None, true) => Ok(Share::READER),
            (None, false) => Ok(Share::MUTEX),
        }
    }
}
