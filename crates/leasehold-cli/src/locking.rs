//! The locks that the options of a subcommand describe.

use leasehold::store::Share;
use leasehold::{Lock, Locks, MultiLock, multi_lock};

use crate::commands::{LockOptions, Origin};

/// The names to acquire, and the options for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The names in the order of the arguments, without repetitions; never empty.
    pub(crate) names: &'a [String],
    pub(crate) options: &'a LockOptions,
    /// The default of `--label`.
    pub(crate) label: &'a str,
    pub(crate) slot_numbers: SlotNumbers,
    pub(crate) store: &'a Locks,
    /// Where the URL of the store comes from.
    pub(crate) origin: Origin,
    /// A second store, which must grant all names too.
    pub(crate) also: Option<&'a Locks>,
}

impl Request<'_> {
    /// Returns the locks of all names, in each store in the order of the arguments.
    pub(crate) fn locks(&self) -> MultiLock {
        let stores = [Some(self.store), self.also].into_iter().flatten();
        multi_lock(stores.flat_map(|store| {
            self.names.iter().map(move |name| {
                let lock = self.options.lock(store, name, self.label);
                if name == &self.names[0] && self.needs_numbers() {
                    lock.numbered()
                } else {
                    lock
                }
            })
        }))
    }

    /// Returns where the URL of a lock's store comes from.
    pub(crate) fn origin_of(&self, lock: &Lock) -> Origin {
        match self.also {
            Some(also) if also.url() == lock.locks().url() => Origin::AlsoStore,
            _ => self.origin,
        }
    }

    /// Whether the slots of the first name have numbers. Those of a larger semaphore than can be
    /// numbered count load, and no devices. Two stores count their slots separately.
    fn needs_numbers(&self) -> bool {
        let numbered = 1..=Lock::NUMBERED_MAX;
        let can_have = self
            .options
            .slots
            .is_some_and(|slots| numbered.contains(&slots));
        self.slot_numbers == SlotNumbers::Taken && can_have && self.also.is_none()
    }
}

/// Whether the holder of a semaphore needs the numbers of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotNumbers {
    Taken,
    Unneeded,
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
