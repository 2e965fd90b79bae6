//! The numbers of slots: each holder of a semaphore gets numbers that no other holder has.
//!
//! A store counts slots and does not number them. So the number 3 of the semaphore `gpu` is a mutex
//! of its own, `gpu/slot/3`. Only holders of the semaphore acquire these mutexes, one for each of
//! their slots. The holders have at most N slots, so one of the N mutexes is free for each slot.

use std::collections::HashSet;
use std::time::Duration;

use leasehold::{ClaimId, Entry, Guard, LockState, Locks, Result, Token};
use tokio::time::{Instant, sleep};

use crate::commands::LockOptions;

/// The largest semaphore with numbered slots. A larger one counts load, not devices, and trying its
/// numbers would take too long.
pub(crate) const NUMBERED_MAX: u32 = 1024;

/// The slot numbers of a hold, and the guards of their mutexes.
#[derive(Debug, Default)]
pub(crate) struct NumberedSlots {
    /// From 0; empty unless the first name is a semaphore.
    pub(crate) numbers: Vec<u32>,
    pub(crate) guards: Vec<Guard>,
}

/// How taking the numbers ended.
pub(crate) enum Numbering {
    Taken(NumberedSlots),
    /// The time is over. The mutex with this name is one of those that were not granted.
    TimedOut(String),
}

/// Takes a number for each slot that `semaphore` holds. Takes none if the semaphore is too large.
///
/// `limit` ends the tries. Holders that are about to end keep their numbers for a moment, so there
/// are a few tries in any case.
///
/// # Cancel safety
/// Dropping the future gives back the numbers that it has taken.
pub(crate) async fn take_numbers(
    locks: &Locks,
    semaphore: &Guard,
    options: &LockOptions,
    limit: Option<Duration>,
) -> Result<Numbering> {
    const TRIES_MIN: u32 = 5;
    const RETRY_MIN: Duration = Duration::from_millis(5);
    const RETRY_MAX: Duration = Duration::from_millis(250);

    let slots = options.slots.unwrap_or(0);
    if slots > NUMBERED_MAX {
        return Ok(Numbering::Taken(NumberedSlots::default()));
    }

    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut tries = 1;
    let mut taking = Taking {
        locks,
        semaphore,
        options,
        taken: NumberedSlots::default(),
    };
    let mut retry = RETRY_MIN;
    while !taking.try_all(slots).await? {
        semaphore.check()?;
        taking.break_stale(slots).await?;

        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_over && tries >= TRIES_MIN {
            return Ok(Numbering::TimedOut(taking.missing(slots)));
        }
        tries += 1;
        sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
    Ok(Numbering::Taken(taking.taken))
}

/// Whether a lock is the number of a slot in use. `find` returns the lock with a name, if it is
/// shown.
pub(crate) fn is_number<'a>(
    lock: &LockState,
    find: impl FnOnce(&str) -> Option<&'a LockState>,
) -> bool {
    let Some((semaphore, _)) = lock.name.as_str().rsplit_once("/slot/") else {
        return false;
    };
    let Some(semaphore) = find(semaphore) else {
        return false;
    };

    let claims: HashSet<String> = semaphore
        .holders()
        .map(|entry| entry.id.to_string())
        .collect();
    lock.entries
        .iter()
        .all(|entry| claims.contains(&entry.info.label))
}

struct Taking<'a> {
    locks: &'a Locks,
    semaphore: &'a Guard,
    options: &'a LockOptions,
    taken: NumberedSlots,
}

impl Taking<'_> {
    /// Tries every number once. Returns whether enough of them are taken.
    async fn try_all(&mut self, slots: u32) -> Result<bool> {
        let wanted = self.options.permits.unwrap_or(1) as usize;
        // The label lets other holders see which claim of the semaphore the number belongs to.
        let label = self.claim().to_string();

        for number in 0..slots {
            if self.taken.numbers.len() == wanted {
                break;
            }
            if self.taken.numbers.contains(&number) {
                continue;
            }

            let name = self.slot_name(number);
            let lock = self.options.mutex(self.locks, &name, &label);
            if let Ok(guard) = lock.try_acquire().await? {
                self.taken.numbers.push(number);
                self.taken.guards.push(guard);
            }
        }
        Ok(self.taken.numbers.len() == wanted)
    }

    /// Breaks the holds of numbers whose claim no longer holds the semaphore.
    ///
    /// A store may detect a crash for the semaphore first, and for the number only later.
    async fn break_stale(&self, slots: u32) -> Result<()> {
        let mut numbered = Vec::new();
        for number in 0..slots {
            numbered.push(self.locks.inspect(&self.slot_name(number)).await?);
        }
        // The semaphore is read after the numbers. So every claim that already had a number is
        // seen.
        let semaphore = self.locks.inspect(self.semaphore.name()).await?;

        let holders: HashSet<ClaimId> = semaphore.holders().map(|entry| entry.id).collect();
        if !holders.contains(&self.claim()) {
            // This claim is lost, or the store reports other ids. Then no number is known to be
            // stale.
            return Ok(());
        }

        for state in &numbered {
            for (entry, token) in stale(state, &holders) {
                tracing::debug!(name = %state.name, label = %entry.info.label, "stale number");
                self.locks.break_hold(state.name.as_str(), token).await?;
            }
        }
        Ok(())
    }

    /// The name of the first number that is not taken.
    fn missing(&self, slots: u32) -> String {
        let mut numbers = 0..slots;
        let missing = numbers.find(|number| !self.taken.numbers.contains(number));
        self.slot_name(missing.unwrap_or(0))
    }

    fn claim(&self) -> ClaimId {
        self.semaphore.claim_id()
    }

    fn slot_name(&self, number: u32) -> String {
        format!("{}/slot/{number}", self.semaphore.name())
    }
}

/// Returns the holders of a number that no longer hold the semaphore.
fn stale<'a>(
    state: &'a LockState,
    holders: &'a HashSet<ClaimId>,
) -> impl Iterator<Item = (&'a Entry, Token)> {
    state.holders().filter_map(|entry| {
        let claim: ClaimId = entry.info.label.parse().ok()?;
        let is_stale = !holders.contains(&claim);
        is_stale.then_some((entry, entry.token()?))
    })
}
