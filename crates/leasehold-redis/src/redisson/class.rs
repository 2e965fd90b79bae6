//! The classes of Redisson: their scripts, and which shares they have.

use crate::client::{Script, list_script, script};
use leasehold_core::store::{Share, replies, units};
use leasehold_core::{CrashRelease, Error, Guarantees, Result, SemaphoreSupport};

/// Redisson's class for the locks of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Class {
    /// `RLock`.
    #[default]
    Lock,
    /// `RFencedLock`.
    Fenced,
    /// `RReadWriteLock`.
    ReadWrite,
    /// `RPermitExpirableSemaphore`.
    Semaphore,
}

/// The scripts of a class, and the type of the keys in which its holders are.
pub(super) struct Scripts {
    pub(super) lock: Script,
    pub(super) unlock: Script,
    pub(super) renew: Script,
    pub(super) inspect: Script,
    pub(super) list: Script,
    pub(super) key_type: &'static str,
}

static LOCK: Scripts = Scripts {
    lock: script!("lua/lock"),
    unlock: script!("lua/unlock"),
    renew: script!("lua/renew"),
    inspect: script!("lua/inspect").only_reads(),
    list: Script::new(list_script!("lua/list")).only_reads(),
    key_type: "hash",
};
static READ_WRITE: Scripts = Scripts {
    lock: script!("lua/rw_lock"),
    unlock: script!("lua/rw_unlock"),
    renew: script!("lua/rw_renew"),
    inspect: script!("lua/rw_inspect").only_reads(),
    list: Script::new(list_script!("lua/rw_list")).only_reads(),
    key_type: "hash",
};
static SEMAPHORE: Scripts = Scripts {
    lock: script!("lua/semaphore_lock"),
    unlock: script!("lua/semaphore_unlock"),
    renew: script!("lua/semaphore_renew"),
    inspect: script!("lua/semaphore_inspect").only_reads(),
    list: Script::new(list_script!("lua/semaphore_list")).only_reads(),
    key_type: "zset",
};

impl Class {
    /// The values of `lock=` in a URL.
    const NAMES: [(&'static str, Self); 4] = [
        ("plain", Self::Lock),
        ("fenced", Self::Fenced),
        ("rw", Self::ReadWrite),
        ("semaphore", Self::Semaphore),
    ];

    pub(super) fn parse(text: &str) -> Result<Self> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        if let Some((_, class)) = found {
            return Ok(*class);
        }
        if text == "fair" {
            let error = Error::unsupported("an RFairLock is not shared");
            return Err(error.help(
                "its queue orders waiters by the clocks of the clients, and drops a waiter that \
                 pauses; the store redis: is fair",
            ));
        }
        let error = Error::invalid("lock= is not a lock of this dialect");
        Err(error.help(
            "write lock=plain for RLock, lock=fenced for RFencedLock, lock=rw for RReadWriteLock, \
             or lock=semaphore for RPermitExpirableSemaphore",
        ))
    }

    pub(super) fn guarantees(self) -> Guarantees {
        let mut guarantees = replies::guarantees(CrashRelease::LeaseExpiry);
        guarantees.tokens = self == Self::Fenced;
        guarantees.rwlock = self == Self::ReadWrite;
        if self == Self::Semaphore {
            guarantees.semaphore = SemaphoreSupport::Permanent;
        }
        guarantees.lease_expiry = true;
        guarantees
    }

    pub(super) fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, class)| *class == self);
        found.map_or("", |(name, _)| name)
    }

    pub(super) fn scripts(self) -> &'static Scripts {
        match self {
            Self::Lock | Self::Fenced => &LOCK,
            Self::ReadWrite => &READ_WRITE,
            Self::Semaphore => &SEMAPHORE,
        }
    }

    /// Checks that locks of this class have such a share.
    pub(super) fn check(self, share: Share) -> Result<()> {
        let (weight, capacity) = units(share);
        let is_slots = capacity < Share::RW_CAPACITY;
        let is_supported = match self {
            Self::Lock | Self::Fenced => !is_slots && weight == capacity,
            Self::ReadWrite => !is_slots,
            Self::Semaphore => is_slots || weight == capacity,
        };
        if is_supported {
            return Ok(());
        }

        let (class, kind) = (self.name(), share.kind());
        let other = if is_slots { "semaphore" } else { "rw" };
        let error = Error::unsupported(format!("a store with lock={class} does not have {kind}"));
        Err(error.help(format!(
            "open the store with dialect=redisson&lock={other}, or use the stores redis: and file:"
        )))
    }
}

/// Returns the permits of a claim, and those of its semaphore. A mutex is a semaphore of one.
pub(super) fn permits(share: Share) -> (u32, u32) {
    if units(share) == units(Share::MUTEX) {
        (1, 1)
    } else {
        (share.weight(), share.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G-55.
    #[test]
    fn each_class_has_its_own_shares() {
        let slot = Share::slots(1, 3).expect("one of three");
        let all = [Share::MUTEX, Share::WRITER, Share::READER, slot];
        let has = |class: Class| all.map(|share| class.check(share).is_ok());
        assert_eq!(has(Class::Lock), [true, true, false, false]);
        assert_eq!(has(Class::Fenced), [true, true, false, false]);
        assert_eq!(has(Class::ReadWrite), [true, true, true, false]);
        assert_eq!(has(Class::Semaphore), [true, true, false, true]);
    }

    /// Shows G-55.
    #[test]
    fn fair_lock_is_refused_with_the_reason() {
        let error = Class::parse("fair").expect_err("refused");
        assert!(error.is_unsupported(), "{error}");
        assert!(Class::parse("fast").expect_err("refused").is_invalid());
    }
}
