//! The kind of a lock in use, and how much of the lock is held.

use leasehold::LockState;
use leasehold::store::Share;

/// The kind of a lock. A free lock has no kind until its next claim decides it.
///
/// A mutex and a read-write lock may use one name, which then is a read-write lock: the mutex counts
/// as a writer. So the kinds have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Mutex,
    Election,
    RwLock,
    Semaphore { slots: u32 },
}

/// How much of a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) kind: Kind,
    /// The sum of the holders' weights; each reader and each writer counts as one.
    pub(crate) held: u32,
    has_writer: bool,
}

impl Usage {
    /// Returns the usage of a lock, or `None` if no claim shows its kind.
    pub(crate) fn of(lock_state: &LockState) -> Option<Self> {
        let kinds = lock_state.entries.iter().map(|entry| {
            if entry.info.is_candidate {
                Kind::Election
            } else {
                Kind::of(entry.share)
            }
        });
        let holders = || lock_state.holders().map(|entry| entry.share);

        Some(Self {
            kind: kinds.max()?,
            held: holders().map(weight).sum(),
            has_writer: holders().any(Share::is_whole),
        })
    }
}

/// Returns the weight of a semaphore's share, and one for any other share.
fn weight(share: Share) -> u32 {
    match Kind::of(share) {
        Kind::Semaphore { .. } => share.weight(),
        Kind::Mutex | Kind::Election | Kind::RwLock => 1,
    }
}

impl Kind {
    pub(crate) fn of(share: Share) -> Self {
        match share.capacity() {
            1 => Self::Mutex,
            Share::RW_CAPACITY => Self::RwLock,
            slots => Self::Semaphore { slots },
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Election => "election",
            Self::RwLock => "rwlock",
            Self::Semaphore { .. } => "semaphore",
        }
    }

    /// Returns the largest possible usage: the slots of a semaphore, or one holder of a mutex.
    /// Readers have no limit.
    pub(crate) fn capacity(self) -> Option<u32> {
        match self {
            Self::Mutex | Self::Election => Some(1),
            Self::RwLock => None,
            Self::Semaphore { slots } => Some(slots),
        }
    }
}

/// Writes `2 of 4`, `3 readers` or `writer`.
impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind.capacity(), self.held) {
            (Some(capacity), held) => write!(f, "{held} of {capacity}"),
            (None, _) if self.has_writer => write!(f, "writer"),
            (None, 1) => write!(f, "1 reader"),
            (None, readers) => write!(f, "{readers} readers"),
        }
    }
}
